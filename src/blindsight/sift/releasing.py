"""What goes out through a live grant, of one app or of several that wait: counted on disk before anybody gets it.

*The guarantee.* Releases that are carried out together are decided in their order, as if one came after the other: each
sees the frames that those before it take. One that is refused, or whose frames cannot be had, costs nobody else
anything. All that succeed are one write to the disk (`Register.record_all`), and where that fails nothing goes out.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blindsight.errors import BudgetExceededError, InputError, PrivacyError
from blindsight.sift.features import Features
from blindsight.sift.grants import Grant
from blindsight.sift.personal import PersonalSift
from blindsight.sift.siftstore import SiftStore
from blindsight.sift.watch import Watch
from blindsight.validation import check_finite, check_shape


@dataclass(frozen=True, eq=False)
class Wanted:
    """What an app wants: frames (n, d) of a person, features of a `pipeline`; looked at only if there is a grant.

    Where it is known beforehand how many frames these are (`count`), only if the budget allows them, too.
    """

    person: str
    app: str
    frames: Callable[[], Features]
    pipeline: str = ""
    count: int | None = None


@dataclass(frozen=True, eq=False)
class Released:
    """What an app gets, a row per frame, and through which grant."""

    grant: Grant
    rows: NDArray[Any]


def release_all(watch: Watch, wanted: Sequence[Wanted]) -> list[Released | Exception]:
    """Return for each what the app gets, or why it gets nothing; call it while the register is `current`.

    What concerns all of them is raised.
    """
    outcomes: list[Released | Exception] = []
    records: list[dict[str, Any]] = []
    taken: Counter[tuple[str, str]] = Counter()
    for one in wanted:
        try:
            released, record = _decided(watch, one, taken[one.person, one.app])
        except Exception as error:  # whatever it is, the others do not pay for it
            outcomes.append(error)
            continue
        taken[one.person, one.app] += record["frames"]
        outcomes.append(released)
        records.append(record)
    watch.register.record_all("release", records)
    return outcomes


def _decided(watch: Watch, wanted: Wanted, taken: int) -> tuple[Released, dict[str, Any]]:
    """Return a release and its record; `taken` frames are about to go out already."""
    grant = _holding(watch, wanted.person, wanted.app)
    if wanted.pipeline != watch.data.pipeline:
        raise InputError(
            f"these features come from pipeline {wanted.pipeline!r}; sifts here are verified for "
            f"{watch.data.pipeline!r}."
        )
    used = watch.register.frames_to(wanted.person, wanted.app) + taken
    if wanted.count is not None:
        grant.budget.fresh(used, wanted.count)  # or it is refused here
    given = check_shape(wanted.frames(), watch.data.dimension)
    check_finite(given.data if sparse.issparse(given) else given, "features")
    rows = watch.data.support.clip(given)  # what was not verified is not applied
    asked = int(rows.shape[0])
    fresh = grant.budget.fresh(used, asked)
    released = _sifted(watch.store, grant, rows, fresh, last=used + fresh >= grant.budget.frames)
    told = {"grant": grant.number, "person": wanted.person, "app": wanted.app, "sift": grant.sift}
    sizes = {"width": int(released.shape[1]), "size": released.nbytes}
    sift = watch.store.sift(grant.sift)
    cost = {"epsilon": fresh * sift.epsilon} if isinstance(sift, PersonalSift) else {}
    return Released(grant, released), {**told, "frames": fresh, "repeated": asked - fresh, **sizes, **cost}


def _holding(watch: Watch, person: str, app: str) -> Grant:
    """Return the grant through which an app gets something about a person today."""
    watch.register.private_of(person)
    version = watch.register.app(app).version
    grants = [one for one in watch.register.live(person) if (one.app, one.policy_version) == (app, version)]
    if not grants:
        raise PrivacyError(f"app {app} has no grant about this person. Propose a release and let the person allow it.")
    if not watch.holds(grants[-1]):
        raise PrivacyError(
            f"grant {grants[-1].number} is suspended: preferences, verification rows or attackers have changed since "
            "it was verified. Review it first."
        )
    return grants[-1]


def _sifted(store: SiftStore, grant: Grant, rows: Any, fresh: int, *, last: bool) -> NDArray[Any]:
    """Return the release of the first `fresh` rows, and the last one again for each row after them."""
    released = store.sift(grant.sift).apply(rows[:fresh]) if fresh else None
    if grant.budget.then == "refuse" and released is not None:
        return released
    again = store.last(grant.number) if released is None else released[-1:]
    if again is None:
        raise BudgetExceededError("all verified frames are released, and the last was not kept: nothing to repeat.")
    if last and released is not None:
        store.keep_last(grant.number, again)
    repeated = np.repeat(again, rows.shape[0] - fresh, axis=0)
    return repeated if released is None else np.concatenate([released, repeated])
