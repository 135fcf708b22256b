"""Tasks of many threads are carried out in rounds: each once, in order, and nobody waits for ever."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pytest
from smallservice import together

from blindsight.errors import StorageError
from blindsight.service.releases import GroupCommit


class Rounds:
    """Doubles numbers and notes what came together."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def __call__(self, numbers):
        self.seen.append(list(numbers))
        return [ValueError(f"{number} is negative") if number < 0 else 2 * number for number in numbers]


def calls(commit, *numbers):
    return [lambda number=number: commit(number) for number in numbers]


def test_who_comes_alone_goes_alone_and_those_who_wait_go_together_in_rounds_of_at_most_so_many():
    rounds = Rounds()
    commit = GroupCommit(rounds)
    assert [commit(number) for number in (1, 2, 3)] == [2, 4, 6]
    assert rounds.seen == [[1], [2], [3]]
    assert together(commit, *calls(commit, 5, 3, 9, 1)) == [10, 6, 18, 2]
    assert rounds.seen[3:] == [[5, 3, 9, 1]]
    assert commit(7) == 14  # and then one comes alone again
    rounds = Rounds()
    commit = GroupCommit(rounds, most=2)
    assert together(commit, *calls(commit, *range(5))) == [0, 2, 4, 6, 8]
    assert rounds.seen == [[0, 1], [2, 3], [4]]


def test_who_comes_during_a_round_waits_for_the_next():
    begun, go_on, rounds = Event(), Event(), Rounds()

    def slowly(numbers):
        begun.set()
        go_on.wait(120)
        return rounds(numbers)

    commit = GroupCommit(slowly)
    found = {}
    thread = Thread(target=lambda: found.update({1: commit(1)}))
    thread.start()
    assert begun.wait(120)

    async def both():
        asked = asyncio.gather(commit.each([2, -3]), commit.each([4]))
        await asyncio.sleep(0)  # both wait now
        go_on.set()
        return await asked

    (double, failed), (last,) = asyncio.run(both())
    thread.join()
    assert (found, double, str(failed), last) == ({1: 2}, 4, "-3 is negative", 8)
    assert rounds.seen == [[1], [2, -3, 4]]


def test_one_that_fails_fails_alone():
    commit = GroupCommit(Rounds())
    first, failed, last = together(commit, *calls(commit, 1, -2, 3))
    assert (first, str(failed), last) == (2, "-2 is negative", 6)
    with pytest.raises(ValueError, match="-4 is negative"):
        commit(-4)


def test_what_fails_for_all_fails_for_all_and_the_next_goes_on():
    rounds = Rounds()

    def failing_first(numbers):
        if 1 in numbers:
            raise StorageError("the disk is full.")
        return rounds(numbers)

    commit = GroupCommit(failing_first, most=2)
    first, second, third = together(commit, *calls(commit, 1, 2, 3))
    assert first is second
    assert str(first) == "the disk is full."
    assert third == 6


def test_an_interrupted_leader_leaves_nobody_waiting():
    def interrupted(numbers):
        if 1 in numbers:
            raise KeyboardInterrupt
        return [2 * number for number in numbers]

    commit = GroupCommit(interrupted, most=2)
    leader, follower, third = together(commit, *calls(commit, 1, 2, 3))
    assert isinstance(leader, KeyboardInterrupt)
    assert isinstance(follower, StorageError)
    assert third == 6


def test_a_crowd_gets_its_own_results_each_once():
    rounds = Rounds()
    commit = GroupCommit(rounds, most=5)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(commit, range(400))) == [2 * number for number in range(400)]
    assert sorted(number for one in rounds.seen for number in one) == list(range(400))
    assert max(map(len, rounds.seen)) <= 5


def test_a_thread_without_work_ends_and_the_next_task_starts_another(monkeypatch):
    monkeypatch.setattr("blindsight.service.releases._IDLE", 0.01)
    commit = GroupCommit(Rounds())
    for number in range(3):
        assert commit(number) == 2 * number
        if (thread := commit._thread) is not None:
            thread.join(120)
            assert not thread.is_alive()
    assert commit._thread is None
