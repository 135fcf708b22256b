"""Pixels as PNG."""

from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a picture (height, width, 3) as the bytes of a PNG file."""
    buffer = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
