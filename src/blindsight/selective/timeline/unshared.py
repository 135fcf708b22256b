"""What sharing is compared with: a model that never learns on, everyone learning alone, and all photos in one place.

"No update" and "centralised" are the two benchmarks in Figure 4 of PPDL (Bu 2019). The centralised line makes the steps
of a single participant who takes everybody's photos, so that only the sharing differs from the other lines.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from blindsight.selective.sparseupdate import Vector
from blindsight.selective.timeline.gathering import Gathering
from blindsight.selective.timeline.line import Against, Photos, Setting, Traffic
from blindsight.statement import PrivacyStatement


@dataclass(frozen=True)
class NeverUpdated:
    """The initial model stays as it is."""

    name: str = "never updated"

    def begin(self, setting: Setting) -> "_NeverUpdated":
        """Return the line at the end of day 0."""
        return _NeverUpdated(setting)


@dataclass(frozen=True)
class LocalOnly:
    """Everyone learns from its own photos, shares nothing, and is scored with its own model."""

    name: str = "local only"

    def begin(self, setting: Setting) -> "_LocalOnly":
        """Return the line at the end of day 0."""
        return _LocalOnly(setting)


@dataclass(frozen=True)
class Centralised:
    """Everyone gives its photos away, and one model learns from all of them.

    Its uploads are photos; their bytes are those of the arrays that the trainer takes.
    """

    name: str = "centralised"

    def begin(self, setting: Setting) -> "_Centralised":
        """Return the line at the end of day 0."""
        return _Centralised(setting)


class _NeverUpdated:
    def __init__(self, setting: Setting) -> None:
        self.traffic = Traffic()
        self._parameters = setting.initial

    def day(self, photos: Mapping[str, Photos]) -> None:
        pass

    def parameters_for(self, participant: str) -> Vector:
        return self._parameters

    def statement(self) -> PrivacyStatement:
        return _nothing_leaves("nothing is learned from the participants' photos")

    def against(self) -> Against:
        return "everybody"


class _Learner:
    """A model that makes a step whenever enough photos have gathered."""

    def __init__(self, setting: Setting, place: int) -> None:
        self.parameters = setting.initial
        self._trainer = setting.make_trainer(record_noise=None)
        self._rng = setting.generator(place)
        self._gathering = Gathering(setting.batch)

    def learn(self, photos: Photos) -> None:
        self._gathering.add(photos)
        for batch in self._gathering.take(self._gathering.batches):
            seed = int(self._rng.integers(2**63))
            self.parameters = self._trainer.train(self.parameters, batch.inputs, batch.labels, seed)


class _LocalOnly:
    def __init__(self, setting: Setting) -> None:
        self.traffic = Traffic()
        self._learners = {name: _Learner(setting, place) for place, name in enumerate(setting.participants)}

    def day(self, photos: Mapping[str, Photos]) -> None:
        for name, taken in photos.items():
            self._learners[name].learn(taken)

    def parameters_for(self, participant: str) -> Vector:
        return self._learners[participant].parameters

    def statement(self) -> PrivacyStatement:
        return _nothing_leaves(
            "everyone learns from its own photos, and what it learned stays with it",
            "what a participant's own model tells about its photos, if it is passed on",
        )

    def against(self) -> Against:
        return "everybody"


class _Centralised:
    def __init__(self, setting: Setting) -> None:
        self.traffic = Traffic()
        self._learner = _Learner(setting, 0)
        self._given: Counter[str] = Counter()

    def day(self, photos: Mapping[str, Photos]) -> None:
        pooled = _interleaved([taken for taken in photos.values() if len(taken.labels)])
        self.traffic.uploads += len(pooled.labels)
        self._given.update({name: len(taken.labels) for name, taken in photos.items()})
        self.traffic.most_each = max(self._given.values())
        self.traffic.bytes_up += pooled.inputs.nbytes + pooled.labels.nbytes
        self._learner.learn(pooled)

    def parameters_for(self, participant: str) -> Vector:
        return self._learner.parameters

    def statement(self) -> PrivacyStatement:
        return PrivacyStatement(
            guarantee="none",
            mechanism="none: photos are given away",
            unit=None,
            epsilon=None,
            delta=None,
            randomness="none",
            who_sees={"server": "every photo of every participant", "anyone with the model": "the parameters"},
            not_protected=("anything",),
        )

    def against(self) -> Against:
        return "nobody"


def _nothing_leaves(why: str, *not_protected: str) -> PrivacyStatement:
    """Return the statement of a line in which nobody else sees anything that depends on a participant's photos."""
    return PrivacyStatement(
        guarantee="differential privacy",
        mechanism=f"none needed: {why}",
        unit="person",
        epsilon=0.0,
        delta=0.0,
        neighbours="add/remove",
        accountant="basic",
        randomness="none",
        who_sees={"participant": "its own photos and its own model", "everybody else": "the initial model"},
        not_protected=("the photos of day 0, which are public", *not_protected),
    )


def _interleaved(parts: list[Photos]) -> Photos:
    """Return all photos of a day, those of each participant evenly spread over the day and in their order."""
    moments = np.concatenate([(np.arange(len(labels)) + 0.5) / len(labels) for _, labels in parts])
    order = np.argsort(moments, kind="stable")
    inputs, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Photos(inputs[order], labels[order])
