"""Ways to look at what a sift lets out: an attacker chooses its own units, so a verifier must not trust the app's.

| view | what the attacker sees |
| --- | --- |
| `released` | the numbers as they come |
| `standardised` | each number with zero mean and unit variance: the paper's verifier, which says nothing of scaling |
| `whitened` | uncorrelated numbers of unit variance: two nearly equal columns give away what tells them apart |
| `quantised` | whitened and rounded to 16 levels: what is left without the digits |

A view is fitted on the attackers' training half alone.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import UnknownNameError

View = Literal["released", "standardised", "whitened", "quantised"]
VIEWS: tuple[View, ...] = get_args(View)

Look = Callable[[NDArray[Any]], NDArray[Any]]

_NOTHING = 1e-12  # of the total variance of standardised numbers: what rounding alone leaves of a collinear column
_LEVELS, _RANGE = 16, 3.0  # standard deviations


def fit_view(view: View, reference: NDArray[Any]) -> Look:
    """Return the function that shows released numbers (n, K) as this view, in the units of `reference`.

    >>> look = fit_view("standardised", np.array([[0.0], [2.0]]))
    >>> look(np.array([[3.0]])).tolist()
    [[2.0]]
    """
    if view not in VIEWS:
        raise UnknownNameError("view", view, VIEWS)
    if view == "released":
        return lambda released: np.asarray(released, dtype=np.float64)
    given = np.asarray(reference, dtype=np.float64)
    mean, deviation = given.mean(axis=0), given.std(axis=0)
    scale = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1), 0.0)
    turn = None if view == "standardised" else _whitener((given - mean) * scale)

    def look(released: NDArray[Any]) -> NDArray[Any]:
        seen = (np.asarray(released, dtype=np.float64) - mean) * scale
        if turn is not None:
            seen = seen @ turn
        if view == "quantised":
            step = 2 * _RANGE / _LEVELS
            seen = np.clip(np.floor(seen / step), -_LEVELS // 2, _LEVELS // 2 - 1)
        return np.asarray(seen, dtype=np.float32)  # units are sane by now, and most attackers take half the time

    return look


def _whitener(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (K, k) with uncorrelated columns of unit variance; directions without variance are dropped."""
    variances, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = variances > _NOTHING * max(variances.sum(), _NOTHING)
    if not kept.any():
        return np.zeros((centred.shape[1], 1))  # nothing varies: every attacker is blind
    return np.asarray(directions[:, kept] / np.sqrt(variances[kept]))
