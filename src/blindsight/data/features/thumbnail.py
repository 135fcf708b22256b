"""Images as small grey pictures of unit length: features that nobody had to learn.

Every image is reduced to grey, stretched to `side` x `side` pixels (bicubic, antialiased) and divided by its Euclidean
norm, so that neighbours are pictures of a similar pattern whatever their brightness. Nothing is fitted, so the features
of one image depend on that image alone: a private search may use them without giving anything else away.
"""

from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.data.features.planes import Float32, check_images
from blindsight.errors import InputError

_VERSION = 1  # raised whenever the same images would give other features


class Thumbnails:
    """Grey thumbnails of unit norm: float32 (n, side * side); a black image stays zero."""

    def __init__(self, side: int = 28) -> None:
        if isinstance(side, bool) or not isinstance(side, int) or not 2 <= side <= 512:
            raise InputError(f"the side of a thumbnail is a whole number of pixels in [2, 512]; got {side!r}.")
        self.side = side

    def __repr__(self) -> str:
        return f"Thumbnails(side={self.side})"

    @property
    def n_components_(self) -> int:
        """Return the number of features of an image."""
        return self.side * self.side

    def fit(self, images: NDArray[np.uint8]) -> Self:
        """Check the images; there is nothing to learn."""
        check_images(images)
        return self

    def transform(self, images: NDArray[np.uint8]) -> Float32:
        """Return the thumbnails, one row each.

        >>> Thumbnails(side=2).transform(np.full((1, 4, 4, 3), 9, dtype=np.uint8))
        array([[0.5, 0.5, 0.5, 0.5]], dtype=float32)
        """
        check_images(images)
        rows = np.empty((len(images), self.side * self.side), dtype=np.float32)
        for row, image in zip(rows, images, strict=True):
            grey = Image.fromarray(np.ascontiguousarray(image)).convert("L")
            if grey.size != (self.side, self.side):
                grey = grey.resize((self.side, self.side), Image.Resampling.BICUBIC)
            row[:] = np.asarray(grey, dtype=np.float32).ravel()
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        result: Float32 = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
        return result

    def fingerprint(self) -> str:
        """Return everything that decides the output."""
        return f"Thumbnails version={_VERSION} side={self.side}"
