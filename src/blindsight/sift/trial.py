"""Policies on trial: sifts are made from one part of the pictures, attacked and measured on the other.

Enev et al., "SensorSift", ACSAC 2012, section 6.2: PubLoss is what the best classifier loses on a public attribute when
it gets the sift instead of raw features, PrivLoss what the best attacker on a private one gains over guessing. The
paper does not say who fits on what. Here two fifths of the rows are the developer's, who fits the sift; of the rest
classifiers and attackers learn from one half and are judged by the other; where persons are known nobody is on two
sides. Accuracies are balanced.
"""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from blindsight.data.dataset import Dataset
from blindsight.data.features import FeaturePipeline, extract
from blindsight.data.partition import Indices, split
from blindsight.errors import InputError, MissingExtraError
from blindsight.files import AnyPath
from blindsight.metrics import Interval, balanced_accuracy, pub_loss
from blindsight.progress import Progress, silent
from blindsight.sift.attackers import MODERN, RAW_CLASSIFIERS, Attacker, best_raw_accuracy, chosen_attackers
from blindsight.sift.fitted import fingerprint
from blindsight.sift.labels import Labels, label_columns, verification_halves
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import FewerComponentsWarning, SiftLearner
from blindsight.sift.sift import Sift
from blindsight.sift.symbols import SymbolLearner
from blindsight.sift.verdict import Verdict, Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

DEVELOPER = 0.4  # share of the rows that sifts are fitted to

RAW = "raw features"

_FEW = 256  # symbols that are told as such
_QUICK = ("linear SVM, balanced and tuned", "kernel screen, tuned", "gradient boosting, tuned")

QUICK: tuple[Attacker, ...] = tuple({one.name: one for one in MODERN}[name] for name in _QUICK)
"""Three attackers that together read nearly what all read, at a small part of the cost."""

QUICK_VERIFIER = Verifier(QUICK, stop_early=False, cross_fitted=0)
"""Lets every quick attacker have its turn, so that PrivLoss is that of the best."""


@dataclass(frozen=True, eq=False)
class Sifted:
    """What a sift costs and leaks; None is the raw features. Where none could be made, `problem` says why."""

    name: str
    sift: Sift | None = None
    accuracies: Mapping[str, float] = field(default_factory=dict)
    """Balanced accuracy of the best classifier on each public attribute."""
    pub_loss: float = math.nan  # mean over the public attributes, from the best classifier on raw features
    verification: Verification | None = None
    cpu_seconds: float = math.nan  # to make the sift
    problem: str = ""

    @property
    def found(self) -> Verification:
        if self.verification is None:
            raise InputError(f"{self.name} has no sift: {self.problem}")
        return self.verification

    @property
    def told(self) -> float:
        return float(np.mean(list(self.accuracies.values())))

    @property
    def numbers(self) -> int | None:
        return None if self.sift is None else self.sift.width

    @property
    def alphabet(self) -> int | None:
        return None if self.sift is None else self.sift.alphabet

    @property
    def lets_out(self) -> str:
        if self.sift is None:
            return "-" if self.problem else "everything"
        if self.alphabet is not None and self.alphabet <= _FEW:
            return f"one of {self.alphabet} symbols"
        return f"{self.sift.width} number{'s' * (self.sift.width > 1)}"

    @property
    def verdict(self) -> Verdict | None:
        return None if self.verification is None else self.verification.verdict

    @property
    def priv_loss(self) -> float:
        return math.nan if self.verification is None else self.verification.priv_loss

    @property
    def interval(self) -> Interval:
        """Of `priv_loss`; the intervals of all attackers and methods hold together."""
        low, high = (math.nan, math.nan) if self.verification is None else self.verification.best.interval
        return Interval(low - 0.5, high - 0.5)

    @property
    def paper_priv_loss(self) -> float:
        """The most that an attacker gained by the paper's Eq. 5."""
        results = () if self.verification is None else self.verification.results
        return max((result.mean_precision for result in results), default=math.nan) - 0.5

    @property
    def bound(self) -> float:
        """Upper limit of PrivLoss: of every attacker there can be where `certified`, else of those on the list."""
        return math.nan if self.verification is None else self.verification.bound

    @property
    def certified(self) -> bool:
        return self.verification is not None and self.verification.certified

    def to_dict(self) -> dict[str, Any]:
        names = ("numbers", "alphabet", "pub_loss", "priv_loss", "paper_priv_loss", "bound", "certified", "verdict")
        figures = {name: getattr(self, name) for name in (*names, "cpu_seconds", "problem")}
        plain = {key: None if value != value else value for key, value in figures.items()}  # NaN is not itself
        seen = self.verification
        leader = {
            "interval": None if seen is None else list(self.interval),
            "attacker": None if seen is None else seen.best.attacker,
        }
        return {"method": self.name, "accuracies": dict(self.accuracies)} | plain | leader


def best(rows: Iterable[Sifted]) -> Sifted | None:
    """The accepted sift of the lowest PubLoss, of equals the one that lets out least; None if there is none."""
    accepted = [row for row in rows if row.sift is not None and row.verdict == "accept"]
    return min(accepted, key=lambda row: (row.pub_loss, row.alphabet or math.inf, row.numbers), default=None)


