"""Killed before or after any write to disk, a run resumes with the same numbers, and a member sends the same."""

from contextlib import contextmanager

import numpy as np
import pytest

from blindsight import files
from blindsight.errors import InputError
from blindsight.rounds import Member, Memory, Update, run_here
from blindsight.sums import make_terms
from tests.rounds.learners import TEST, loaders, sums, task_of

KINDS = ("classifier", "k-means", "published classifier")
MOMENTS = ("before", "during", "after")
ROUNDS = 3


class KilledError(BaseException):
    """The process ends here."""


@pytest.fixture
def kill(monkeypatch):
    """Return what ends the process at a moment of the n-th write, and the list of files written so far."""
    real, written, at = files.atomic_writer, [], [None, None]

    @contextmanager
    def writer(path, **options):
        number, (chosen, moment) = len(written), at
        written.append(path)
        if (number, moment) == (chosen, "before"):
            raise KilledError
        with real(path, **options) as stream:
            yield stream
            if (number, moment) == (chosen, "during"):
                raise KilledError
        if (number, moment) == (chosen, "after"):
            raise KilledError

    monkeypatch.setattr(files, "atomic_writer", writer)

    def set_up(number=None, moment=None):
        at[:] = number, moment
        written.clear()
        return written

    return set_up


def play(kind, folder=None, scheme="plain"):
    chosen = sums(scheme, 0.5 if kind in ("classifier", "k-means") else 1.0)
    task, data = task_of(kind, chosen)
    run = run_here(task, chosen, loaders(data), rounds=ROUNDS, random_state=3, validation=TEST, checkpoint=folder)
    return run.state


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("kind", "scheme"), [(kind, "plain") for kind in KINDS] + [("classifier", "masks")])
def test_a_run_killed_at_any_write_resumes_and_ends_with_the_same_numbers(tmp_path, kill, kind, scheme, moment):
    written = kill()
    whole = play(kind, tmp_path / "whole", scheme)
    count = len(written)
    assert count == ROUNDS  # one file, once a round
    for number in range(count):
        folder = tmp_path / str(number)
        kill(number, moment)
        with pytest.raises(KilledError):
            play(kind, folder, scheme)
        written = kill()
        resumed = play(kind, folder, scheme)
        assert len(written) == count - number - (moment == "after")  # no round that was finished is played again
        assert (resumed.shared == whole.shared).all()
        assert [report.score for report in resumed.history] == [report.score for report in whole.history]
        assert (resumed.seed, resumed.first_score) == (whole.seed, whole.first_score)


def test_a_run_with_noise_writes_nothing_and_says_why_it_is_not_resumed(tmp_path, kill):
    written = kill()
    with pytest.raises(InputError, match="release"):
        play("private classifier", tmp_path)
    play("private classifier")
    assert written == []


STEPS = (("contribute", 1), ("settle", 1), ("contribute", 2), ("contribute", 3), ("settle", 3))
TERMS = make_terms("plain", run="a", members=("ann", "bob", "cem"), dimension=4, fraction_bits=10)


def member_sends(path, steps=STEPS):
    """Play the steps, each by a process of its own; return what was sent and the memory at last."""
    sent, entered = [], np.array([True, False, True, True])
    for step, round in steps:
        member = Member("ann", TERMS, path=path)
        if step == "settle":
            member.settle(round, entered)
            continue

        def learn(memory, round=round):
            pending = round / 7 + (0 if memory.held is None else memory.held) + np.zeros(4)
            return Update(pending, Memory(np.zeros(4), bytes([round])))

        sent.append((round, member.contribute(round, learn).tolist()))
    return sent, Member("ann", TERMS, path=path).memory


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_member_killed_at_any_write_sends_the_same_and_loses_nothing(tmp_path, kill, moment):
    written = kill()
    whole, memory = member_sends(tmp_path / "whole.npz")
    count = len(written)
    assert count == len(STEPS)
    for number in range(count):
        path = tmp_path / f"{number}.npz"
        kill(number, moment)
        with pytest.raises(KilledError):
            member_sends(path)
        kill()
        sent, held = member_sends(path, STEPS[number:])  # the step is asked for again
        assert sent == whole[len(whole) - len(sent) :]
        np.testing.assert_array_equal(held.held, memory.held)
        assert held.extra == memory.extra
