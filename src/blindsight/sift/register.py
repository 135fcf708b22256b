"""What the platform remembers: people and what they hide, apps and what they ask, grants, tries and releases.

*The guarantee.* What was recorded is on disk before the caller goes on, and a platform that starts again (or another
process on the same records) knows all of it. Records are kept in a file, a `blindsight.dp.journal.Journal` that only
grows, each line chained to the one before, mode 0600; or in other `Records`, as a service does in its log. They hold
decisions and the size of releases; never a frame, a released number or anybody's private label.

| record | what it says |
| --- | --- |
| person, app | what somebody hides; what an app asks for |
| try | a question is about to be judged on these rows, at this share of the error (`adaptive`) |
| decision | a sift was verified for an app and a person: verdict and why |
| grant, confirm, revoke | an app may get a sift's release; it was verified anew; it may no longer |
| release | so many frames went out through a grant |
| verifier | other attackers judge from now on |
| together | several of these, in their order, that are on disk together or not at all |

A grant (one app may get one sift's release about one person) holds only while the person still hides nothing more than
it was verified against, on the same verification rows, by the same verifier. Change any of these and it is suspended at
once; only a new verification brings it back, or revokes it. So a platform that is killed between a change of
preferences and the verification that must follow lets nothing out.
"""

import hashlib
import json
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.dp.journal import Journal
from blindsight.errors import BlindsightError, CorruptFileError, InputError, UnknownNameError
from blindsight.files import read_arrays, write_arrays
from blindsight.sift.adaptive import RowPrints, Tries
from blindsight.sift.attackers import chosen_attackers
from blindsight.sift.sift import Sift, load_sift, save_sift
from blindsight.sift.stream import PermanentSymbol, ReleaseBudget
from blindsight.sift.verify import Verifier

Mode = Literal["included", "unincluded"]


