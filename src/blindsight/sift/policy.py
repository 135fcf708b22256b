"""Policies: what must stay private and what an app may learn; bad ones are found before anything is trained.

Enev et al., "SensorSift", ACSAC 2012, section 3: the person chooses private attributes among those the platform has
labels for, an app asks for public ones, one or several of each.

| paper | here |
| --- | --- |
| Y+, public attributes | `Policy.public` |
| Y-, private attributes | `Policy.private` |
| simple policy, complex policy | one pair, several pairs of `Policy.pairs` |

A policy reads and writes as three lines of YAML, or the same in JSON:

    name: smile-camera
    public: [smiling]
    private: [male, young]

*The policy bound*: what no sift can beat, known from a 2 x 2 table of labels. An app turns any release into a guess u
of the public attribute, and u tells about the private one because the two attributes go together. Let D =
P(y+ | y- = 1) - P(y+ | y- = 0) and pi+, pi- be the prevalences. A guess that is always right leaks D; every bit of leak
below |D| must be paid for with wrong guesses, at the cheaper of two prices. Under a leak cap tau (best attacker's
balanced accuracy <= 1/2 + tau)

    public balanced accuracy <= 1 - max(0, |D| - 2 tau) r / 2,
    r = min(pi- / pi+, (1 - pi-) / (1 - pi+)) if D > 0, else min((1 - pi-) / pi+, pi- / (1 - pi+)),

and the bound is met by a sift that knows both labels, so it cannot be improved. Proof: only the guess u matters, since
an attacker who sees more than u leaks more. With a_ij = P(u = 1 | y+ = i, y- = j) both accuracy and leak are linear in
a. Start at u = y+ with D > 0. Lowering a_11 by e costs e p_11 / (2 pi+) and lowers the leak by e p_11 / pi-; raising
a_00 costs e p_00 / (2 (1 - pi+)) and lowers the leak by e p_00 / (1 - pi-); the other two cells raise it. Each of the
two reaches leak 0 alone, so the cheaper price applies throughout. D < 0 is the same with y- renamed. Several private
attributes at once have no such formula: `public_ceiling_of_many` solves the linear program.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
import yaml
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from blindsight.data.dataset import UNKNOWN
from blindsight.errors import InputError
from blindsight.sift.labels import Labelled, Labels, label_columns, private_labels


def public_ceiling(table: ArrayLike, leak_cap: float) -> float:
    """Return the best balanced accuracy on the public attribute that any sift can reach under the leak cap.

    `table[i][j]` counts (or is the share of) the samples with public attribute i and private attribute j.

    >>> public_ceiling([[25, 25], [25, 25]], leak_cap=0.0)  # independent attributes: nothing to pay
    1.0
    >>> round(public_ceiling([[40, 10], [10, 40]], leak_cap=0.1), 3)  # D = .6, of which .4 must go
    0.8
    >>> round(public_ceiling([[50, 0], [0, 50]], leak_cap=0.1), 3)  # one and the same: what is hidden is lost
    0.6
    """
    shares = _check_table(table)
    cap = check_leak_cap(leak_cap)
    public, private = shares[1].sum(), shares[:, 1].sum()  # pi+, pi-
    difference = shares[1, 1] / private - shares[1, 0] / (1 - private)  # D
    if difference < 0:
        private = 1 - private
    price = min(private / public, (1 - private) / (1 - public))  # r
    return float(1 - max(0.0, abs(difference) - 2 * cap) * price / 2)


def public_ceiling_of_many(public: ArrayLike, private: ArrayLike, leak_cap: float) -> float:
    """Return the ceiling when each column of `private` (n, m) is capped at once; `public` and `private` are 0 or 1. It
    is the linear program over all channels P(u = 1 | y+, y-_1 ... y-_m), with the shares observed.
    """
    cap = check_leak_cap(leak_cap)
    labels = np.column_stack([np.asarray(public), np.asarray(private)])
    cells, counts = np.unique(labels, axis=0, return_counts=True)
    if not np.isin(cells, (0, 1)).all() or not (np.ptp(cells, axis=0) == 1).all():
        raise InputError("the ceiling needs labels 0 and 1, and both of them for every attribute.")
    gaps = np.stack([_class_gap(column, counts) for column in cells.T])  # gaps @ a = P(u|y=1) - P(u|y=0)
    # an attacker may read u either way, so the gap of each private attribute is bounded on both sides
    bounds = np.full(2 * (len(gaps) - 1), 2 * cap)
    best = linprog(-gaps[0], A_ub=np.vstack([gaps[1:], -gaps[1:]]), b_ub=bounds, bounds=(0, 1))
    assert best.success, best.message  # a constant guess is always feasible
    return float((1 - best.fun) / 2)


def check_leak_cap(leak_cap: float) -> float:
    if not 0 <= leak_cap <= 0.5:
        raise InputError(f"a leak cap must lie in [0, 0.5], the best attacker's lead over guessing; got {leak_cap}.")
    return float(leak_cap)


def _class_gap(column: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights that turn P(u = 1 | cell) into P(u = 1 | attribute) - P(u = 1 | no attribute)."""
    yes, no = counts * (column == 1), counts * (column == 0)
    return np.asarray(yes / yes.sum() - no / no.sum())


