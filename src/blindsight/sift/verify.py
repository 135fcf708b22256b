"""Verification: the platform attacks a sift with everything it has and decides whether it may be released.

*What a verdict means.* `accept` says that no attacker on the list reads a private attribute better than the threshold
allows, with the stated confidence; nothing about attackers off the list. *Certified mode*, for sifts with a small
alphabet, drops the list: the bound holds for every attacker there can be (`certificate`), and with several private
attributes for every question about all of them together. Without a certificate attackers are also set on whether two
private attributes differ, and on who is in one cell of their table. Enev et al., "SensorSift", ACSAC 2012, section 3:

| paper | here |
| --- | --- |
| DB_verify | the rows given to `verify`, which nobody may have fitted a sift on |
| ML, five classifiers | `attackers="paper"` |
| safety threshold, "10% better than chance" | `threshold=0.10`, of balanced accuracy above 1/2 |
| 50/50 split | `verification_halves`, by persons where they are known |

The published verifier can be fooled by a sift that is made to (`cheats`): run it on a sift that went through `harden`,
or on symbols with a certificate. Each verification errs with probability 1 - confidence; an app that may try as often
as it likes will get through in the end, so give each attempt its `share` of the error (`adaptive`), as `Platform` does,
or draw new rows.

Attackers learn from one half of the rows, and from development rows, and the other half judges them: bounds are exact.
What would be accepted that way is attacked once more by the attackers that read most, *cross-fitted*: each of five
parts is guessed by an attacker that learned from all other rows. Those attackers share rows, so their limits are
approximate (Bayle, Bayle, Janson & Mackey, NeurIPS 2020): they can only take an acceptance back, and prove no leak.
This is skipped where the learning curve says that more rows teach next to nothing.
"""

import hashlib
import math
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from time import perf_counter
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from blindsight.data.partition import split
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.sift.attackers import (
    LOOKUP,
    Attacker,
    PublicClassifier,
    best_raw_accuracy,
    chosen_attackers,
    engine,
    train_public_classifier,
)
from blindsight.sift.certificate import ROWS_PER_SYMBOL, SUREST, Certificate, certify, certify_joint, fewest_rows
from blindsight.sift.labels import (
    Indices,
    Labels,
    check_labels,
    check_persons,
    check_private,
    check_released,
    enough,
    joint_questions,
    verification_halves,
)
from blindsight.sift.sift import Features, Sift, natural_units
from blindsight.sift.verdict import (
    ROWS_PER_NUMBER,
    AttackResult,
    Confidence,
    Ending,
    Setting,
    Verification,
    features_of,
    measure,
    supported_width,
    with_all_rows,
)
from blindsight.validation import check_shape

FOLDS = 5
_TAUGHT = 0.002  # by the learning curve: what more rows must be able to add for cross-fitting to be worth its time


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
    natural: NDArray[Any] | None = None
    """(K, k): from released numbers to those in units of the features, for attackers of that view."""

    def result(self, attack: Attack) -> AttackResult:
        """Rows of unknown label are left out."""
        return self._judged(attack, [self.halves], folds=1)

    def cross_fitted(self, attack: Attack) -> AttackResult:
        column = self.labels[attack.attribute]
        parts = split(column, (1 / FOLDS,) * FOLDS, persons=self.persons, random_state=self.seed)
        rows = np.arange(len(column))
        return self._judged(attack, [(np.setdiff1d(rows, part), part) for part in parts], folds=FOLDS)

    def _judged(self, attack: Attack, turns: Sequence[tuple[Indices, Indices]], folds: int) -> AttackResult:
        column, attacker, begun = self.labels[attack.attribute], attack.attacker, perf_counter()
        known = [tuple(rows[column[rows] >= 0] for rows in turn) for turn in turns]
        told = [self._guess(attack, *turn) for turn in known]
        guess, test = np.concatenate([said for said, _ in told]), np.concatenate([judged for _, judged in known])
        seconds = perf_counter() - begun
        figures = measure(column[test], guess, None if self.persons is None else self.persons[test], self.sure)
        learned = min((counts for _, counts in told), key=sum)
        figures["reach"] = with_all_rows(figures["limit"], features_of(self.released.shape[1]), learned)
        figures |= {"folds": folds, "seconds": seconds}
        name = attacker.name + ", cross-fitted" * (folds > 1)
        return AttackResult(attack.attribute, name, attacker.view, attacker.tune, **figures)

    def _guess(self, attack: Attack, train: Indices, test: Indices) -> tuple[NDArray[np.int8], tuple[int, int]]:
        """The guesses on `test`, and from how many of each class the attacker learned."""
        attacker, numbers = attack.attacker, self.released
        known = (numbers[train], self.labels[attack.attribute][train])
        seen, labels, who = self._more(attack.attribute, *known, None if self.persons is None else self.persons[train])
        shown = numbers[test]
        if attacker.view == "natural" and self.natural is not None:
            seen, shown = seen @ self.natural, shown @ self.natural
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # who did not converge may still guess well
            warnings.filterwarnings("ignore", message="'Threading' parallel backend")  # it takes all cores, no harm
            guess = attacker.attack(seen, labels, shown, persons=who, seed=self.seed)
        return guess, (int((labels == 1).sum()), int((labels == 0).sum()))

    def _more(
        self, attribute: str, seen: NDArray[Any], labels: Labels, who: NDArray[Any] | None
    ) -> tuple[NDArray[Any], Labels, NDArray[Any] | None]:
        """Add the further rows, if there are any, each as a person of its own."""
        if self.learn is None:
            return seen, labels, who
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


