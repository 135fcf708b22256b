"""The policy floor: the closed form against a linear program over every channel, and against sifts tried by force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from blindsight.errors import InputError
from blindsight.sift.policy import public_ceiling, public_ceiling_of_many


def ceiling_by_linear_program(table, cap, symbols=3):
    """Maximise public accuracy over channels P(u | y+, y-) with `symbols` outputs and an app that reads u in any way.

    Independent of the proof: the leak is the total variation over all symbols, one slack variable per symbol.
    """
    p = np.asarray(table, dtype=float) / np.sum(table)
    public, private = p.sum(axis=1), p.sum(axis=0)
    best = 0.0
    for guess in product((0, 1), repeat=symbols - 1):  # what the app says on seeing each symbol
        guess = (*guess, 1)  # symbols have no order
        channel = np.zeros((2, 2, symbols))
        for i in (0, 1):
            channel[i] = (p[i] / public[i] / 2)[:, None] * (np.array(guess) == i)
        size = channel.size
        cost = np.concatenate([-channel.ravel(), np.zeros(symbols)])
        above = np.zeros((2 * symbols + 1, size + symbols))
        for u in range(symbols):
            gap = np.zeros((2, 2, symbols))
            gap[:, 1, u], gap[:, 0, u] = p[:, 1] / private[1], -p[:, 0] / private[0]
            above[u, :size], above[symbols + u, :size] = gap.ravel(), -gap.ravel()
            above[[u, symbols + u], size + u] = -1  # |gap of u| <= slack of u
        above[-1, size:] = 1  # sum of slacks = 2 TV <= 4 cap
        limits = np.concatenate([np.zeros(2 * symbols), [4 * cap]])
        whole = np.kron(np.eye(4), np.ones(symbols))
        equal = np.hstack([whole, np.zeros((4, symbols))])
        found = linprog(cost, above, limits, equal, np.ones(4), bounds=(0, None))
        best = max(best, -found.fun)
    return best


@pytest.mark.parametrize("cap", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("table", [[[40, 10], [10, 40]], [[10, 60], [20, 10]], [[1, 3], [5, 91]], [[50, 0], [0, 50]]])
def test_the_closed_form_is_what_the_linear_program_over_all_channels_finds(table, cap):
    assert public_ceiling(table, cap) == pytest.approx(ceiling_by_linear_program(table, cap), abs=1e-7)


@settings(deadline=None, max_examples=20)
@given(
    table=st.lists(st.integers(1, 1000), min_size=4, max_size=4).map(lambda c: np.reshape(c, (2, 2))),
    cap=st.floats(0, 0.5),
)
def test_the_closed_form_holds_for_any_table(table, cap):
    ceiling = public_ceiling(table, cap)
    assert ceiling == pytest.approx(ceiling_by_linear_program(table, cap, symbols=2), abs=1e-7)
    labels = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], table.ravel(), axis=0)
    assert public_ceiling_of_many(labels[:, 0], labels[:, 1:], cap) == pytest.approx(ceiling, abs=1e-7)


def test_several_private_attributes_cost_at_least_as_much_as_the_dearest():
    rng = np.random.default_rng(0)
    public = rng.integers(0, 2, 4000)
    first = np.where(rng.random(4000) < 0.8, public, 1 - public)
    second = np.where(rng.random(4000) < 0.3, public, 1 - public)
    both = public_ceiling_of_many(public, np.column_stack([first, second]), 0.1)
    single = [public_ceiling_of_many(public, y[:, None], 0.1) for y in (first, second)]
    assert both <= min(single) + 1e-7
    assert both == pytest.approx(min(single), abs=0.2)
    assert 0.5 <= both < 0.95


def test_a_random_sift_never_beats_the_ceiling():
    rng = np.random.default_rng(1)
    table = np.array([[30.0, 15], [10, 45]])
    p = table / table.sum()
    for channel in rng.random((2000, 2, 2)):  # P(u = 1 | y+, y-)
        public = [(p[i] * channel[i]).sum() / p[i].sum() for i in (0, 1)]
        private = [(p[:, j] * channel[:, j]).sum() / p[:, j].sum() for j in (0, 1)]
        accuracy, leak = 0.5 + (public[1] - public[0]) / 2, abs(private[1] - private[0]) / 2
        assert accuracy <= public_ceiling(table, leak) + 1e-9


@pytest.mark.parametrize(
    ("table", "cap", "named"),
    [
        ([[1, 1], [0, 0]], 0.1, "constant"),
        ([[1, 1, 1], [1, 1, 1]], 0.1, "2 x 2"),
        ([[1, -1], [1, 1]], 0.1, "2 x 2"),
        *(([[1, 1], [1, 1]], cap, "0.5") for cap in (0.6, float("nan"))),
    ],
)
def test_bad_tables_and_caps_are_refused(table, cap, named):
    with pytest.raises(InputError, match=named):
        public_ceiling(table, cap)
    with pytest.raises(InputError, match="both"):
        public_ceiling_of_many([0, 1, 1], [[1], [1], [1]], 0.1)
