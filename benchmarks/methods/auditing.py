"""Attacks, ours and those of peers: membership beside the Adversarial Robustness Toolbox (ART), pictures from gradients
beside breaching, and bounds on epsilon.

Everybody is given the trained model, the rows in question and how such models are trained, and nobody who was a member;
or a network, a gradient and the labels behind it.
"""

import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from blindsight.audit.epsilon import epsilon_bound, gaussian_bound, known
from blindsight.audit.membership import Game, Scorer, loss_threshold, shadow_attacks
from blindsight.audit.onerun import one_run_bound, surest_guesses
from blindsight.papers.selective.gradients import match_gradient

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


@dataclass(frozen=True)
class SeenGradient:
    """The gradient of the mean cross-entropy of a few pictures under a torch network."""

    network: Any
    gradient: Scores
    shape: tuple[int, ...]
    labels: tuple[int, ...]


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


def matched(given: SeenGradient, *, seed: int, smoothness: float, iterations: int) -> Scores:
    """Match the direction of the gradient by smooth pictures."""
    found = match_gradient(
        given.network,
        given.gradient,
        given.labels,
        shape=given.shape,
        objective="cosine",
        smoothness=smoothness,
        iterations=iterations,
        random_state=seed,
    )
    return found.pictures


def breaching(given: SeenGradient, *, seed: int, attack: str) -> Scores:
    """Run an attack of breaching as it is configured there, but for labels, which are given as they are to ours."""
    import torch

    parameters, told = list(given.network.parameters()), SimpleNamespace(shape=given.shape, modality="vision")
    told.mean, told.std = (0.5,) * 3, (0.25,) * 3  # how pictures were standardised
    parts = torch.split(torch.from_numpy(given.gradient), [parameter.numel() for parameter in parameters])
    known_of = {"num_data_points": len(given.labels), "labels": torch.tensor(given.labels), "local_hyperparams": None}
    seen = {"gradients": [part.reshape(own.shape) for part, own in zip(parts, parameters, strict=True)]}
    torch.manual_seed(seed)
    attacker = _breaching_attacker(given.network, attack)
    found, _ = attacker.reconstruct(
        [{"parameters": parameters, "buffers": [], "metadata": told}],
        [seen | {"buffers": None, "metadata": known_of | {"data_key": "inputs"}}],
        {},
    )
    return np.asarray(found["data"].detach(), dtype=np.float64)


def _breaching_attacker(model: Any, attack: str) -> Any:
    import torch

    absent = [name for name in _TORCHVISION if find_spec("torchvision") is None]
    sys.modules.update(dict.fromkeys(absent, MagicMock(__spec__=None)))  # its data sets alone would need it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import breaching as library
        from omegaconf import OmegaConf
    for name in absent:
        del sys.modules[name]
    folder = Path(library.__file__).parent / "config" / "attack"
    files = (OmegaConf.load(folder / f"{name}.yaml") for name in ("_default_optimization_attack", attack))
    settings = OmegaConf.merge(*files, {"attack_type": "optimization", "impl": {"dtype": "double"}})
    place = {"dtype": torch.double, "device": torch.device("cpu")}
    return library.attacks.prepare_attack(model, torch.nn.CrossEntropyLoss(), settings, place)


_TORCHVISION = ("torchvision", "torchvision.transforms", "torchvision.datasets", "torchvision.datasets.utils")
