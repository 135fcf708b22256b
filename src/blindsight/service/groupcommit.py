"""Tasks that wait for the same slow step take it together, so that many cost hardly more of it than one.

The first that comes leads: it carries out its own task, alone. Those that come meanwhile wait, and the first of them
then leads all that wait. So nobody waits for company, and nobody waits longer than two rounds as long as no more than
`most` come during one. A round takes the tasks in the order in which they came.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from blindsight.errors import StorageError

Task = TypeVar("Task")
Result = TypeVar("Result")

MOST = 64
"""Tasks in one round."""


@dataclass(eq=False)
class _Place(Generic[Task, Result]):
    """Where a task waits: until it has an outcome, or until it is the first and must lead."""

    task: Task
    outcome: Result | Exception | None = None
    called: threading.Event = field(default_factory=threading.Event)


class GroupCommit(Generic[Task, Result]):
    """Carries out tasks of many threads in rounds.

    `carry_out` is told the tasks of a round and returns for each its result or the exception it ended with; what it
    raises, all of them raise.

    >>> GroupCommit(lambda numbers: [2 * number for number in numbers])(21)
    42
    """

    def __init__(self, carry_out: Callable[[Sequence[Task]], Sequence[Result | Exception]], most: int = MOST) -> None:
        self._carry_out, self._most = carry_out, most
        self._waiting: deque[_Place[Task, Result]] = deque()
        self._led = False
        self._mutex = threading.Lock()

    def __call__(self, task: Task) -> Result:
        """Have a task carried out; return its result, or raise what it ended with."""
        place: _Place[Task, Result] = _Place(task)
        with self._mutex:
            self._waiting.append(place)
            leads, self._led = not self._led, True
        if not leads:
            place.called.wait()
        if place.outcome is None:
            self._lead()
        if isinstance(place.outcome, Exception):
            raise place.outcome
        assert place.outcome is not None
        return place.outcome

    def _lead(self) -> None:
        """Carry out what waits, call the next one to lead, and let everybody in this round go."""
        with self._mutex:
            places = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        outcomes: Sequence[Result | Exception] = [StorageError("the service was interrupted.")] * len(places)
        try:
            outcomes = self._carry_out([place.task for place in places])
        except Exception as error:
            outcomes = [error] * len(places)
        finally:
            for place, outcome in zip(places, outcomes, strict=True):
                place.outcome = outcome
            with self._mutex:
                self._led = bool(self._waiting)
                if self._led:
                    self._waiting[0].called.set()
            for place in places:
                place.called.set()
