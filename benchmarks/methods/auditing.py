"""Attacks on membership, ours and those of the Adversarial Robustness Toolbox (ART), and bounds on epsilon.

Everybody is given the trained model, the rows in question and how such models are trained; nobody who was a member.
"""

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from blindsight.audit.epsilon import epsilon_bound, gaussian_bound, known
from blindsight.audit.membership import Game, Scorer, loss_threshold, shadow_attacks
from blindsight.audit.onerun import one_run_bound, surest_guesses

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Suspects:
    """Rows of which half were trained on, and the model; larger scores are to mean members."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    model: MLPClassifier


@dataclass(frozen=True)
class Releases:
    """A number that was released in each of many runs with a record and without it, at a delta."""

    inside: Scores
    outside: Scores
    delta: float


def network(X: NDArray[np.float32], y: NDArray[np.int64], seed: int) -> MLPClassifier:
    """Train the model: a perceptron that learns its rows by heart."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MLPClassifier((64,), alpha=0.0, max_iter=150, random_state=seed).fit(X, y)


def _margin(model: MLPClassifier) -> Scorer:
    def fit(X: NDArray[Any], y: NDArray[Any]) -> Scores:
        chances = np.clip(model.predict_proba(X), 1e-12, 1.0)
        own = chances[np.arange(len(X)), y]
        return np.asarray(np.log(own) - np.log(np.clip(1 - own, 1e-12, 1.0)))

    return fit


def _scores(found: Callable[[Game, Scorer], Any], given: Suspects) -> Scores:
    game = Game(given.X, given.y, np.arange(len(given.X)) % 2 == 0)  # marks are of no use to any attack
    roc, scores = found(game, _margin(given.model)).roc, np.empty(len(given.X))
    scores[game.member], scores[~game.member] = roc.members, roc.others
    return scores


def by_loss(given: Suspects, *, seed: int) -> Scores:
    return _scores(lambda game, scorer: loss_threshold(scorer, game, fprs=()), given)


def _shadowed(given: Suspects, shadows: int, seed: int, place: int) -> Scores:
    def train(X: NDArray[Any], y: NDArray[Any], number: int) -> Scorer:
        return _margin(network(X, y, number))

    def found(game: Game, scorer: Scorer) -> Any:
        return shadow_attacks(scorer, game, train, shadows=shadows, fprs=(), random_state=seed)[place]

    return _scores(found, given)


def lira(given: Suspects, *, seed: int, shadows: int) -> Scores:
    return _shadowed(given, shadows, seed, 0)


def rmia(given: Suspects, *, seed: int, shadows: int) -> Scores:
    return _shadowed(given, shadows, seed, 1)


def art_rule(given: Suspects, *, seed: int) -> Scores:
    """Call a row a member where the model is right."""
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBoxRuleBased

    found = MembershipInferenceBlackBoxRuleBased(wrapped(given.model)).infer(given.X, given.y)
    return np.asarray(found, dtype=np.float64).ravel()


def art_black_box(given: Suspects, *, seed: int, shadows: int, kind: str) -> Scores:
    """Learn how members look from ART's own shadow models, trained on the rows under attack."""
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBox, ShadowModels

    target, classes = wrapped(given.model), len(np.unique(given.y))
    made = ShadowModels(target, num_shadow_models=shadows, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        member, other = made.generate_shadow_dataset(given.X, np.eye(classes)[given.y])
    attack = MembershipInferenceBlackBox(target, attack_model_type=kind)
    attack.fit(member[0], member[1], other[0], other[1], member[2], other[2])
    return np.asarray(attack.infer(given.X, given.y, probabilities=True), dtype=np.float64)[:, -1]


def wrapped(model: MLPClassifier) -> Any:
    """Return the model as ART sees it."""
    logging.getLogger("art").setLevel(logging.ERROR)  # it wonders about every model that is yet to be trained
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from art.estimators.classification.scikitlearn import ScikitlearnClassifier
    return ScikitlearnClassifier(model)


def events(given: Releases, *, seed: int) -> float:
    """Bound epsilon as Jagielski, Ullman and Oprea (2020) do: two rates at a threshold."""
    return epsilon_bound(
        given.inside, given.outside, delta=given.delta, scorer=known(np.asarray), confidence=0.95
    ).lower


def trade_off(given: Releases, *, seed: int) -> float:
    """Bound epsilon by the trade-off function of Gaussian noise."""
    scorer = known(np.asarray)
    return gaussian_bound(given.inside, given.outside, delta=given.delta, scorer=scorer, confidence=0.95).lower


def one_run(given: Releases, *, seed: int) -> float:
    """Bound epsilon as Steinke, Nasr and Jagielski (2023) do; each run counts as a canary of its own."""
    coins = np.random.default_rng(seed).random(len(given.inside)) < 0.5
    scores = np.where(coins, given.inside, given.outside)
    guesses = surest_guesses(scores - np.median(scores), len(scores) // 5)
    return one_run_bound(coins, guesses, delta=given.delta, confidence=0.95).lower
