"""How answers are judged; the right ones never leave this side."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.paillier import Ciphertexts, PrivateKey
from blindsight.errors import InputError
from blindsight.metrics import (
    adjusted_mutual_information,
    average_precision,
    balanced_accuracy,
    mean_average_precision,
    mean_label_accuracy,
)

Labels = NDArray[np.int64]
Scores = NDArray[np.floating[Any]]
TOPS = (10, 50, 100)


def score_classes(answers: Labels, frequency: Labels, scores: Scores) -> dict[str, float]:
    """Return the accuracy averaged over classes, and the mean average precision over the most frequent of them."""
    truth = answers[:, None] == np.arange(len(frequency))
    found: dict[str, list[float]] = {}
    for model in _models(scores, truth.shape):
        found.setdefault("class_average", []).append(balanced_accuracy(answers, model.argmax(axis=1)))
        for top in (top for top in TOPS if top <= len(frequency)):
            value = mean_average_precision(truth, model, top=top, frequency=frequency)
            found.setdefault(f"map{top}", []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def score_attributes(answers: Labels, scores: Scores) -> dict[str, float]:
    """Return the accuracy averaged over attributes."""
    values = [mean_label_accuracy(answers, model > 0) for model in _models(scores, answers.shape)]
    return {"accuracy": float(np.mean(values))}


def score_detection(answers: Labels, scores: Scores) -> dict[str, float]:
    """Return the average precision."""
    values = [average_precision(answers, model[:, 0]) for model in _models(scores, (len(answers), 1))]
    return {"average_precision": float(np.mean(values))}


def score_clusters(answers: Labels, clusters: Labels) -> dict[str, float]:
    """Return the adjusted mutual information with the hidden classes."""
    return {"ami": adjusted_mutual_information(answers, clusters)}


def score_model(shape: tuple[int, int], weights: NDArray[np.float64]) -> dict[str, float]:
    """Count the weights; whether two models are the same is told by the checksums that the harness keeps."""
    if weights.shape != shape:
        raise InputError(f"the model must have shape {shape}; got {weights.shape}.")
    return {"weights": float(weights.size)}


def score_sent(megabytes: NDArray[np.float64]) -> dict[str, float]:
    """Return what a member sent; nobody else counts it."""
    if megabytes.shape != (1,):
        raise InputError(f"one number is asked for; got shape {megabytes.shape}.")
    return {"megabytes": float(megabytes[0])}


def score_encryption(key: PrivateKey, values: tuple[int, ...], matrix: NDArray[np.uint8]) -> dict[str, float]:
    """Count the ciphertexts, after a check of some of them and that no two are the same."""
    some = np.unique(np.linspace(0, len(values) - 1, 16).astype(np.int64))
    if len(matrix) != len(values) or len({row.tobytes() for row in matrix}) < len(values):
        raise InputError(f"{len(values)} different ciphertexts were wanted.")
    read = key.decrypt(Ciphertexts.from_matrix(key.public, matrix[some]))
    if [int(value) for value in read] != [values[place] for place in some]:
        raise InputError("the ciphertexts do not hold the values.")
    return {"ciphertexts": float(len(matrix))}


def _models(scores: Scores, shape: tuple[int, ...]) -> Scores:
    """Return the scores of all models, the first axis theirs."""
    models = scores if scores.ndim == 3 else scores[None]
    if models.shape[1:] != shape:
        raise InputError(f"scores must have shape {shape}, or one such array per model; got {scores.shape}.")
    return models