def divide_rows(rows: int, persons: ArrayLike | None, random_state: int) -> tuple[Indices, Indices]:
    """The rows that sifts (and features that learn) are made from, and those that they are judged by."""
    shares = (DEVELOPER, 1 - DEVELOPER)
    develop, judge = split(np.zeros(rows), shares, persons=persons, stratify=False, random_state=random_state)
    return develop, judge


def prepare_data(
    dataset: Dataset,
    pipeline: FeaturePipeline,
    *,
    random_state: int = 0,
    cache: AnyPath | None = None,
    progress: Progress = silent,
) -> VerificationSet:
    """Make features of a labelled collection; a pipeline that learns is fitted to the developer's pictures alone."""
    developer, _ = divide_rows(len(dataset), dataset.persons, random_state)
    features = extract(dataset, pipeline, fit_to=developer, cache=cache, progress=progress)
    labels = {name: dataset.attribute(name) for name in dataset.attribute_names}
    return VerificationSet(features, labels, dataset.persons, fingerprint(dataset, pipeline))


class Trial:
    """The rows of `data`, divided once by the `random_state` of `verifier`, on which all sifts are measured."""

    def __init__(self, data: VerificationSet, *, verifier: Verifier = QUICK_VERIFIER) -> None:
        self.data, self.verifier = data, verifier
        self.developer, self.judged = data.divide(DEVELOPER, random_state=verifier.random_state)
        self._raw: dict[str, float] = {}

    def raw(self, names: Iterable[str]) -> dict[str, float]:
        label_columns(self.data.labels, asked := tuple(names))  # unknown names first
        for name in asked:
            if name not in self._raw:
                (train, learned), (test, truth) = self._halves(name)
                rows, seed = self.judged.features, self.verifier.random_state
                with ignoring(ConvergenceWarning):
                    found = best_raw_accuracy(rows[train], learned, rows[test], truth, random_state=seed)
                self._raw[name] = found.accuracy
        return {name: self._raw[name] for name in asked}

    def before(self, private: Iterable[str]) -> Verification:
        """Attack raw features: what an app could guess if nothing were sifted."""
        verifier = replace(self.verifier, attackers=RAW_CLASSIFIERS, stop_early=False)
        return verifier.verify(self.judged.features, self.judged.private(private), persons=self.judged.persons)

    def sides(self, policy: Policy) -> tuple[Labels, Labels]:
        return label_columns(self.developer.labels, policy.public), label_columns(self.developer.labels, policy.private)

    def fit(self, learner: SiftLearner, policy: Policy) -> Sift:
        """Return the sift that a fresh copy of the learner makes from the developer's rows, named by the policy."""
        fresh = copy.deepcopy(learner)
        persons: dict[str, Any] = {"persons": self.developer.persons} if isinstance(fresh, SymbolLearner) else {}
        return self.named(fresh.fit(self.developer.features, *self.sides(policy), **persons).sift_, policy)

    def named(self, sift: Sift, policy: Policy) -> Sift:
        made: Sift = replace(sift, pipeline=self.data.pipeline, name=str(policy))  # type: ignore[type-var]
        return made

    def measure(self, name: str, sift: Sift, policy: Policy, *, progress: Progress = silent) -> Sifted:
        """Return what a sift costs and leaks on the rows that it was not made from."""
        released = sift.apply(self.judged.features)
        accuracies = {public: self._accuracy(released, public) for public in policy.public}
        costs = [pub_loss(raw, accuracies[public]) for public, raw in self.raw(policy.public).items()]
        given, private = (sift, self.judged.features), self.judged.private(policy.private)
        found = self.verifier.verify(given, private, persons=self.judged.persons, progress=progress)
        return Sifted(name, sift, accuracies, float(np.mean(costs)), found)

    def attempt(self, name: str, method: "Method", policy: Policy) -> Sifted:
        """Make a sift and measure it; a method that cannot be used keeps its error sentence."""
        begun = time.process_time()
        try:
            with ignoring(FewerComponentsWarning):  # `Sifted.numbers` tells
                sift = method(self, policy)
            seconds = time.process_time() - begun
            return replace(self.measure(name, sift, policy), cpu_seconds=seconds)
        except (InputError, MissingExtraError) as error:
            return Sifted(name, problem=str(error))

    def _accuracy(self, released: NDArray[Any], name: str) -> float:
        (train, learned), (test, truth) = self._halves(name)
        who = None if self.judged.persons is None else self.judged.persons[train]
        seed = self.verifier.random_state
        with ignoring(ConvergenceWarning):
            return max(
                balanced_accuracy(truth, peer.attack(released[train], learned, released[test], persons=who, seed=seed))
                for peer in chosen_attackers(self.verifier.attackers)
            )

    def _halves(self, name: str) -> Iterator[tuple[Indices, Labels]]:
        """The rows to learn an attribute from and those to be judged by, with labels, where it is known."""
        column = self.judged.labels[name]
        for half in verification_halves({name: column}, self.judged.persons, self.verifier.random_state):
            rows = half[column[half] >= 0]
            yield rows, column[rows]


@contextmanager
def ignoring(warning: type[Warning]) -> Iterator[None]:
    """Keep warnings of this kind from being shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", warning)
        yield


Method = Callable[[Trial, Policy], Sift]


def by_learner(learner: SiftLearner) -> Method:
    """Return the method that fits a copy of this learner."""
    return lambda trial, policy: trial.fit(learner, policy)
