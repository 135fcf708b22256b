"""What labels say about a policy before any training: can it be verified at all, and can any sift satisfy it?

A private attribute can be protected only as far as its leak can be measured, so each needs labels of both kinds and
enough of them. A pair of attributes that go together has a ceiling (`floor`): no sift, however clever, gives an app
more of the public attribute without giving an attacker more than the cap of the private one. Overlap and cosine here
are those of the labels; how far two attributes share image regions (the paper's Eq. 6) needs features.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import UNKNOWN
from blindsight.errors import InputError, UnknownNameError
from blindsight.sift.floor import check_leak_cap, public_ceiling, public_ceiling_of_many
from blindsight.sift.labels import Labelled, Labels, known_names, label_columns


@dataclass(frozen=True)
class AttributeCheck:
    """How many samples have an attribute, how many do not, and of how many nobody knows."""

    name: str
    role: str
    positives: int
    negatives: int
    missing: int
    problem: str = ""
    """Why nothing can be learned or verified with it, in a sentence; "" if something can."""


@dataclass(frozen=True)
class PairCheck:
    """How a public and a private attribute go together, and what that costs at best."""

    public: str
    private: str
    samples: int
    """Rows on which both are known."""
    correlation: float
    """Pearson's, of the 0/1 labels (phi)."""
    cosine: float
    """Of the 0/1 labels: shared positives over the geometric mean of the positives."""
    overlap: float
    """Shared positives over the positives of either."""
    ceiling: float
    """Best public balanced accuracy of any sift under the leak cap."""
    warning: str = ""


@dataclass(frozen=True)
class PolicyReport:
    """What `Policy.check` found."""

    leak_cap: float
    attributes: tuple[AttributeCheck, ...]
    pairs: tuple[PairCheck, ...]
    ceilings: dict[str, float]
    """Per public attribute, the best balanced accuracy under the caps of all private attributes at once."""
    warnings: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences for whatever makes the policy impossible to fit or to verify with these labels."""
        return tuple(attribute.problem for attribute in self.attributes if attribute.problem)

    @property
    def hopeless(self) -> bool:
        """Whether some public attribute cannot be of use to the app, whatever the sift."""
        return bool(self.warnings)

    def require_usable(self) -> None:
        """Raise the first problem, if there is one."""
        for problem in self.problems:
            raise InputError(problem)


def check_policy(
    public: tuple[str, ...],
    private: tuple[str, ...],
    labelled: Labelled,
    *,
    leak_cap: float,
    fewest: int,
    useful: float,
) -> PolicyReport:
    """Look at every attribute, every pair, and every public attribute against all private ones."""
    check_leak_cap(leak_cap)
    _check_known(private, labelled)
    columns = label_columns(labelled, public + private)
    roles = ["public"] * len(public) + ["private"] * len(private)
    attributes = tuple(
        _check_attribute(name, role, column, fewest)
        for name, role, column in zip(public + private, roles, columns.T, strict=True)
    )
    varied = {check.name: columns[:, i] for i, check in enumerate(attributes) if check.positives and check.negatives}
    seen, hidden = [a for a in public if a in varied], [b for b in private if b in varied]
    pairs = tuple(
        pair
        for a in seen
        for b in hidden
        if (pair := _check_pair((a, varied[a]), (b, varied[b]), leak_cap, useful)) is not None
    )
    ceilings = {a: _joint_ceiling(varied[a], [varied[b] for b in hidden], leak_cap) for a in seen}
    warnings = [pair.warning for pair in pairs if pair.warning]
    blamed = {pair.public for pair in pairs if pair.warning}
    for name, ceiling in ceilings.items():
        if ceiling < useful and name not in blamed:
            warnings.append(_hopeless(name, " and ".join(hidden), ceiling, leak_cap))
    return PolicyReport(leak_cap, attributes, pairs, ceilings, tuple(warnings))


def _check_known(private: tuple[str, ...], labelled: Labelled) -> None:
    for name in private:
        if name not in known_names(labelled):
            error = UnknownNameError("private attribute", name, known_names(labelled))
            reason = "Without labels there is nothing to measure its leak against, so it cannot be protected."
            error.args = (f"{error} {reason}",)
            raise error


def _check_attribute(name: str, role: str, column: Labels, fewest: int) -> AttributeCheck:
    positives, negatives = int((column == 1).sum()), int((column == 0).sum())
    counts = (positives, negatives, int((column == UNKNOWN).sum()))
    problem, few = "", "positive" if positives <= negatives else "negative"
    if not positives + negatives:
        problem = f"{name!r} has no labels: " + (
            "there is nothing to measure its leak against, so it cannot be protected."
            if role == "private"
            else "there is nothing to fit a sift to."
        )
    elif not min(positives, negatives):
        value = "yes" if positives else "no"
        problem = f"{name!r} is {value} for every labelled sample: nobody can learn it from pictures, or test who did."
    elif min(positives, negatives) < fewest:
        problem = (
            f"{name!r} has only {min(positives, negatives)} {few} samples where {fewest} are needed: split into "
            "training and test, no attacker can be tested on it and no verdict would mean anything. Label more."
        )
    return AttributeCheck(name, role, *counts, problem)


def _check_pair(public: tuple[str, Labels], private: tuple[str, Labels], cap: float, useful: float) -> PairCheck | None:
    """Return how two attributes go together on the rows where both are known; None where one is constant there."""
    both = (public[1] != UNKNOWN) & (private[1] != UNKNOWN)
    a, b = public[1][both].astype(np.int64), private[1][both].astype(np.int64)
    if not a.size or not np.ptp(a) or not np.ptp(b):
        return None
    table: NDArray[np.int64] = np.bincount(2 * a + b, minlength=4).reshape(2, 2)
    shared = int(table[1, 1])
    ceiling = public_ceiling(table, cap)
    return PairCheck(
        public=public[0],
        private=private[0],
        samples=int(a.size),
        correlation=float(np.corrcoef(a, b)[0, 1]),
        cosine=shared / float(np.sqrt(a.sum() * b.sum())),
        overlap=shared / int(np.maximum(a, b).sum()),
        ceiling=ceiling,
        warning=_hopeless(public[0], private[0], ceiling, cap) if ceiling < useful else "",
    )


def _joint_ceiling(public: Labels, private: list[Labels], cap: float) -> float:
    """Return the ceiling under all caps, on the rows where every label is known; 1 where those rows say nothing."""
    columns = np.column_stack([public, *private])
    known = columns[(columns != UNKNOWN).all(axis=1)]
    if not private or not len(known) or not (np.ptp(known, axis=0) == 1).all():
        return 1.0
    return public_ceiling_of_many(known[:, 0], known[:, 1:], cap)


def _hopeless(public: str, private: str, ceiling: float, cap: float) -> str:
    return (
        f"hopeless: with {private} kept within {cap:g} of guessing, no sift of any kind lets an app recognise {public} "
        f"with a balanced accuracy above {ceiling:.2f} (0.5 is blind), because the labels go together. "
        "Raise the cap, or drop one of them."
    )