def _check_table(table: ArrayLike) -> NDArray[np.float64]:
    shares = np.asarray(table, dtype=np.float64)
    if shares.shape != (2, 2) or not np.isfinite(shares).all() or (shares < 0).any():
        raise InputError("the table must be 2 x 2, counts or shares of public (rows) by private (columns).")
    if (shares.sum(axis=0) == 0).any() or (shares.sum(axis=1) == 0).any():
        raise InputError("an attribute is constant in the table; there is nothing to learn or to leak.")
    return np.asarray(shares / shares.sum())


@dataclass(frozen=True)
class AttributeCheck:
    """Counts of samples with an attribute, without it, and unknown."""

    name: str
    role: str
    positives: int
    negatives: int
    missing: int
    problem: str = ""


@dataclass(frozen=True)
class PairCheck:
    """How a public and a private attribute go together, and what that costs at best."""

    public: str
    private: str
    samples: int
    correlation: float  # Pearson's, of the 0/1 labels (phi)
    cosine: float  # of the 0/1 labels: shared positives over the geometric mean of the positives
    overlap: float  # shared positives over the positives of either
    ceiling: float  # best public balanced accuracy of any sift under the leak cap
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
        return tuple(attribute.problem for attribute in self.attributes if attribute.problem)

    @property
    def hopeless(self) -> bool:
        """Whether some public attribute cannot be of use to the app, whatever the sift."""
        return bool(self.warnings)

    def require_usable(self) -> None:
        for problem in self.problems:
            raise InputError(problem)


def _check_attribute(name: str, role: str, column: Labels, fewest: int) -> AttributeCheck:
    positives, negatives, missing = (int((column == value).sum()) for value in (1, 0, UNKNOWN))
    less, problem = min(positives, negatives), ""
    if not positives + negatives:
        problem = f"{name!r} has no labels: " + (
            "there is nothing to measure its leak against, so it cannot be protected."
            if role == "private"
            else "there is nothing to fit a sift to."
        )
    elif not less:
        value = "yes" if positives else "no"
        problem = f"{name!r} is {value} for every labelled sample: nobody can learn it from pictures, or test who did."
    elif less < fewest:
        few = "positive" if positives <= negatives else "negative"
        problem = (
            f"{name!r} has only {less} {few} samples where {fewest} are needed: split into training and test, no "
            "attacker can be tested on it and no verdict would mean anything. Label more."
        )
    return AttributeCheck(name, role, positives, negatives, missing, problem)


def _check_pair(names: tuple[str, str], public: Labels, private: Labels, cap: float, useful: float) -> PairCheck | None:
    """None where an attribute is constant on the rows where both are known."""
    both = (public != UNKNOWN) & (private != UNKNOWN)
    a, b = public[both].astype(np.int64), private[both].astype(np.int64)
    if not a.size or not np.ptp(a) or not np.ptp(b):
        return None
    table: NDArray[np.int64] = np.bincount(2 * a + b, minlength=4).reshape(2, 2)
    shared, ceiling = int(table[1, 1]), public_ceiling(table, cap)
    return PairCheck(
        *names,
        samples=int(a.size),
        correlation=float(np.corrcoef(a, b)[0, 1]),
        cosine=shared / float(np.sqrt(a.sum() * b.sum())),
        overlap=shared / int(np.maximum(a, b).sum()),
        ceiling=ceiling,
        warning=_hopeless(*names, ceiling, cap) if ceiling < useful else "",
    )


def _joint_ceiling(public: Labels, private: list[Labels], cap: float) -> float:
    """The ceiling under all caps, on the rows where every label is known; 1 where those rows say nothing."""
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


