"""Real samples for the attacks on updates: 8 x 8 pictures of digits with unit norm, and the pictures themselves."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits


class Digits(NamedTuple):
    private: NDArray[np.float64]
    public: NDArray[np.float64]
    pictures: NDArray[np.float64]
    labels: NDArray[np.int64]


@pytest.fixture(scope="session")
def digits():
    loaded = load_digits()
    rows = loaded.data / np.linalg.norm(loaded.data, axis=1, keepdims=True)
    return Digits(rows[:900], rows[900:], loaded.images / 16, loaded.target)