Release = ArrayLike | tuple[Sift, Features]


@dataclass(frozen=True)
class Verifier:
    """Attacks sifts and decides. The same rows, attackers and `random_state` give the same verdict, whatever `jobs`.

    `attackers` is "paper", "modern" or a list of `Attacker`, in the order of their turns; with `stop_early` the first
    proof of a leak ends the verification. `jobs` attacks run at once, each in its own process. Limits and certificates
    use the `share` of the error 1 - confidence: the rest is for other tries on the same rows. On each attribute those
    `cross_fitted` attackers that read most are cross-fitted. Of a certified release, a single symbol may make a guess
    surer than `surest` for no more than a share `exempt` of the people in any class; of any other, limits are
    extrapolated to an app with any number of rows, and attackers need `rows_per_number` rows to learn from for each
    number that is let out.
    """

    attackers: Literal["paper", "modern"] | Sequence[Attacker] = "modern"
    threshold: float = 0.10
    confidence: float = 0.95
    jobs: int = 1
    random_state: int = 0
    stop_early: bool = True
    share: float = 1.0
    surest: float = SUREST
    exempt: float = 0.02
    rows_per_number: int = ROWS_PER_NUMBER
    cross_fitted: int = 3

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 0.5:
            raise InputError(f"threshold must be in (0, 0.5), the most an attacker can gain; got {self.threshold}.")
        if not 0.5 < self.confidence < 1:
            raise InputError(f"confidence must be in (0.5, 1); got {self.confidence}. Write 95% as 0.95.")
        if not 0 < self.share <= 1 or not 0 <= self.exempt <= 1 or not 0.5 < self.surest < 1:
            raise InputError(
                "the share of the error must be in (0, 1], exempt in [0, 1], surest in (0.5, 1); "
                f"got {self.share}, {self.exempt} and {self.surest}."
            )
        if self.jobs < 1 or min(self.random_state, self.cross_fitted) < 0:
            raise InputError(
                "jobs must be >= 1, random_state and cross_fitted >= 0; "
                f"got {self.jobs}, {self.random_state} and {self.cross_fitted}."
            )
        chosen_attackers(self.attackers)

    def verify(
        self,
        release: Release,
        private: Mapping[str, ArrayLike],
        *,
        persons: ArrayLike | None = None,
        public: Mapping[str, ArrayLike] | None = None,
        certified: bool | None = None,
        groups: Sequence[Sequence[str]] | None = None,
        learn: tuple[ArrayLike, Mapping[str, ArrayLike]] | None = None,
        natural: NDArray[Any] | None = None,
        progress: Progress = silent,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Verification:
        """Attack what is released of the verification rows: an array (n, K), or a sift and features (sift, X).

        `private` has the labels of every private attribute: 1, 0, or -1 where unknown. With `public` labels the
        included mode's classifiers are trained and their PubLoss measured. `certified` insists on a certificate (or on
        none); by default, sifts with at least 10 rows of either kind per symbol are certified, and attackers judge the
        others. `groups` name the private attributes that are judged together (default: all), by a joint certificate or
        by attackers on what two of them tell together (`joint_questions`). `learn` are released numbers and labels of
        further rows that attackers learn from, of other persons: an app has data of its own. `natural` (K, k) undoes
        what a platform did to the scale of released numbers (of a sift it is known). `cancelled` is asked between
        attacks; what was found until then is kept.
        """
        given = _Given.of(release)
        labels = check_private(private, len(given.released))
        who = check_persons(persons, len(given.released))
        halves = verification_halves(labels, who, self.random_state)
        together = [tuple(labels)] if groups is None else [tuple(group) for group in groups]
        certificates, attackers = self._plan(given, labels, who, certified, together)
        more = None
        if not certificates:
            more = _more(learn, labels, given.released.shape[1], together)
            labels |= {name: one for name, one in joint_questions(labels, together).items() if enough(one)}
        attacks = [Attack(name, attacker) for attacker in attackers for name in labels]
        sure = Confidence(self.confidence, len(attacks), self.share)
        units = given.natural if natural is None else natural
        bench = Bench(given.released, labels, who, halves, sure, self.random_state, more, units)
        results, ending = self._turns(bench.result, attacks, "attacking", progress, cancelled, stop=self.stop_early)
        classifiers = {} if ending == "cancelled" else self._public(given, public or {}, halves)
        learned = len(halves[0]) + (0 if more is None else len(more[0]))
        setting = self._setting(given, labels, who, halves, len(attacks), learned)
        found = Verification(setting, tuple(results), ending, certificates, classifiers)
        if certificates or found.too_wide or ending != "complete" or (self.stop_early and found.verdict != "accept"):
            return found
        most = 0.5 + self.threshold
        if with_all_rows(most, features_of(setting.width), (learned // 2, learned // 2)) - most < _TAUGHT:
            return found
        again, ending = self._cross_fitted(attacks, results, bench, progress, cancelled)
        return replace(found, results=(*results, *again), ending=ending)

    def _cross_fitted(
        self,
        attacks: Sequence[Attack],
        results: Sequence[AttackResult],
        bench: Bench,
        progress: Progress,
        cancelled: Callable[[], bool],
    ) -> tuple[list[AttackResult], Ending]:
        chosen: list[Attack] = []
        for name in bench.labels:
            mine = [(one, attack) for one, attack in zip(results, attacks, strict=True) if attack.attribute == name]
            ranked = sorted(mine, key=lambda pair: -pair[0].limit)[: self.cross_fitted]
            chosen += [attack for _, attack in ranked]
        return self._turns(bench.cross_fitted, chosen, "cross-fitting", progress, cancelled, stop=False)

    def _turns(
        self,
        run: Callable[[Attack], AttackResult],
        attacks: Sequence[Attack],
        doing: str,
        progress: Progress,
        cancelled: Callable[[], bool],
        *,
        stop: bool,
    ) -> tuple[list[AttackResult], Ending]:
        results: list[AttackResult] = []
        turns = in_order(run, attacks, self.jobs)
        try:
            while len(results) < len(attacks):
                progress(doing, len(results), len(attacks))
                if cancelled():
                    return results, "cancelled"
                results.append(next(turns))
                leaks = results[-1].interval.low - 0.5 > self.threshold
                if leaks and stop and len(results) < len(attacks):
                    return results, "sure reject"
        finally:
            turns.close()
            progress(doing, len(results), len(attacks))
        return results, "complete"

    def _plan(
        self,
        given: "_Given",
        labels: Mapping[str, Labels],
        who: NDArray[Any] | None,
        certified: bool | None,
        groups: list[tuple[str, ...]],
    ) -> tuple[tuple[Certificate, ...], tuple[Attacker, ...]]:
        """The certificates acceptance rests on, if any, and the attackers: of few symbols, first a table."""
        attackers = chosen_attackers(self.attackers)
        per_symbol = 0.0 if given.alphabet is None else fewest_rows(labels, groups) / given.alphabet
        if certified is None:  # by counts alone: a second chance after seeing the bound would cost confidence
            certified = per_symbol >= ROWS_PER_SYMBOL
        if not certified:
            return (), (LOOKUP, *attackers) if per_symbol >= ROWS_PER_SYMBOL else attackers
        sure = {"confidence": self.confidence, "surest": self.surest, "share": self.share}
        certificates = tuple(
            certify(given.released, column, attribute=name, persons=who, **sure) for name, column in labels.items()
        )
        for group in groups:  # what tells neither of two attributes may tell whether they differ
            if len(group) > 1:
                columns = {name: labels[name] for name in group}
                certificates += (certify_joint(given.released, columns, persons=who, **sure),)
        return certificates, (LOOKUP,)

    def _public(
        self, given: "_Given", public: Mapping[str, ArrayLike], halves: tuple[Indices, Indices]
    ) -> dict[str, PublicClassifier]:
        train, test = halves
        classifiers = {}
        for name, column in public.items():
            labels, raw = np.asarray(column), None
            if labels.shape != (len(given.released),):
                raise InputError(f"labels of {name!r} must be one value per row; got shape {labels.shape}.")
            classifier = train_public_classifier(given.released[train], labels[train])
            if given.features is not None:
                halves_of_raw = (given.raw(train), labels[train], given.raw(test), labels[test])
                raw = best_raw_accuracy(*halves_of_raw, random_state=self.random_state)
            classifiers[name] = classifier.measured(given.released[test], labels[test], raw)
        return classifiers

    def _setting(
        self,
        given: "_Given",
        labels: Mapping[str, Labels],
        who: NDArray[Any] | None,
        halves: tuple[Indices, Indices],
        planned: int,
        learned: int,
    ) -> Setting:
        return Setting(
            threshold=self.threshold,
            confidence=self.confidence,
            random_state=self.random_state,
            planned=planned,
            rows=len(given.released),
            train=learned,
            test=len(halves[1]),
            persons=None if who is None else len(np.unique(who)),
            width=given.released.shape[1],
            verification_set=given.digest(labels, who),
            sift=given.sift_digest,
            software={"engine": engine(), "scikit-learn": version("scikit-learn")},
            share=self.share,
            exempt=self.exempt,
            rows_per_number=self.rows_per_number,
        )


def rows_in_words(sift: Sift, private: Mapping[str, Labels], verifier: Verifier) -> str:
    """Say before the work begins how many rows there are, and how many a verdict on this sift needs."""
    rows = min(int((column >= 0).sum()) for column in private.values())
    alone = math.ceil(-math.log((1 - verifier.confidence) * verifier.share) / (2 * verifier.threshold**2))
    if sift.alphabet is not None and fewest_rows(private) >= ROWS_PER_SYMBOL * sift.alphabet:
        return f"counting {sift.alphabet} symbols on {rows:,} rows; a release that tells nothing needs about {alone:,}"
    needed = max(2 * verifier.rows_per_number * sift.width, 2 * alone)
    sure = 1 - (1 - verifier.confidence) * verifier.share
    while supported_width(needed // 2, needed // 2, threshold=verifier.threshold, confidence=sure) < sift.width:
        needed = 100 * math.ceil(needed / 90)
    attacks = len(chosen_attackers(verifier.attackers)) * (len(private) + 5 * math.comb(len(private), 2))
    minutes = math.ceil(attacks * (0.5 + 2e-4 * rows) / 60)  # a core verifies 30,000 rows of 5 numbers in a minute
    return (
        f"{attacks} attacks on {sift.width} number(s) of {rows:,} rows, about {minutes} min; {needed:,} or more are "
        "needed to accept"
    )


def _more(
    learn: tuple[ArrayLike, Mapping[str, ArrayLike]] | None,
    labels: Mapping[str, Labels],
    width: int,
    groups: list[tuple[str, ...]],
) -> tuple[NDArray[Any], Mapping[str, Labels]] | None:
    if learn is None:
        return None
    numbers = check_released(learn[0])
    if numbers.shape[1] != width or set(labels) - set(learn[1]):
        raise InputError(f"further rows need {width} released numbers and labels of {sorted(labels)}.")
    columns = {name: check_labels(learn[1][name], len(numbers), f"labels of {name!r}")[:, 0] for name in labels}
    return numbers, columns | joint_questions(columns, groups)


@dataclass(frozen=True, eq=False)
class _Given:
    released: NDArray[Any]
    features: Any = None
    sift_digest: str | None = None
    alphabet: int | None = None
    natural: NDArray[Any] | None = None

    @classmethod
    def of(cls, release: Release) -> "_Given":
        if not isinstance(release, tuple):
            return cls(check_released(release))
        if len(release) != 2 or not isinstance(release[0], Sift):
            raise InputError("give released numbers (n, K), or a pair of a sift and features.")
        sift, features = release[0], check_shape(release[1])
        return cls(check_released(sift.apply(features)), features, sift.digest, sift.alphabet, natural_units(sift))

    def raw(self, rows: Indices) -> NDArray[Any]:
        block = self.features[rows]
        return np.asarray(block.toarray() if sparse.issparse(block) else block)

    def digest(self, labels: Mapping[str, Labels], who: NDArray[Any] | None) -> str:
        rows: Any = self.released if self.features is None else self.features
        arrays = [rows.data, rows.indices, rows.indptr] if sparse.issparse(rows) else [rows]
        arrays += [column for _, column in sorted(labels.items())] + ([] if who is None else [who])
        digest = hashlib.sha256(repr(sorted(labels)).encode())
        for array in arrays:
            digest.update(f"{array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()
