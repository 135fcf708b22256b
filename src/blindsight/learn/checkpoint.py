"""A run that was killed goes on from its last finished round, on the same data and settings, or not at all.

One file, replaced atomically after each round and readable by its owner alone: it holds what owners have not sent yet.
In this simulation all owners share a process, hence one file; between real parties each would keep its own.

A round that was interrupted is played again with the same updates. Were its sum read before, and an owner missing the
second time, the two sums would differ by what that owner sent. Here nobody reads a sum but the process that was killed;
between real parties the key generator (`dphe.keygenerator`) never decrypts a round for two sets of users.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import CorruptFileError, InputError
from blindsight.files import read_arrays, storage_errors, write_arrays
from blindsight.learn.federation import FederationState, Memory
from blindsight.learn.rounds import RoundReport

_KIND = "blindsight/federation-checkpoint.1"


@dataclass(frozen=True)
class Checkpoint:
    """Where a run keeps its state; `run` is a fingerprint of all that decides its course."""

    folder: Path
    run: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "state.npz"

    def save(self, state: FederationState) -> None:
        """Replace what is kept by this state."""
        memories = state.memories
        document = {
            "run": self.run,
            "seed": state.seed,
            "first score": state.first_score,
            "strengths": {name: memory.strength for name, memory in memories.items()},
            "history": [report.to_dict() for report in state.history],
        }
        arrays: dict[str, NDArray[Any]] = {"shared": state.shared}
        for number, memory in enumerate(memories.values()):
            if memory.held is not None:
                arrays[f"held-{number}"] = memory.held
        write_arrays(self.path, _KIND, document, arrays, private=True)

    def load(self) -> FederationState | None:
        """Return the state after the last finished round, None if there is none; that of another run is refused."""
        with storage_errors("use", self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in self.folder.glob(f".{self.path.name}.*.part"):
                part.unlink()  # a writer was killed in the middle
            if not self.path.exists():
                return None
        document, arrays = read_arrays(self.path, _KIND)
        if document["run"] != self.run:
            raise InputError(
                f"{self.folder} holds the checkpoint of another run: its owners, data or settings differ. "
                "Use another folder, or delete it to begin anew."
            )
        try:
            memories = {
                name: Memory(_writable(arrays.get(f"held-{number}")), strength)
                for number, (name, strength) in enumerate(document["strengths"].items())
            }
            history = tuple(RoundReport.from_dict(report) for report in document["history"])
            return FederationState(arrays["shared"], memories, history, document["seed"], document["first score"])
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptFileError(f"{self.path} holds no usable checkpoint: {error}.") from None


def _writable(array: NDArray[Any] | None) -> NDArray[np.float64] | None:
    return None if array is None else np.array(array, dtype=np.float64)
