"""What the server of a run remembers on disk: the terms, the letters it carries, where the run stands, the answers.

A *round* is one step of learning; it may take several *attempts*, numbers that the schemes never use twice (`orders`).
The number of an attempt is on disk before anybody hears of it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from blindsight.crypto.wire import Message
from blindsight.federated.home import Home
from blindsight.federated.sums.runterms import RunTerms
from blindsight.files import atomic_writer, storage_errors
from blindsight.learn.dphe.storage import read_state, write_state


class _RunState(Message, name="federated/server-run.1"):
    terms: bytes
    own_setup: bytes
    letters: tuple[bytes, ...]


class _ProgressState(Message, name="federated/server-progress.1"):
    round: int
    attempt: int
    open: bool
    names: tuple[str, ...]
    counted: tuple[str, ...]


@dataclass
class Progress:
    """Where a run stands: `attempt` at `round` is the last that was begun, `open` until it has a sum or is given up.

    `counted` tells by user the last attempt whose sum holds its contribution.
    """

    round: int = 0
    attempt: int = -1
    open: bool = False
    counted: dict[str, int] = field(default_factory=dict)


class ServerRun:
    """One run in the server's home, whose `identity` signs what users are told to do."""

    def __init__(self, home: Home, terms: RunTerms, own_setup: bytes, letters: dict[str, bytes]) -> None:
        """Know what is kept there; `create` and `load` make one."""
        self.folder, self.terms, self.identity = home.run(terms.run), terms, home.identity
        self.own_setup, self.letters = own_setup, letters
        self.progress = Progress()

    @classmethod
    def create(cls, home: Home, terms: RunTerms, own_setup: bytes, letters: dict[str, bytes]) -> "ServerRun":
        """Keep a run that has been set up."""
        run, ordered = cls(home, terms, own_setup, letters), tuple(letters[user] for user in terms.users)
        write_state(run.folder / "run", _RunState(terms.to_bytes(), own_setup, ordered))
        return run

    @classmethod
    def load(cls, home: Home, name: str) -> "ServerRun":
        """Go on with a run."""
        state = read_state(home.folder(name) / "run", _RunState)
        terms = RunTerms.from_bytes(state.terms)
        run = cls(home, terms, state.own_setup, dict(zip(terms.users, state.letters, strict=True)))
        if run._progress_path.exists():
            kept = read_state(run._progress_path, _ProgressState)
            counted = dict(zip(kept.names, map(int, kept.counted), strict=True))
            run.progress = Progress(kept.round, kept.attempt, kept.open, counted)
        return run

    @property
    def _progress_path(self) -> Path:
        return self.folder / "progress"

    def keep_progress(self) -> None:
        """Write where the run stands through to the disk."""
        now = self.progress
        names, attempts = tuple(now.counted), tuple(map(str, now.counted.values()))
        write_state(self._progress_path, _ProgressState(now.round, now.attempt, now.open, names, attempts))

    def keep_answer(self, attempt: int, answer: bytes) -> None:
        """Keep an answer: from now on the attempt has a sum, which users will read later."""
        with atomic_writer(self._answer_path(attempt), private=True) as stream:
            stream.write(answer)

    def forget_answers(self) -> None:
        """Delete the answers that nobody needs any more."""
        needed = {self.progress.attempt, *self.progress.counted.values()}
        with storage_errors("clean", self.folder):
            for path in self.folder.glob("answer-*"):
                if int(path.name.removeprefix("answer-")) not in needed:
                    path.unlink()

    def has_answer(self, attempt: int) -> bool:
        """Tell whether an attempt has a sum."""
        return self._answer_path(attempt).exists()

    def answer(self, attempt: int) -> bytes:
        """Return a kept answer."""
        path = self._answer_path(attempt)
        with storage_errors("read", path):
            return path.read_bytes()

    def _answer_path(self, attempt: int) -> Path:
        return self.folder / f"answer-{attempt}"


def kept_terms(folder: Path) -> RunTerms:
    """Return the terms of the run that a server keeps in this folder."""
    return RunTerms.from_bytes(read_state(folder / "run", _RunState).terms)
