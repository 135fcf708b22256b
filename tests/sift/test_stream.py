"""Windows of frames against a loop, leaks that grow with frames, budgets that end."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from blindsight.errors import BudgetExceededError, InputError, PrivacyError
from blindsight.sift.attackers import Attacker
from blindsight.sift.certificate import certify
from blindsight.sift.personal import PersonalSift
from blindsight.sift.sift import LinearSift, Quantiser
from blindsight.sift.stream import PermanentSymbols, ReleaseBudget, leak_over_frames, windows
from blindsight.sift.union import Part, verify_together
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

LIGHT = Verifier([Attacker("logistic", lambda seed: LogisticRegression(class_weight="balanced"))])


@settings(deadline=None, max_examples=60)
@given(sequences=st.lists(st.integers(0, 4), min_size=1, max_size=60), frames=st.integers(1, 7))
def test_windows_are_those_of_a_loop(sequences, frames):
    expected = []
    for name in sorted(set(sequences)):
        rows = [i for i, other in enumerate(sequences) if other == name]
        expected += [rows[i : i + frames] for i in range(0, len(rows) - frames + 1, frames)]
    if expected:
        assert windows(sequences, frames).rows.tolist() == expected
    else:
        with pytest.raises(InputError, match=f"{frames} frames"):
            windows(sequences, frames)


def test_a_window_keeps_its_frames_and_the_label_they_share():
    cut = windows([7, 7, 7, 7, 8, 8], frames=2)
    released = np.arange(12).reshape(6, 2)
    assert cut.concatenated(released).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert cut.mean(released).tolist() == [[1, 2], [5, 6], [9, 10]]
    assert cut.labels(np.array([1, 1, 0, 1, -1, -1], dtype=np.int8)).tolist() == [1, -1, -1]
    assert cut.first(np.array([7, 7, 7, 7, 8, 8])).tolist() == [7, 7, 8]
    assert (len(cut), cut.frames) == (3, 2)


@pytest.fixture(scope="module")
def video():
    """1,500 persons of 10 frames; each frame tells little of the attribute, beside noise of its own."""
    rng = np.random.default_rng(0)
    hidden = np.repeat(rng.integers(0, 2, 1500), 10).astype(np.int8)
    released = rng.normal(size=(15000, 2))
    released[:, 0] += 0.3 * hidden  # one frame: balanced accuracy .56; ten: .68
    return released, {"hidden": hidden}, np.repeat(np.arange(1500), 10)


def test_ten_frames_tell_what_one_does_not(video):
    found = leak_over_frames(*video, verifier=LIGHT, frames=(1, 10))
    assert [(leak.frames, leak.reading, leak.windows) for leak in found] == [
        (1, "concatenated", 15000),
        (10, "concatenated", 1500),
        (10, "mean", 1500),
    ]
    one, ten, mean = (leak.verification for leak in found)
    assert one.verdict == "accept"
    # .68 is true of ten; 750 test windows deviate by .017: below .60 less than once in 10^6
    assert min(ten.best.balanced_accuracy, mean.best.balanced_accuracy) > 0.6 > one.best.balanced_accuracy


def test_frames_at_the_boundary_of_an_event_do_not_count_and_persons_stay_on_one_side(video):
    released, private, sequences = video
    flicker = np.tile([0, 1], 7500).astype(np.int8)
    with pytest.raises(InputError, match="same"):
        leak_over_frames(released, {"blinking": flicker}, sequences, verifier=LIGHT, frames=(2,))
    (leak,) = leak_over_frames(released, private, sequences, verifier=LIGHT, frames=(5,), persons=sequences // 2)[:1]
    assert leak.verification.setting.persons == 750


def test_a_budget_ends():
    budget = ReleaseBudget(10)
    assert budget.fresh(0, 10) == 10
    with pytest.raises(BudgetExceededError, match="4 are released"):
        budget.fresh(4, 7)
    with pytest.raises(BudgetExceededError):
        budget.fresh(12, 1)  # more was released under an earlier budget
    assert [ReleaseBudget(3, "repeat").fresh(used, 2) for used in (0, 2, 3, 9)] == [2, 1, 0, 0]


def test_bad_budgets_and_streams_are_refused():
    for refuse, named in [
        *((lambda frames=frames: ReleaseBudget(frames), "whole number") for frames in (0, -1, True, 2.5)),
        (lambda: ReleaseBudget(1, "ignore"), "repeat"),
        (lambda: ReleaseBudget(1).fresh(0, 0), "one frame"),
        (lambda: windows([[1, 2]], 1), "sequence"),
        (lambda: windows([], 1), "longest has 0"),
    ]:
        with pytest.raises(InputError, match=named):
            refuse()


def test_a_momentary_attribute_is_kept_frame_by_frame():
    """Offset plus smile: a single frame and windows without a change tell nothing, two frames tell their difference."""
    rng = np.random.default_rng(5)
    who, smiling = np.repeat(np.arange(1500), 2), rng.integers(0, 2, 3000).astype(np.int8)
    X = np.stack([smiling + np.repeat(30 * rng.normal(size=1500), 2), rng.normal(size=3000)], axis=1)
    data = VerificationSet(X.astype(np.float32), {"smiling": smiling}, who)
    sift = LinearSift(np.zeros(2), np.ones(2), np.eye(2)[:, :1])
    thorough = replace(LIGHT, stop_early=False)
    single, pair = (verify_together([Part(sift, frames)], ["smiling"], data, thorough) for frames in (1, 2))
    assert single.verdict == "accept"
    assert pair.verdict == "reject"
    assert {result.attribute for result in pair.results} == {
        "smiling in frame 1",
        "smiling in frame 1, where it changes",
        "smiling in frame 2",
        "smiling in frame 2, where it changes",
    }
    assert pair.best.balanced_accuracy > 0.95  # where it changes
    cut = windows(who, 2)
    unchanging = cut.labels(smiling)
    agreed = LIGHT.verify(cut.concatenated(X[:, :1]), {"smiling": unchanging}, persons=cut.first(who))
    assert agreed.verdict == "accept"  # as it was judged before: windows that change were dropped


def test_questions_about_windows():
    cut = windows(np.repeat(np.arange(300), 6), frames=6)
    male, smiling = np.repeat(np.arange(300) % 2, 6), np.arange(1800) % 2
    asked, groups = cut.questions({"male": male.astype(np.int8), "smiling": smiling.astype(np.int8)})
    assert groups == [("male", f"smiling in frame {frame}") for frame in (1, 4, 6)]
    assert asked["male"].tolist() == (np.arange(300) % 2).tolist()
    assert set(asked["smiling in frame 4"]) == {1}
    assert len(asked) == 4  # a constant column is no question of its own where it changes
    assert windows(np.arange(9), frames=1).questions({"a": smiling[:9].astype(np.int8)})[1] == [("a",)]


# Permanent symbols


def noisy_people(rng, people=1200, pictures=8):
    """Pictures of people: the first feature hints at a private attribute, with noise that averages out."""
    who = np.repeat(np.arange(people), pictures)
    hidden = (np.arange(people) % 2).astype(np.int8)[who]
    X = rng.standard_normal((len(who), 3)).astype(np.float32)
    X[:, 0] += 0.6 * hidden - 0.3
    return X, hidden, who


def bit(feature, dimension=3):
    matrix = np.eye(dimension)[:, [feature]]
    edges = np.zeros((1, 1), dtype=np.float32)
    return LinearSift(np.zeros(dimension), np.ones(dimension), matrix, Quantiser(edges))


def of(kept):
    return lambda person: [one for one in kept if one.person == person]


def test_a_permanent_symbol_is_certified_on_what_frames_tell_together():
    X, hidden, who = noisy_people(np.random.default_rng(1))
    single = certify(bit(0).symbols(X[::8]), hidden[::8], confidence=0.95)

    def certified(*bits, frames=8, **labels):
        rows = VerificationSet(X, labels, who)
        return verify_together([Part(one, frames, permanent=True) for one in bits], labels, rows, LIGHT).certificates[0]

    telling, blind = (certified(bit(feature), male=hidden) for feature in (0, 1))
    assert telling.n1 + telling.n0 == 1200  # persons
    assert telling.estimate > single.bound > single.estimate  # noise averages out
    assert blind.bound < 0.06
    both = certified(bit(0), bit(1), frames=4, male=hidden)
    assert (both.symbols, both.bound > single.estimate) == (16, True)  # all that is out, on the same frames and others
    with pytest.raises(InputError, match="changes"):
        certified(bit(1), smiling=np.where(np.arange(len(who)), hidden, 1 - hidden[0]))
    with pytest.raises(PrivacyError, match="certificate"):
        certified(bit(0), bit(1), bit(2), frames=2, male=hidden)  # 512 symbols


def test_a_permanent_symbol_is_drawn_once_whoever_asks():
    rng, kept = np.random.default_rng(2), []
    frames = [rng.standard_normal((9, 3)) + 5 * sign for sign in (1, -1)]
    book = PermanentSymbols(["youth"], kept.append, of(kept))
    first = book.symbol("ann", "youth", bit(0), lambda: frames[0], count=9)
    assert (first.symbol, first.frames) == (1, 9)
    assert book.symbol("ann", "youth", bit(0), lambda: frames[1], count=9) == first  # other frames, another app
    newer = bit(1)
    again = PermanentSymbols(["youth"], kept.append, of(kept))  # a restart, a revocation, a new version of the sift
    assert again.symbol("ann", "youth", newer, lambda: pytest.fail("nobody looks at frames"), count=9) == first
    another = again.symbol("ann", "youth", newer, lambda: frames[1], count=9, another=True)
    assert (another.symbol, again.charges("ann")) == (0, (first, another))  # a further charge, once
    assert again.symbol("ann", "youth", newer, lambda: frames[0], count=9, another=True) == another
    assert [one.symbol for one in kept] == [1, 0]
    assert book.symbol("bob", "youth", bit(0), lambda: frames[1], count=9).symbol == 0
    with pytest.raises(PrivacyError, match="unchanging"):
        book.symbol("ann", "smiling", bit(0), lambda: frames[0], count=9)
    numbers = LinearSift(np.zeros(3), np.ones(3), np.eye(3))
    with pytest.raises(InputError, match="few levels"):
        book.symbol("bob", "youth", numbers, lambda: frames[0], count=9, another=True)
    with pytest.raises(InputError, match="10 frames"):
        book.symbol("eve", "youth", bit(0), lambda: frames[0], count=10)


def test_a_permanent_symbol_is_kept_by_its_sift_and_number_of_frames():
    odd, even = np.float32([[1, 0, 0], [-1, 0, 0], [-1, 0, 0]]), np.float32([[-1, 0, 0]] * 3)
    kept = []
    book = PermanentSymbols(["youth", "male"], kept.append, of(kept))
    one = book.symbol("ann", "youth", bit(0), lambda: odd, count=1)
    three = book.symbol("ann", "youth", bit(0), lambda: odd, count=3, another=True)
    assert [(each.symbol, each.frames) for each in (one, three)] == [(1, 1), (0, 3)]
    assert book.symbol("ann", "youth", bit(0), lambda: even, count=1, another=True) == one
    assert book.symbol("ann", "male", bit(0), lambda: even, count=1) == one  # nor twice for another attribute
    assert book.charges("ann") == (one, three) == tuple(kept)


def test_permanent_symbols_of_one_sift_from_several_numbers_of_frames_are_counted_apart():
    """What a single frame tells does not vanish behind the smoothed symbol of eight: leaks of .10 and .02, whose
    estimates deviate by .004 and .002.
    """
    rng, kept = np.random.default_rng(3), np.eye(3)[:, :1]
    who, hidden = np.repeat(np.arange(3000), 8), np.repeat(rng.integers(0, 2, 3000), 8).astype(np.int8)
    X = 0.1 * rng.standard_normal((len(who), 3)) + np.where(rng.random(len(who)) < 0.2, 2.0 * hidden - 1, 0)[:, None]
    data = VerificationSet(X.astype(np.float32), {"male": hidden}, who)
    sift = LinearSift(np.zeros(3), np.ones(3), kept, Quantiser([[-0.5, 0.5]]))

    def certified(*frames):
        parts = [Part(sift, count, permanent=True) for count in frames]
        return verify_together(parts, ["male"], data, LIGHT).certificates[0]

    single, smooth = (certified(count) for count in (1, 8))
    assert (single.symbols, single.estimate > 0.08 > 0.03 > smooth.estimate) == (3, True)
    assert certified(2, 2, 2) == certified(2)
    both = certified(1, 3)
    assert both.symbols > 3
    assert both.estimate > 0.08


def test_a_personal_permanent_symbol_pays_once_and_what_cannot_be_kept_does_not_go_out():
    kept = []
    book = PermanentSymbols(["youth"], kept.append, of(kept))
    drawn = {
        book.symbol("ann", "youth", PersonalSift(bit(0), 1.0), lambda: np.ones((5, 3)), count=5) for _ in range(20)
    }
    assert len(drawn) == len(kept) == 1
    assert book.charges("ann")[0].epsilon == 1.0

    def full(one):
        raise OSError("disk full")

    broken = PermanentSymbols(["youth"], full, of([]))
    with pytest.raises(OSError, match="full"):
        broken.symbol("ann", "youth", bit(0), lambda: np.ones((5, 3)), count=5)
    assert broken.charges("ann") == ()
