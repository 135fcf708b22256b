"""Where attacks are made: attackers learn from one half of the rows and are judged by the other, one or several at a
time, always with the same result."""

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from blindsight.sift.attackers import Attacker
from blindsight.sift.evidence import AttackResult, Confidence, measure
from blindsight.sift.labels import Labels
from blindsight.sift.splits import Indices


@dataclass(frozen=True)
class Attack:
    """One attacker against one private attribute."""

    attribute: str
    attacker: Attacker


@dataclass(frozen=True, eq=False)
class Bench:
    """Released numbers (n, K), private labels and persons of the same rows, the two halves, and how sure to be."""

    released: NDArray[Any]
    labels: Mapping[str, Labels]
    persons: NDArray[Any] | None
    halves: tuple[Indices, Indices]
    sure: Confidence
    seed: int
    learn: tuple[NDArray[Any], Mapping[str, Labels]] | None = None
    """Further released numbers and labels that attackers learn from, of persons who are on no other row."""

    def result(self, attack: Attack) -> AttackResult:
        """Let one attacker learn and guess, and judge it; rows whose label nobody knows are left out."""
        column, attacker = self.labels[attack.attribute], attack.attacker
        train, test = (half[column[half] >= 0] for half in self.halves)
        learners, judged = (None if self.persons is None else self.persons[half] for half in (train, test))
        numbers, begun = self.released, perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # who did not converge may still guess well
            warnings.filterwarnings("ignore", message="'Threading' parallel backend")  # it takes all cores, no harm
            known = (numbers[train], column[train], learners)
            seen, labels, who = known if self.learn is None else self._more(attack.attribute, *known)
            guess = attacker.attack(seen, labels, numbers[test], persons=who, seed=self.seed)
        seconds = perf_counter() - begun
        figures = measure(column[test], guess, judged, self.sure)
        return AttackResult(attack.attribute, attacker.name, attacker.view, attacker.tune, **figures, seconds=seconds)

    def _more(
        self, attribute: str, seen: NDArray[Any], labels: Labels, who: NDArray[Any] | None
    ) -> tuple[NDArray[Any], Labels, NDArray[Any] | None]:
        """Add the further rows, each as a person of its own."""
        assert self.learn is not None
        more, columns = self.learn
        known = columns[attribute] >= 0
        if who is not None:
            who = np.concatenate([np.unique(who, return_inverse=True)[1], len(who) + np.arange(int(known.sum()))])
        return np.concatenate([seen, more[known]]), np.concatenate([labels, columns[attribute][known]]), who


def in_order(
    run: Callable[[Attack], AttackResult], attacks: Sequence[Attack], jobs: int
) -> Generator[AttackResult, None, None]:
    """Yield the results in the order of the attacks, `jobs` of them under way at a time; closing drops the rest."""
    if jobs == 1:
        yield from map(run, attacks)
        return
    results = Parallel(n_jobs=jobs, return_as="generator", pre_dispatch=jobs)(delayed(run)(one) for one in attacks)
    try:
        for result in results:  # noqa: UP028 ("yield from" would pass the closing on, before the block below)
            yield result
    finally:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"\d+ tasks")  # that work was dropped is what closing is for
            results.close()
