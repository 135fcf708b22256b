"""How sifts are judged: by what the best classifiers and attackers read off them, on people nobody has learned from.

Numbers are attacked; symbols are counted. Against a finite alphabet a table of symbols is the best attacker there is,
so nobody else is asked, and `certificate` bounds all others.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from benchmarks.methods.sifting import Released
from benchmarks.suites.sift_matrix.pictures import People
from blindsight.errors import InputError
from blindsight.metrics import pub_loss
from blindsight.sift.analysis import entanglement
from blindsight.sift.attackers import LOOKUP, PAPER, Attacker
from blindsight.sift.labels import verification_halves
from blindsight.sift.publicclassifier import RAW_CLASSIFIERS, best_raw_accuracy
from blindsight.sift.verdict import AttackResult, Verification
from blindsight.sift.verify import Verifier

THRESHOLD, CONFIDENCE = 0.10, 0.95
_PUBLISHED = {attacker.name for attacker in PAPER}


@dataclass(eq=False)
class Judge:
    """Attackers of private attributes and readers of public ones, on the judged people.

    PubLoss is measured from the best raw classifier, which like the readers learns from half of them. A `strict` judge
    also measures it from one that learns from everybody but the people it is tested on, the developer's included.
    """

    people: People
    attackers: Sequence[Attacker]
    readers: Sequence[Attacker]
    strict: bool = False
    entangled: bool = False
    """Whether to add correlation and overlap of the attributes."""
    _raw: dict[str, dict[str, float]] = field(default_factory=dict)

    def __call__(self, answer: Released) -> dict[str, float]:
        """Return the figures of every answer, "policy/figure"; policies without an answer have none."""
        scores: dict[str, float] = {}
        for name, released in answer.items():
            public, private = name.partition(":")[0].split("/")
            if len(released) != len(self._judged):
                raise InputError(f"{name}: {len(self._judged)} people are judged; got {len(released)} rows.")
            figures = self._costs(public, released) | self._leaks(private, released)
            scores |= {f"{name}/{figure}": value for figure, value in figures.items()}
        return scores | (self._entanglement() if self.entangled else {})

    @property
    def _judged(self) -> NDArray[np.float32]:
        return self.people.features[self.people.developers :]

    def _labels(self, name: str) -> NDArray[np.int8]:
        return self.people.labels[name][self.people.developers :]

    def _leaks(self, private: str, released: NDArray[np.generic]) -> dict[str, float]:
        found = self._read(private, released, self.attackers)
        figures = {"priv_loss": found.priv_loss, "bound": found.bound, **_paper_leaks(found.results)}
        return figures | ({"certified": found.bound} if found.certified else {})

    def _costs(self, public: str, released: NDArray[np.generic]) -> dict[str, float]:
        found, raw = self._read(public, released, self.readers), self.raw(public)
        figures = {"pub_loss": pub_loss(raw["balanced"], found.best.balanced_accuracy)}
        if "strict" in raw:
            figures["strict_pub_loss"] = pub_loss(raw["strict"], found.best.balanced_accuracy)
        published = [result for result in found.results if result.attacker in _PUBLISHED]
        if published:
            figures["paper/pub_loss"] = raw["balanced"] - max(r.balanced_accuracy for r in published)
            figures["paper/pub_loss_eq5"] = raw["eq5"] - max(r.mean_precision for r in published)
        return figures

    def raw(self, name: str) -> dict[str, float]:
        """Return how well an attribute is read off raw features, by every measure; measured once."""
        if name not in self._raw:
            results = self._read(name, self._judged, RAW_CLASSIFIERS).results
            balanced, precision = (max(getattr(r, m) for r in results) for m in ("balanced_accuracy", "mean_precision"))
            more = {"strict": self._strict_raw(name)} if self.strict else {}
            self._raw[name] = {"balanced": balanced, "eq5": precision, **more}
        return self._raw[name]

    def _strict_raw(self, name: str) -> float:
        train, test = verification_halves({name: self._labels(name)}, None, 0)
        features, labels, first = self.people.features, self.people.labels[name], self.people.developers
        learn, judged = np.concatenate([np.arange(first), first + train]), first + test
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            best = best_raw_accuracy(features[learn], labels[learn], features[judged], labels[judged])
        return best.accuracy

    def _read(self, name: str, released: NDArray[np.generic], attackers: Sequence[Attacker]) -> Verification:
        counted = released.dtype.kind in "iu"
        verifier = Verifier(
            (LOOKUP,) if counted else attackers, THRESHOLD, CONFIDENCE, stop_early=False, cross_fitted=0
        )
        return verifier.verify(released, {name: self._labels(name)}, certified=counted)

    def _entanglement(self) -> dict[str, float]:
        names = tuple(self.people.labels)
        found = entanglement(self.people.features, self.people.labels, names, scale=self.people.scale)
        return {
            f"{public}/{private}/{figure}": float(matrix[i, j])
            for figure, matrix in (("correlation", found.correlation), ("overlap", found.overlap))
            for i, public in enumerate(names)
            for j, private in enumerate(names)
            if i != j
        }


def _paper_leaks(results: Sequence[AttackResult]) -> dict[str, float]:
    """Return PrivLoss by the paper's attackers, by balanced accuracy and by Eq. 5, where they were asked."""
    published = [result for result in results if result.attacker in _PUBLISHED]
    if not published:
        return {}
    return {
        "paper/priv_loss": max(result.priv_loss for result in published),
        "paper/priv_loss_eq5": max(result.mean_precision for result in published) - 0.5,
    }


def by_policy(score: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the figures of every answer, by its policy "public/private" and, where it has one, its kind."""
    found: dict[str, dict[str, float]] = {}
    for name, value in score.items():
        public, private, figure = name.split("/", 2)
        found.setdefault(f"{public}/{private}", {})[figure] = value
    return found
