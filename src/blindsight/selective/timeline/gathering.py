"""Photos that wait until enough of them have gathered for a step of training."""

import numpy as np

from blindsight.selective.timeline.line import Photos


class Gathering:
    """One participant's photos that no step has used yet, in the order of arrival."""

    def __init__(self, batch: int) -> None:
        """Begin with none; `batch` of them make a step."""
        self._batch = batch
        self._waiting: Photos | None = None

    @property
    def batches(self) -> int:
        """How many steps there are photos for."""
        return 0 if self._waiting is None else len(self._waiting.labels) // self._batch

    def add(self, photos: Photos) -> None:
        """Take in new photos behind those that wait."""
        old = self._waiting
        if old is None or not len(old.labels):
            self._waiting = photos
        else:
            self._waiting = Photos(
                np.concatenate([old.inputs, photos.inputs]), np.concatenate([old.labels, photos.labels])
            )

    def take(self, batches: int) -> list[Photos]:
        """Return the oldest `batches`, which wait no longer."""
        assert self._waiting is not None
        assert batches <= self.batches
        inputs, labels = self._waiting
        cuts = range(0, batches * self._batch, self._batch)
        taken = [Photos(inputs[cut : cut + self._batch], labels[cut : cut + self._batch]) for cut in cuts]
        self._waiting = Photos(inputs[batches * self._batch :], labels[batches * self._batch :])
        return taken
