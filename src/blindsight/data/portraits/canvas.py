"""Painting many pictures at once: coordinates, soft-edged shapes and layers for a whole batch.

Every pixel array has the batch first, (b, height, width), and every trait of a face is (b, 1, 1) or, for a colour,
(b, 3, 1, 1), so one numpy expression draws the same thing on all faces with each face's own numbers. Shapes are
implicit functions, negative inside and positive outside; `cover` turns them into an anti-aliased layer.

Only + - * /, square roots, comparisons and floors touch pixels. They are exactly rounded everywhere, so a picture
depends neither on the batch it was drawn in nor on the processor or its mathematical library.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""Single precision throughout, which is checked where it matters: the type stubs would call many results double."""
Rows = NDArray[np.int64]

MAX_SHIFT, MAX_SCALE, MAX_SINE = 0.08, 1.24, 0.075
"""Bounds of a pose: shift in picture units (a picture spans -1..1), scale, sine of the roll."""


@dataclass(frozen=True)
class Canvas:
    """A window onto a batch of pictures, with the coordinates of its pixels.

    `x` and `y` are in units of the head (the eyes lie at y = 0, the chin near 0.55) and roll with it; `face_x` replaces
    `x` for what lies on the face and moves when the head turns; `body_x` and `body_y` belong to the body, which does
    not roll; `right` and `down` are picture coordinates in -1..1, for the background.
    """

    pixels: Array  # (b, 3, h, w), 0..1
    x: Array
    y: Array
    face_x: Array
    body_x: Array  # (b, 1, w)
    body_y: Array  # (b, h, 1)
    right: Array  # (1, 1, w)
    down: Array  # (1, h, 1)
    pixel: Array  # (b, 1, 1): the size of one pixel in head units

    def crop(self, left: float, top: float, right: float, bottom: float) -> Self:
        """Return the window that holds this box of head units in every allowed pose; painting writes through."""
        tall, wide = max(abs(top), abs(bottom)), max(abs(left), abs(right))
        columns = slice(self._edge(left, tall, -1), self._edge(right, tall, 1))
        rows = slice(self._edge(top, wide, -1), self._edge(bottom, wide, 1))
        return replace(
            self,
            pixels=self.pixels[:, :, rows, columns],
            x=self.x[:, rows, columns],
            y=self.y[:, rows, columns],
            face_x=self.face_x[:, rows, columns],
            body_x=self.body_x[:, :, columns],
            body_y=self.body_y[:, rows, :],
            right=self.right[:, :, columns],
            down=self.down[:, rows, :],
        )

    def _edge(self, along: float, across: float, sign: int) -> int:
        """Return the outermost pixel to which a pose can carry the box edge at `along`."""
        size = self.pixels.shape[-1]
        reach = along * (MAX_SCALE if along * sign > 0 else 1.0) + sign * (MAX_SCALE * MAX_SINE * across + MAX_SHIFT)
        return int(np.clip((reach + 1.0) / 2.0 * size + (sign > 0), 0, size))

    @contextmanager
    def only(self, chosen: NDArray[np.bool_]) -> Iterator[tuple[Self, Rows]]:
        """Paint on the pictures where `chosen` (b, 1, 1) is true; gives their canvas and their rows in the batch."""
        rows = np.flatnonzero(chosen)
        names = ("pixels", "x", "y", "face_x", "body_x", "body_y", "pixel")
        part = replace(self, **{name: getattr(self, name)[rows] for name in names})
        yield part, rows
        self.pixels[rows] = part.pixels

    def paint(self, layer: Array, colour: Array, tone: Array | None = None) -> None:
        """Lay a colour, brightened by `tone` where given, over the pixels as far as `layer` (0..1) covers them."""
        blend = (colour if tone is None else colour * tone[:, None]) - self.pixels
        assert blend.dtype == layer.dtype == np.float32
        blend *= layer[:, None]
        self.pixels[...] += blend

    def shade(self, amount: Array, tint: Array | None = None) -> None:
        """Brighten (amount > 0) or darken the pixels by a fraction, weighed per channel by `tint` where given."""
        factor = amount[:, None] if tint is None else amount[:, None] * tint
        assert factor.dtype == np.float32
        self.pixels[...] *= 1.0 + factor


def cover(distance: Array, softness: Array | float) -> Array:
    """Turn a signed distance into coverage: 1 inside, 0 outside, linear over `softness` in between."""
    layer: Array = distance * (np.float32(-1.0) / softness)
    layer += np.float32(0.5)
    np.clip(layer, 0.0, 1.0, out=layer)
    return layer


def bump(square: Array) -> Array:
    """Return a soft blob: 1 where the squared radius is 0, falling to 0 where it is 1."""
    rest = np.maximum(1.0 - square, 0.0)
    rest *= rest
    return rest


def ellipse(dx: Array, dy: Array, wide: Array | float, tall: Array | float) -> Array:
    """Return, nearly, the signed distance to an ellipse of these half-axes, however flat it is."""
    u, v = dx / wide, dy / tall
    radius = np.sqrt(u * u + v * v)
    u, v = u / wide, v / tall
    distance: Array = radius * (radius - 1.0) / np.maximum(np.sqrt(u * u + v * v), np.float32(1e-6))
    return distance


def squircle(across: Array, down: Array, corner: Array | float) -> Array:
    """Return the radius in a shape between ellipse (corner 0) and rectangle (corner 1), from squared coordinates."""
    radius: Array = np.sqrt(across + down - corner * np.minimum(across, 1.0) * np.minimum(down, 1.0))
    return radius


def wave(phase: Array) -> Array:
    """Return a smooth wave of period 1 between -1 and 1: a sine, but made of parabolas.

    >>> wave(np.array([0.0, 0.25, 0.75, 1.25], dtype=np.float32)).tolist()
    [0.0, 1.0, -1.0, 1.0]
    """
    offset: Array = phase - np.floor(phase + np.float32(0.5))
    return offset * (8.0 - 16.0 * np.abs(offset))


def rgb(red: float, green: float, blue: float) -> Array:
    """Return one colour, 0..255 per channel, in the shape (1, 3, 1, 1) that suits every picture."""
    return np.array([red, green, blue], dtype=np.float32).reshape(1, 3, 1, 1) / np.float32(255.0)


def mix(first: Array, second: Array, share: Array | float) -> Array:
    """Blend two colours; `share`, a number or (n, 1, 1), is the second one's part."""
    weight = share[:, None] if isinstance(share, np.ndarray) else share
    return first + (second - first) * weight
