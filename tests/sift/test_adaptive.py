"""Nobody gets a bad sift accepted by asking again and again, however cleverly the next question is chosen."""

import math
from itertools import product

import numpy as np
import pytest

from blindsight.errors import InputError, PrivacyError
from blindsight.sift.adaptive import RowPrints, Tries, share
from blindsight.sift.platform import Platform
from blindsight.sift.sift import LinearSift, Quantiser
from blindsight.sift.verificationset import VerificationSet
from tests.adversaries.holes import Segments, answers_followed

GROUPS, ROWS, TRIES = 250, 3000, 1500


def test_the_shares_of_all_histories_sum_to_one_at_most():
    for depth in (1, 4, 12):
        histories = [answers for n in range(depth) for answers in product((0, 1), repeat=n)]
        assert sum(share(len(answers), sum(answers)) for answers in histories) < 1
    by_depth = [[math.comb(n - 1, a) * share(n - 1, a) for a in range(n)] for n in range(1, 400)]
    assert 0.6 < sum(map(sum, by_depth)) < 1
    assert share(1000, 0) == pytest.approx(0.5 / (1001 * 1002))  # a list of noes costs what it did before
    with pytest.raises(PrivacyError, match="rows that nobody has used"):
        share(2000, 1000)
    with pytest.raises(InputError):
        share(3, 4)


def segments(rows, seed):
    """Segments as features."""
    drawn = Segments.draw(rows, GROUPS, random_state=seed)
    return (2 * drawn.bits - 1).astype(np.float32), drawn.hidden


def sift_of(chosen):
    """Release the bit in these segments, and nothing elsewhere; it leaks .25 times their share."""
    matrix = np.zeros((GROUPS, 1))
    matrix[chosen] = 1.0
    return LinearSift(np.zeros(GROUPS), np.ones(GROUPS), matrix, Quantiser([[0.5]]))


def test_an_app_that_learns_from_answers_beats_a_schedule_that_forgets_them_and_not_this_one():
    """Each try at alpha / (n (n + 1)) is safe in a fixed list; steered by answers the same tries are not."""
    beaten, kept, runs = 0, 0, 4
    for run in range(runs):
        rows, count, tries = Segments.draw(ROWS, random_state=run), iter(range(1, 10_000)), Tries()

        def forgetful(chosen, rows=rows, count=count):
            n = next(count)
            return rows.accepts(chosen, 0.05 / (n * (n + 1)))

        def careful(chosen, rows=rows, tries=tries):
            try:
                part, name = tries.next(["rows"]), str(len(tries))
            except PrivacyError:
                return False  # on these rows nothing is accepted any more
            tries.note(name, "rows", part)
            if not rows.accepts(chosen, 0.05 * part):
                return False
            tries.accept(name)
            return True

        beaten += answers_followed(rows, forgetful, TRIES, random_state=run) > 0.10
        kept += answers_followed(rows, careful, TRIES, random_state=run) > 0.10
    assert beaten >= runs - 1
    assert kept == 0  # the proof allows 5% a run; the rows are fixed by their seeds


def test_the_platform_shares_one_tree_among_apps_and_restarts(tmp_path):
    X, hidden = segments(ROWS, seed=1)

    def made(rows=slice(None)):
        platform = Platform(VerificationSet(X[rows], {"hidden": hidden[rows]}), folder=tmp_path)
        platform.set_preferences("Ann", ["hidden"])
        return platform

    shares, first = [], made()
    for number in range(3):
        platform = first if number == 0 else made()
        platform.add_app(f"app {number}", ["shown"])
        found = platform.propose("Ann", f"app {number}", sift_of([number]))
        shares.append((found.examination.alone.setting.share, found.verdict))
    assert shares == [(pytest.approx(share(n, n)), "accept") for n in range(3)]
    first.add_app("X", ["shown"])
    assert first.propose("Ann", "X", sift_of([1])).examination.alone.setting.share == pytest.approx(share(1, 1))
    fewer = made(slice(0, 2500)).propose("Ann", "X", sift_of([7]))  # some of the same rows are not fresh rows
    assert fewer.examination.alone.setting.share == pytest.approx(share(3, 3))
    other_X, other_hidden = segments(ROWS, seed=2)
    fresh = Platform(VerificationSet(other_X + np.float32(0.25), {"hidden": other_hidden}), folder=tmp_path)
    assert fresh.propose("Ann", "X", sift_of([7])).examination.alone.setting.share == pytest.approx(share(0, 0))


def test_rows_have_something_in_common_by_themselves_or_by_their_persons():
    rows, others = np.eye(4, dtype=np.float32), 2 + np.eye(4, dtype=np.float32)
    names = np.array(["a", "b", "c", "d"])
    prints = RowPrints.of(rows, names, "one")
    assert prints.meets(RowPrints.of(rows[:1], None, "one"))
    assert prints.meets(RowPrints.of(others, names, "two"))  # other features of the same people
    assert not prints.meets(RowPrints.of(others, np.array(["e"] * 4), "two"))
    assert not prints.meets(RowPrints.of(others, None, "one"))
    assert prints.meets(RowPrints.of(others, None, "two"))  # nobody knows who they are
