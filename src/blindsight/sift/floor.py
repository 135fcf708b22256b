"""The policy floor: what no sift can beat, known from a 2 x 2 table of labels before anything is trained.

Whatever a sift lets out, an app turns it into a guess u of the public attribute, and u tells about the private one
because the two attributes go together. Let D = P(y+ | y- = 1) - P(y+ | y- = 0) and pi+, pi- be the prevalences. A guess
that is always right leaks D; every bit of leak below |D| must be paid for with wrong guesses, at the cheaper of two
prices. Under a leak cap tau (best attacker's balanced accuracy <= 1/2 + tau)

    public balanced accuracy <= 1 - max(0, |D| - 2 tau) r / 2,
    r = min(pi- / pi+, (1 - pi-) / (1 - pi+)) if D > 0, else min((1 - pi-) / pi+, pi- / (1 - pi+)),

and the bound is met by a sift that knows both labels, so it cannot be improved. Proof: only the guess u matters, since
an attacker who sees more than u leaks more. With a_ij = P(u = 1 | y+ = i, y- = j) both accuracy and leak are linear in
a. Start at u = y+ with D > 0. Lowering a_11 by e costs e p_11 / (2 pi+) and lowers the leak by e p_11 / pi-; raising
a_00 costs e p_00 / (2 (1 - pi+)) and lowers the leak by e p_00 / (1 - pi-); the other two cells raise it. Each of the
two reaches leak 0 alone, so the cheaper price applies throughout. D < 0 is the same with y- renamed.

Several private attributes at once have no such formula: `public_ceiling_of_many` solves the linear program.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from blindsight.errors import InputError


def public_ceiling(table: ArrayLike, leak_cap: float) -> float:
    """Return the best balanced accuracy on the public attribute that any sift can reach under the leak cap.

    `table[i][j]` counts (or is the share of) the samples with public attribute i and private attribute j.

    >>> public_ceiling([[25, 25], [25, 25]], leak_cap=0.0)  # independent attributes: nothing to pay
    1.0
    >>> round(public_ceiling([[40, 10], [10, 40]], leak_cap=0.1), 3)  # D = .6, of which .4 must go
    0.8
    >>> round(public_ceiling([[50, 0], [0, 50]], leak_cap=0.1), 3)  # one and the same: what is hidden is lost
    0.6
    """
    shares = _check_table(table)
    cap = check_leak_cap(leak_cap)
    public, private = shares[1].sum(), shares[:, 1].sum()  # pi+, pi-
    difference = shares[1, 1] / private - shares[1, 0] / (1 - private)  # D
    if difference < 0:
        private = 1 - private
    price = min(private / public, (1 - private) / (1 - public))  # r
    return float(1 - max(0.0, abs(difference) - 2 * cap) * price / 2)


def public_ceiling_of_many(public: ArrayLike, private: ArrayLike, leak_cap: float) -> float:
    """Return the ceiling when each column of `private` (n, m) is capped at once; `public` and `private` are 0 or 1.

    The linear program over all channels P(u = 1 | y+, y-_1 ... y-_m), with the shares observed. With m = 1 it gives
    what `public_ceiling` gives.
    """
    cap = check_leak_cap(leak_cap)
    labels = np.column_stack([np.asarray(public), np.asarray(private)])
    cells, counts = np.unique(labels, axis=0, return_counts=True)
    if not np.isin(cells, (0, 1)).all() or not (np.ptp(cells, axis=0) == 1).all():
        raise InputError("the ceiling needs labels 0 and 1, and both of them for every attribute.")
    gaps = np.stack([_class_gap(column, counts) for column in cells.T])  # gaps @ a = P(u|y=1) - P(u|y=0)
    # an attacker may read u either way, so the gap of each private attribute is bounded on both sides
    bounds = np.full(2 * (len(gaps) - 1), 2 * cap)
    best = linprog(-gaps[0], A_ub=np.vstack([gaps[1:], -gaps[1:]]), b_ub=bounds, bounds=(0, 1))
    assert best.success, best.message  # a constant guess is always feasible
    return float((1 - best.fun) / 2)


def check_leak_cap(leak_cap: float) -> float:
    """Return a leak cap: how far above 1/2 an attacker's balanced accuracy may be."""
    if not 0 <= leak_cap <= 0.5:
        raise InputError(f"a leak cap must lie in [0, 0.5], the best attacker's lead over guessing; got {leak_cap}.")
    return float(leak_cap)


def _class_gap(column: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weights that turn P(u = 1 | cell) into P(u = 1 | attribute) - P(u = 1 | no attribute)."""
    yes, no = counts * (column == 1), counts * (column == 0)
    return np.asarray(yes / yes.sum() - no / no.sum())


def _check_table(table: ArrayLike) -> NDArray[np.float64]:
    shares = np.asarray(table, dtype=np.float64)
    if shares.shape != (2, 2) or not np.isfinite(shares).all() or (shares < 0).any():
        raise InputError("the table must be 2 x 2, counts or shares of public (rows) by private (columns).")
    if (shares.sum(axis=0) == 0).any() or (shares.sum(axis=1) == 0).any():
        raise InputError("an attribute is constant in the table; there is nothing to learn or to leak.")
    return np.asarray(shares / shares.sum())