@dataclass(frozen=True)
class Terms:
    """What a verification rests on."""

    private: tuple[str, ...]
    verification_set: str
    verifier: str
    """From `verifier_name`: attackers by their names, threshold, confidence, seed; no attackers where certified."""
    reference: str
    """The digest of the rows that the support and hardened sifts were fitted to, which `verification_set` covers, too.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "private", tuple(self.private))  # a list, where it was read

    def covers(self, private: tuple[str, ...], verification_set: str, verifiers: tuple[str, ...]) -> bool:
        hidden = set(private) <= set(self.private)
        return hidden and self.verification_set == verification_set and self.verifier in verifiers


@dataclass(frozen=True)
class Revocation:
    """Why a grant ended, and when. `leaks`: it failed a verification, so what it released is known to be too much."""

    reason: str
    time: str
    leaks: bool


@dataclass(frozen=True)
class Grant:
    """Who gets what about whom, and what was verified."""

    number: int
    person: str
    app: str
    public: tuple[str, ...]
    policy_version: int
    mode: Mode
    sift: str
    """The digest of what is applied: the platform's version of the app's sift."""
    pipeline: str
    budget: ReleaseBudget
    confidence: float
    """At which this sift was verified; the more was tried on the same rows, the higher it is."""
    terms: Terms
    report: Mapping[str, Any]
    together: Mapping[str, Any] | None
    """The verification with all that other grants let out about this person; None where there were none."""
    time: str
    revoked: Revocation | None = None

    @property
    def live(self) -> bool:
        return self.revoked is None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        values = {part.name: data[part.name] for part in fields(cls)}
        revoked = values["revoked"]
        return cls(
            **values
            | {
                "public": tuple(values["public"]),
                "budget": ReleaseBudget(**values["budget"]),
                "terms": Terms(**values["terms"]),
                "revoked": None if revoked is None else Revocation(**revoked),
            }
        )


def verifier_name(verifier: Verifier, *, certified: bool) -> str:
    """Name what decides a verifier's verdicts; certificates do not depend on attackers.

    >>> verifier_name(Verifier("paper"), certified=True)
    'certificate, threshold 0.1, confidence 0.95, surest 0.9 but for 0.02 of any cell, within the support of other rows'
    """
    rule = f"threshold {verifier.threshold:g}, confidence {verifier.confidence:g}"
    rule += f", surest {verifier.surest:g} but for {verifier.exempt:g} of any cell, within the support of other rows"
    if certified:
        return f"certificate, {rule}"
    attackers = (f"{one.name} [{one.view}{', tuned' * one.tune}]" for one in chosen_attackers(verifier.attackers))
    rows = f"{verifier.cross_fitted} cross-fitted, learning curve, {verifier.rows_per_number} rows a number"
    return f"{'; '.join(attackers)}; {rule}, {rows}, seed {verifier.random_state}"


class Records(Protocol):
    """Where a register's records are kept, in order and for ever."""

    @property
    def recovered(self) -> str | None:
        """What an interrupted write left behind, and what was done about it."""

    @property
    def stale(self) -> bool:
        """Whether something that was passed on has been undone: the next `catch_up` begins with the first record."""

    def locked(self) -> AbstractContextManager[object]:
        """Keep others from adding; what is added in the block is on disk when it ends, all or nothing."""

    def catch_up(self, apply: Callable[[dict[str, Any]], None]) -> None:
        """Pass on every record that anybody added since the last call, in order. Call it while locked."""

    def append_all(self, records: Sequence[dict[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Add records, all or none, and return them as every reader gets them. Call it while locked and caught up."""


KINDS = ("person", "app", "try", "decision", "grant", "confirm", "revoke", "release", "verifier")

HEADER = {"format": "blindsight/sift-platform", "version": 1}


@dataclass(frozen=True)
class App:
    """What an app asks for; `version` counts its changes."""

    public: tuple[str, ...]
    version: int


def as_read(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records as a reader of their JSON gets them."""
    read: list[dict[str, Any]] = json.loads(json.dumps(records, allow_nan=False))
    return read


class JournalRecords:
    """Records in a file of their own; several that are added together are one line."""

    stale = False

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path, header=HEADER)
        self.locked = self._journal.locked

    @property
    def recovered(self) -> str | None:
        return self._journal.recovered

    def catch_up(self, apply: Callable[[dict[str, Any]], None]) -> None:
        def each(line: dict[str, Any]) -> None:
            for record in () if "format" in line else line["records"] if line["kind"] == "together" else (line,):
                apply(record)

        self._journal.catch_up(each)

    def append_all(self, records: Sequence[dict[str, Any]]) -> Sequence[Mapping[str, Any]]:
        alone, time, records = len(records) == 1, records[0]["time"], as_read(records)
        self._journal.append(records[0] if alone else {"kind": "together", "time": time, "records": records})
        return records


class Register:
    """The platform's memory, in `records` or (without any) for this process only."""

    def __init__(self, records: Records | None, clock: Callable[[], datetime]) -> None:
        self._records, self._clock = records, clock
        self._mutex = threading.Lock()
        self._clear()
        with self.current():
            pass

    def _clear(self) -> None:
        self.people: dict[str, tuple[str, ...]] = {}
        self.apps: dict[str, App] = {}
        self.grants: dict[int, Grant] = {}
        self._numbers: defaultdict[tuple[str | None, str | None], list[int]] = defaultdict(list)
        self.verifiers = 0
        """How often a change of verifier was recorded."""
        self.frames: Counter[int] = Counter()
        """Different frames released through each grant."""
        self.epsilons: defaultdict[int, float] = defaultdict(float)
        """Epsilon of what each grant released by randomised response."""
        self.tries = Tries()

    @property
    def recovered(self) -> str | None:
        return None if self._records is None else self._records.recovered

    @contextmanager
    def current(self) -> Iterator[None]:
        """Hold the register still, with everything in it that any process recorded."""
        with nullcontext() if self._records is None else self._records.locked(), self._mutex:
            if self._records is not None:
                if self._records.stale:
                    self._clear()
                self._records.catch_up(self._apply)
            yield

    def record(self, kind: str, **data: Any) -> None:
        """Write a record to disk and take it in; call it while `current`."""
        self.record_all(kind, [data])

    def record_all(self, kind: str, several: Iterable[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Write records of one kind to disk, all or none, and return them as they are kept; call it while `current`."""
        time = self._clock().astimezone(UTC).isoformat(timespec="seconds")
        records = [{"kind": kind, "time": time, **data} for data in several]
        kept = self._records.append_all(records) if records and self._records is not None else as_read(records)
        for record in kept:
            self._apply(record)
        return kept

    def private_of(self, person: str) -> tuple[str, ...]:
        if person not in self.people:
            raise UnknownNameError("person", person, ())  # who else is here is nobody's business
        return self.people[person]

    def app(self, name: str) -> App:
        if name not in self.apps:
            raise UnknownNameError("app", name, self.apps)
        return self.apps[name]

    def of(self, person: str | None = None, app: str | None = None) -> Iterator[Grant]:
        """Yield the grants about a person, to an app, or both; oldest first, found without looking at others."""
        yield from (self.grants[number] for number in self._numbers.get((person, app), ()))

    def live(self, person: str, app: str | None = None) -> tuple[Grant, ...]:
        return tuple(grant for grant in self.of(person, app) if grant.live)

    def told(self, person: str) -> tuple[Grant, ...]:
        """Return a person's revoked grants through which something went out: it cannot be taken back."""
        return tuple(grant for grant in self.of(person) if not grant.live and self.frames[grant.number])

    def revoke(self, grant: Grant, reason: str, *, leaks: bool) -> Grant:
        self.record("revoke", grant=grant.number, reason=reason, leaks=leaks)
        return self.grants[grant.number]

    def frames_to(self, person: str, app: str) -> int:
        """Return how many different frames of a person an app got through all its grants, symbols that stay apart."""
        return sum(self.frames[one.number] for one in self.of(person, app) if not one.budget.permanent)

    def permanent(self, person: str, public: tuple[str, ...]) -> Grant | None:
        """Return the first grant of a person's symbol of this attribute that is live or has told it."""
        mine = (grant for grant in self.of(person) if grant.public == public)
        return next((g for g in mine if g.budget.permanent and (g.live or self.frames[g.number])), None)

    def tried(self, question: str, rows: str, related: Iterable[str], **told: Any) -> float:
        """Record that a question is about to be judged on rows; return the share of the error it may use.

        `related` are the verification sets that have rows in common with this one. The same question again has the same
        share; the first of them is recorded before it is answered.
        """
        before = self.tries.asked(question)
        if before is not None:
            return before.share
        share = self.tries.next(related)
        self.record("try", question=question, rows=rows, share=share, **told)
        return share

    def _apply(self, record: Mapping[str, Any]) -> None:
        data = dict(record)
        try:
            kind, time = data.pop("kind"), data.pop("time")
            if kind not in KINDS:
                raise KeyError(kind)
            getattr(self, f"_take_{kind}")(time=time, **data)
        except (BlindsightError, KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(f"the platform's journal holds a record that cannot be: {error}") from None

    def _take_person(self, name: str, private: list[str], **_: Any) -> None:
        self.people[name] = tuple(private)

    def _take_app(self, name: str, public: list[str], version: int, **_: Any) -> None:
        self.apps[name] = App(tuple(public), version)

    def _take_try(self, question: str | None = None, rows: str = "", share: float = 0.0, **_: Any) -> None:
        self.tries.note(question, rows, share)

    def _take_decision(self, verdict: str, question: str | None = None, **_: Any) -> None:
        if verdict == "accept":
            self.tries.accept(question)

    def _take_grant(self, time: str, replaces: list[int], **data: Any) -> None:
        for number in replaces:
            reason = f"replaced by grant {data['number']}"
            self.grants[number] = replace(self.grants[number], revoked=Revocation(reason, time, leaks=False))
        grant = Grant.from_dict(data | {"time": time})
        if type(grant.number) is not int or grant.number < 1 or grant.number in self.grants:
            raise ValueError(f"grant number {grant.number} is taken already, or below 1")
        for key in ((None, None), (grant.person, None), (None, grant.app), (grant.person, grant.app)):
            self._numbers[key].append(grant.number)
        self.grants[grant.number] = grant

    def _take_confirm(self, grant: int, terms: dict[str, Any], report: Any, together: Any, **_: Any) -> None:
        confirmed = {"terms": Terms(**terms), "report": report, "together": together}
        self.grants[grant] = replace(self.grants[grant], **confirmed)

    def _take_revoke(self, time: str, grant: int, reason: str, leaks: bool, **_: Any) -> None:
        self.grants[grant] = replace(self.grants[grant], revoked=Revocation(reason, time, leaks))

    def _take_release(self, grant: int, frames: int, epsilon: float = 0.0, **_: Any) -> None:
        if grant not in self.grants or type(frames) is not int or frames < 0 or not 0 <= epsilon < math.inf:
            raise ValueError(f"a release of {frames} frames and epsilon {epsilon} through grant {grant}")
        self.frames[grant] += frames
        self.epsilons[grant] += epsilon

    def _take_verifier(self, **_: Any) -> None:
        self.verifiers += 1  # grants name their own


_LAST, _ROWS, _SYMBOLS = "blindsight/last-release.1", "blindsight/row-prints.1", "blindsight/permanent-symbols.1"


class SiftStore:
    """Sifts and last releases, in a folder or (without one) for this process only."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._sifts: dict[str, Sift] = {}
        self._last: dict[int, NDArray[Any]] = {}
        self._prints: dict[str, RowPrints] = {}
        self._symbols: dict[str, list[PermanentSymbol]] = {}

    def keep(self, sift: Sift) -> None:
        if sift.digest in self._sifts:
            return
        if self._folder is not None:
            save_sift(sift, self._sift_path(self._folder, sift.digest))
        self._sifts[sift.digest] = sift

    def sift(self, digest: str) -> Sift:
        if digest not in self._sifts:
            if self._folder is None:
                raise CorruptFileError(f"the sift {digest} was never kept.")
            path = self._sift_path(self._folder, digest)
            found = load_sift(path)
            if found.digest != digest:
                raise CorruptFileError(f"{path} holds another sift than its name says.")
            self._sifts[digest] = found
        return self._sifts[digest]

    def keep_last(self, grant: int, release: NDArray[Any]) -> None:
        """Keep what a grant released last: the app has it already, and will get nothing else."""
        if self._folder is not None:
            write_arrays(self._last_path(self._folder, grant), _LAST, {}, {"release": release}, private=True)
        self._last[grant] = release

    def last(self, grant: int) -> NDArray[Any] | None:
        if grant not in self._last and self._folder is not None:
            path = self._last_path(self._folder, grant)
            if path.exists():
                self._last[grant] = np.asarray(read_arrays(path, _LAST)[1]["release"])
        return self._last.get(grant)

    def keep_symbol(self, one: PermanentSymbol) -> None:
        known = [*self.symbols(one.person), one]
        if self._folder is not None:
            document = {"symbols": [asdict(symbol) for symbol in known]}
            write_arrays(self._symbols_path(self._folder, one.person), _SYMBOLS, document, {}, private=True)
        self._symbols[one.person] = known

    def symbols(self, person: str) -> list[PermanentSymbol]:
        """In the order in which they were drawn; a file of an older version, which lacks their frames, is refused."""
        if self._folder is None or not (path := self._symbols_path(self._folder, person)).exists():
            return self._symbols.get(person, [])
        try:
            return [PermanentSymbol(**one) for one in read_arrays(path, _SYMBOLS)[0]["symbols"]]
        except (KeyError, TypeError, InputError) as error:
            raise CorruptFileError(
                f"{path} holds no usable permanent symbols, or those of an older version ({error}). They stay released "
                "and are not drawn again; `Platform.forget` deletes all that was kept of the person."
            ) from None

    def forget(self, person: str, grants: Iterable[int]) -> None:
        """Delete what was released about a person: last releases of grants, and permanent symbols."""
        self._symbols.pop(person, None)
        gone = [] if self._folder is None else [self._symbols_path(self._folder, person)]
        for grant in grants:
            self._last.pop(grant, None)
            gone += [] if self._folder is None else [self._last_path(self._folder, grant)]
        for path in gone:
            path.unlink(missing_ok=True)

    def keep_prints(self, digest: str, prints: RowPrints) -> None:
        if self._folder is not None and not (path := self._folder / "rows" / f"{digest}.npz").exists():
            persons = {} if prints.persons is None else {"persons": prints.persons}
            document = {"pipeline": prints.pipeline}
            write_arrays(path, _ROWS, document, {"rows": prints.rows, **persons}, private=True)
        self._prints[digest] = prints

    def related(self, digest: str) -> set[str]:
        """Digests of all verification sets with rows or persons in common with this one, itself included."""
        for path in [] if self._folder is None else (self._folder / "rows").glob("*.npz"):
            if path.stem not in self._prints:
                document, arrays = read_arrays(path, _ROWS)
                prints = RowPrints(arrays["rows"], arrays.get("persons"), str(document["pipeline"]))
                self._prints[path.stem] = prints
        mine = self._prints[digest]
        return {other for other, prints in self._prints.items() if other == digest or prints.meets(mine)}

    @staticmethod
    def _sift_path(folder: Path, digest: str) -> Path:
        return folder / "sifts" / f"{digest}.npz"

    @staticmethod
    def _last_path(folder: Path, grant: int) -> Path:
        return folder / "last" / f"{grant}.npz"

    @staticmethod
    def _symbols_path(folder: Path, person: str) -> Path:
        return folder / "permanent" / f"{hashlib.sha256(person.encode()).hexdigest()}.npz"
