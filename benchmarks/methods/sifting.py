"""What makers of sifts are given, and what they answer: what an app would receive of people whom nobody learned from.

A maker never sees the labels of the people whom its sifts are judged by, unless the sift cannot be applied without.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.sift.ppls import FewerComponentsWarning, SiftLearner

Floats = NDArray[np.float32]
Labels = NDArray[np.int8]
Pair = tuple[str, str]
"""A public and a private attribute; several private ones, hidden jointly, have a plus between them."""


@dataclass(frozen=True)
class SiftingData:
    """Labelled features to make sifts from, features to apply them to, and the policies that want one.

    `scale` tells whether features are to be scaled each by itself. `told` has the private labels of the judged people.
    """

    features: Floats
    labels: Mapping[str, Labels]
    judged: Floats
    policies: tuple[Pair, ...]
    scale: bool
    told: Mapping[str, Labels] = field(default_factory=dict)


Released = dict[str, NDArray[Any]]
"""What is let out of the judged people: numbers (n, K), or symbols as whole numbers, by `key`."""


def key(policy: Pair, kind: str = "") -> str:
    """Name an answer; one maker may answer a policy with sifts of several kinds.

    >>> key(("smiling", "male")), key(("smiling", "male"), "label")
    ('smiling/male', 'smiling/male:label')
    """
    return "/".join(policy) + f":{kind}" * bool(kind)


def released_by_each(given: SiftingData, make: Callable[[], SiftLearner]) -> Released:
    """Fit a fresh learner for every policy; those for which no sift exists get no answer."""
    answer: Released = {}
    for public, private in given.policies:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FewerComponentsWarning)  # fewer numbers are an answer
                fitted = make().fit(given.features, given.labels[public], given.labels[private])
        except InputError:
            continue
        answer[key((public, private))] = fitted.sift_.apply(given.judged)
    return answer


def classes_of(labels: Mapping[str, Labels], private: str) -> NDArray[np.int64]:
    """Return the class of every row: a private attribute, or which combination of several.

    >>> classes_of({"a": np.array([0, 1, 1], np.int8), "b": np.array([1, 0, 1], np.int8)}, "a+b").tolist()
    [1, 2, 3]
    """
    found = np.zeros(len(next(iter(labels.values()))), dtype=np.int64)
    for name in private.split("+"):
        found = 2 * found + labels[name]
    return found


def held_out_leak(symbols: NDArray[np.int64], classes: NDArray[np.int64]) -> float:
    """Return the gain of the best attacker on these rows, of the two classes that are told apart best."""
    kinds = [np.bincount(symbols[classes == c], minlength=int(symbols.max()) + 1) for c in np.unique(classes)]
    rates = np.stack([counts / counts.sum() for counts in kinds])
    return float(np.abs(rates[:, None] - rates[None]).sum(axis=2).max()) / 4


def target_leak(given: SiftingData, classes: NDArray[np.int64], symbols: int) -> float:
    """Return the leak to aim at so that .10 can be certified on the judged rows, the same for every maker."""
    smallest = np.sort(np.bincount(classes))[:2] / len(classes) * len(given.judged)
    spread = float(np.sqrt((1 / smallest).sum())) / 4
    return max(0.0, 0.10 - spread * (1.645 if symbols <= 8 else 2.448) - 1.645 * spread)
