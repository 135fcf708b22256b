"""The bundled pictures and features that several exhibits are made from; drawn when the first one asks for them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from blindsight.data import Dataset, PixelFeatures, extract, load
from blindsight.learn.study import Study, divide
from blindsight.sift.trial import divide_rows

OWNERS = 5
LEARNED = ("smiling", "male", "eyeglasses", "outdoors")
"""What five owners learn to tell."""


@dataclass(frozen=True)
class Size:
    """How large the exhibits are. The defaults take about half a minute of one core; tests take less of everything."""

    pictures: int = 3000
    components: int = 200
    queries: int = 200
    rounds: int = 5
    key_bits: int = 3072
    seed: int = 0


class Stock:
    """Faces with features and a study of learning, each made once; nothing in it shows anybody who exists."""

    def __init__(self, size: Size) -> None:
        self.size = size

    @cached_property
    def faces(self) -> Dataset:
        """Drawn faces, five pictures of each person."""
        return load("faces", count=self.size.pictures, random_state=self.size.seed, pictures_per_person=5)

    @property
    def images(self) -> NDArray[np.uint8]:
        """Their pixels."""
        assert self.faces.images is not None
        return self.faces.images

    @cached_property
    def pipeline(self) -> PixelFeatures:
        """Features that learned from the developer's part of the faces alone."""
        developer, _ = divide_rows(len(self.faces), self.faces.persons, self.size.seed)
        return PixelFeatures(max_components=self.size.components, random_state=self.size.seed).fit(
            self.images[developer]
        )

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """Of all faces."""
        return extract(self.faces, self.pipeline)

    @cached_property
    def study(self) -> Study:
        """The faces shared out among five owners, each person with one of them."""
        division = divide(self.faces, owners=OWNERS, attributes=LEARNED, random_state=self.size.seed)
        pipeline = PixelFeatures(max_components=self.size.components // 2, random_state=self.size.seed)
        return Study.prepare(self.faces, division, pipeline)