@dataclass(frozen=True)
class Policy:
    """Public and private attributes; several of each make a complex policy.

    >>> Policy(public=("smiling",), private=("male", "young")).pairs
    (('smiling', 'male'), ('smiling', 'young'))
    """

    public: tuple[str, ...]
    private: tuple[str, ...]
    name: str = ""

    def __post_init__(self) -> None:
        for role in ("public", "private"):
            object.__setattr__(self, role, _names(getattr(self, role), role))
        if not isinstance(self.name, str) or not self.name.isprintable():
            raise InputError(f"the name of a policy is one line of text; got {self.name!r}. Put it in quotes.")
        both = sorted(set(self.public) & set(self.private))
        if both:
            raise InputError(
                f"{both[0]!r} is both public and private: whatever hides it from an attacker hides it from the app. "
                "Drop it from one side."
            )

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(product(self.public, self.private))

    def __str__(self) -> str:
        return f"{' + '.join(self.public)} without {' + '.join(self.private)}"

    def check(self, labels: Labelled, *, leak_cap: float = 0.1, fewest: int = 20, useful: float = 0.75) -> PolicyReport:
        """Say what the labels of a dataset (or a mapping from names to columns) make of this policy, before training.

        `leak_cap` is the lead over guessing that verification will allow. Attributes with fewer than `fewest` samples
        on either side cannot be tested; a pair is hopeless where no sift can reach balanced accuracy `useful`. Overlap
        and cosine are those of the labels; how far two attributes share image regions (Eq. 6) needs features.
        """
        check_leak_cap(leak_cap)
        private_labels(labels, self.private)
        names, columns = self.public + self.private, label_columns(labels, self.public + self.private).T
        roles = ["public"] * len(self.public) + ["private"] * len(self.private)
        attributes = tuple(_check_attribute(*given, fewest) for given in zip(names, roles, columns, strict=True))
        varied = {
            one.name: column for one, column in zip(attributes, columns, strict=True) if one.positives and one.negatives
        }
        seen, hidden = ([name for name in side if name in varied] for side in (self.public, self.private))
        found = (_check_pair((a, b), varied[a], varied[b], leak_cap, useful) for a, b in product(seen, hidden))
        pairs = tuple(pair for pair in found if pair is not None)
        ceilings = {a: _joint_ceiling(varied[a], [varied[b] for b in hidden], leak_cap) for a in seen}
        warnings = [pair.warning for pair in pairs if pair.warning]
        blamed = {pair.public for pair in pairs if pair.warning}
        for name, ceiling in ceilings.items():
            if ceiling < useful and name not in blamed:
                warnings.append(_hopeless(name, " and ".join(hidden), ceiling, leak_cap))
        return PolicyReport(leak_cap, attributes, pairs, ceilings, tuple(warnings))

    def to_json(self) -> str:
        return json.dumps(self._fields(), ensure_ascii=False, indent=2)

    def to_yaml(self) -> str:
        return yaml.safe_dump(self._fields(), sort_keys=False, allow_unicode=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            return cls._from_fields(json.loads(text))
        except json.JSONDecodeError as error:
            raise InputError(f"the policy is not JSON: {error}.") from None

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Read a policy from YAML; names that YAML takes for something else (yes, no, 1) need quotes."""
        try:
            return cls._from_fields(yaml.safe_load(text))
        except yaml.YAMLError as error:
            raise InputError(f"the policy is not YAML: {' '.join(str(error).split())}.") from None

    def _fields(self) -> dict[str, Any]:
        return {"name": self.name, "public": list(self.public), "private": list(self.private)}

    @classmethod
    def _from_fields(cls, content: Any) -> Self:
        if not isinstance(content, Mapping) or not {"public", "private"} <= set(content):
            raise InputError("a policy has the fields public and private, each with the names of attributes.")
        extra = sorted(map(str, set(content) - {"name", "public", "private"}))
        if extra:
            raise InputError(f"a policy has the fields name, public and private; got {extra[0]!r} as well.")
        return cls(public=content["public"], private=content["private"], name=content.get("name", ""))


def _names(given: Any, role: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else None
    if names is None:
        raise InputError(f"the {role} attributes must be a list of names; got {given!r}.")
    for name in names:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise InputError(f"every {role} attribute must be a name, printable text; got {name!r}. Put it in quotes.")
        if names.count(name) > 1:
            raise InputError(f"{name!r} is named twice among the {role} attributes.")
    if not names:
        raise InputError(f"a policy needs at least one {role} attribute.")
    return names
