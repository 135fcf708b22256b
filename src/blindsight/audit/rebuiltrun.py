"""A run as it lies in a folder, and the data it was made from, divided among the owners as they were then."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.membership import Game
from blindsight.audit.targets import read_run
from blindsight.crypto.wire import decode
from blindsight.data import FeaturePipeline, load, pipeline
from blindsight.data.dataset import Dataset
from blindsight.errors import DataError, MessageError
from blindsight.files import cache_folder
from blindsight.learn.dphe.messages import Contribution, Shard
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.federation import fraction_bits
from blindsight.learn.labels import Classes
from blindsight.learn.linear import LARGEST_WEIGHT
from blindsight.learn.linearmodel import Standardiser
from blindsight.learn.model import LinearModel
from blindsight.learn.recording import RecordedRound
from blindsight.learn.study import Division, Study, divide
from blindsight.learn.sumterms import SumTerms
from blindsight.progress import Progress, silent

RECORDING = "recorded-round.npz"


@dataclass(frozen=True, eq=False)
class RebuiltRun:
    """What `learn encrypted` wrote: the model, and a recorded round if there is one; data are read when asked for."""

    about: dict[str, Any]
    model: LinearModel
    recorded: RecordedRound | None
    given: Dataset | None = None
    progress: Progress = field(default=silent, repr=False)

    @classmethod
    def load(cls, folder: Path, *, data: Dataset | None = None, progress: Progress = silent) -> Self:
        """Read a run; `data` stand for its collection where that cannot be read from where it was."""
        recording = folder / RECORDING
        recorded = RecordedRound.load(recording) if recording.exists() else None
        return cls(read_run(folder), LinearModel.load(folder / "model.npz"), recorded, data, progress)

    @property
    def name(self) -> str:
        """The run in a few words."""
        by = "" if self.recorded is None else f" by {self.recorded.scheme}"
        return f"the run of {self.about['owners']} owners of {self.about['data']}{by}"

    @cached_property
    def dataset(self) -> Dataset:
        """The collection, as the run read it."""
        if self.given is not None:
            return self.given
        about = self.about
        path = None if about["path"] is None else Path(about["path"])
        return load(about["data"], path=path, count=about["count"], random_state=about["seed"], progress=self.progress)

    @cached_property
    def division(self) -> Division:
        """Whose rows were whose."""
        about = self.about
        asked = [name.strip() for name in about["attributes"].split(",") if name.strip()]
        return divide(
            self.dataset,
            owners=about["owners"],
            attributes=asked,
            sharing=about["sharing"],
            random_state=about["seed"],
        )

    @cached_property
    def features(self) -> FeaturePipeline:
        """The pipeline of the run; once `study` was made it is fitted."""
        return pipeline(self.about["features"], components=self.about["components"], random_state=self.about["seed"])

    @cached_property
    def study(self) -> Study:
        """Everybody's features, checked to be those that the model was standardised by."""
        study = Study.prepare(self.dataset, self.division, self.features, cache=cache_folder(), progress=self.progress)
        mine, theirs = Standardiser.fit(study.public[0]), self.model.standardiser
        if mine.scale.shape != theirs.scale.shape or not np.allclose(mine.scale, theirs.scale, rtol=1e-3):
            raise DataError(f"{self.dataset.name} is not what this run was learned from: its public part has changed.")
        return study

    @property
    def classifier(self) -> LinearModel:
        """The part of the model that members are looked for in: all of it, or the first of its attributes."""
        if isinstance(self.model.labels, Classes):
            return self.model
        return LinearModel(self.model.weights[:1], self.model.standardiser, Classes(np.array([0, 1])))

    @property
    def game(self) -> Game:
        """Owners' rows are members; test rows are not. Rows of which the answer is unknown are left out."""
        pairs = [*self.study.owners.values(), self.study.test]
        X, y = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
        answers = y[:, 0] if self.study.multilabel else y
        member, known = np.arange(len(X)) < len(X) - len(self.study.test[0]), answers >= 0
        return Game(X[known], answers[known], member[known])


@dataclass(frozen=True, eq=False)
class EncodedRound:
    """The owners' updates of a recorded round, (owners, weights), and its sum, as the integers that were added up."""

    updates: NDArray[np.int64]
    total: NDArray[np.int64]
    terms: SumTerms

    @classmethod
    def of(cls, recorded: RecordedRound) -> Self:
        """Encode again what was sent, at the fixed point of classifiers."""
        users = tuple(recorded.sent)
        terms = SumTerms(
            run="audit",
            users=users,
            dimension=recorded.total.size,
            fraction_bits=fraction_bits(len(users), LARGEST_WEIGHT),
        )
        updates = np.array([terms.integers(update) for update in recorded.sent.values()])
        return cls(updates, np.rint(recorded.total * 2.0**terms.fraction_bits).astype(np.int64), terms)


@dataclass(frozen=True)
class PaillierSize:
    """What the messages of a DPHE round show to everybody: the length of its key, and ciphertexts in a shard."""

    key_bits: int
    ciphertexts: int

    @classmethod
    def of(cls, recorded: RecordedRound) -> Self | None:
        """Read it off the first contribution; None where there is none."""
        for message in recorded.messages.get(AGGREGATOR, ()):
            try:
                shard = decode(decode(message, Contribution).shard, Shard)
            except MessageError:
                continue  # of another kind
            return cls(shard.ciphertexts.shape[1] * 4, len(shard.places))  # a ciphertext has twice the key's length
        return None
