"""Four pictures side by side: the original, and what a plain update, the aggregator's view and a sift show of it.

A decoder of faces draws faces, whatever it is given: from noise it draws a ghost that is nobody. Whether a picture is a
likeness is for the figures to say, not for the eye alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.audit.inversion.decoder import Pictures
from blindsight.data.contactsheet import contact_sheet
from blindsight.errors import InputError

VIEWS = ("plain", "aggregator", "sift")
"""Who holds something of a picture: whoever gets a plain update, the aggregator of a scheme, an app with a sift."""

_CAPTIONS = {"plain": "plain update", "aggregator": "aggregator", "sift": "sift"}

Picture = NDArray[np.uint8]
"""(height, width, 3)."""


@dataclass(frozen=True, eq=False)
class PictureRow:
    """One original and its reconstructions, each with its SSIM; `blind` is the SSIM of the average public picture."""

    original: Picture
    plain: Picture
    aggregator: Picture
    sift: Picture
    similarity: tuple[float, float, float]
    """In the order of `VIEWS`."""
    blind: float

    @property
    def pictures(self) -> Pictures:
        """All four, original first."""
        return np.stack([self.original, self.plain, self.aggregator, self.sift])

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data; the pictures themselves are left out."""
        return {"ssim": dict(zip(VIEWS, self.similarity, strict=True)), "blind": self.blind}


def picture_strip(rows: Sequence[PictureRow], *, scale: int | None = None) -> Image.Image:
    """Return one line of four captioned pictures per row, to be looked at by a person."""
    if not rows:
        raise InputError("a strip needs one row of pictures at least.")
    captions = [caption for row in rows for caption in _captions(row)]
    return contact_sheet(np.concatenate([row.pictures for row in rows]), columns=4, captions=captions, scale=scale)


def _captions(row: PictureRow) -> list[str]:
    shown = [f"{_CAPTIONS[view]}: SSIM {score:.2f}" for view, score in zip(VIEWS, row.similarity, strict=True)]
    return [f"original (blind {row.blind:.2f})", *shown]
