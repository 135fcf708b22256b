"""Painting many pictures at once: coordinates, soft-edged shapes and layers for a whole batch.

Every pixel array has the batch first, (b, height, width), and every trait of a face is (b, 1, 1) or, for a colour,
(b, 3, 1, 1), so one numpy expression draws the same thing on all faces with each face's own numbers. Shapes are
implicit functions, negative inside and positive outside; `cover` turns them into an anti-aliased layer.

Only + - * /, square roots, comparisons and floors touch pixels. They are exactly rounded everywhere, so a picture
depends neither on the batch it was drawn in nor on the processor or its mathematical library.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[Any]
"""Single precision throughout, which is checked where it matters: the type stubs would call many results double."""
Rows = NDArray[np.int64]

MAX_SHIFT, MAX_SCALE, MAX_SINE = 0.08, 1.24, 0.075
"""Bounds of a pose: shift in picture units (a picture spans -1..1), scale, sine of the roll."""

Colours = Sequence[tuple[int, int, int]]

_COLUMNS = 48
_SKIN = ((250, 209, 180), (240, 194, 160), (222, 172, 136), (196, 142, 102), (150, 102, 70), (104, 68, 46))
_HAIR = ((38, 28, 24), (58, 40, 30), (92, 62, 40), (128, 84, 48), (176, 130, 74), (208, 170, 108), (140, 66, 36))


@dataclass(frozen=True)
class Canvas:
    """A window onto a batch of pictures, with the coordinates of its pixels.

    `x` and `y` are in units of the head (the eyes lie at y = 0, the chin near 0.55) and roll with it; `face_x` replaces
    `x` on the face and moves when the head turns; `body_x` and `body_y` belong to the body, which does not roll;
    `right` and `down` are picture coordinates in -1..1, for the background.
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


class Dice:
    """Independent uniform numbers, one row per picture, handed out column by column as traits of shape (n, 1, 1)."""

    def __init__(self, uniforms: Array) -> None:
        self._columns = iter(np.ascontiguousarray(uniforms.T)[:, :, None, None])

    def uniform(self, low: Array | float = 0.0, high: Array | float = 1.0) -> Array:
        return np.asarray(low + (high - low) * next(self._columns), dtype=np.float32)

    def normal(self, mean: Array | float, spread: Array | float) -> Array:
        """Draw a bell-shaped number, cut at 2.3 spreads so that no face is grotesque."""
        return np.asarray(mean + spread * ndtri(np.clip(next(self._columns), 0.01, 0.99)), dtype=np.float32)

    def chance(self, probability: Array | float) -> Array:
        return np.asarray(next(self._columns) < probability, dtype=np.float32)

    def pick(self, count: int) -> Array:
        choice: Array = np.floor(next(self._columns) * np.float32(count))
        return choice

    def colour(self, colours: Colours) -> Array:
        return palette(colours, self.pick(len(colours)))


def palette(colours: Colours, index: Array) -> Array:
    table = np.asarray(colours, dtype=np.float32) / np.float32(255.0)
    return table[index[:, 0, 0].astype(np.int64)][:, :, None, None]


class Part:
    """A part of the picture: traits of shape (n, 1, 1) or (n, 3, 1, 1), one row per picture, or smaller parts."""

    def __getitem__(self, rows: Rows | slice) -> Self:
        some = object.__new__(type(self))
        for name, trait in vars(self).items():
            # Double precision would double the cost of every pixel.
            assert isinstance(trait, Part) or trait.dtype == np.float32, f"{type(self).__name__}.{name}"
            vars(some)[name] = trait[rows]
        return some


class Sitting:
    """The sitter and the circumstances: the numbers that several parts of a picture share.

    Every part of a picture owns two random streams, one per person and one per picture, and takes one column of uniform
    numbers per trait whatever the attributes are. So pictures of one person share a face, the first pictures of a long
    series equal a short series, and switching one attribute leaves all other traits as they were.
    """

    def __init__(self, has: Mapping[str, Array], persons: Rows, streams: Iterator[np.random.Generator]) -> None:
        self.has = has  # attribute name -> 0 or 1
        self.persons, self.streams = persons, streams
        person, moment = self.dice()
        # About -1 or 1, blurred: the build behind jaw, brows, lips, neck and shoulders.
        self.masculine = masculine = person.normal(2.0 * has["male"] - 1.0, 0.35)
        self.age = age = np.clip(person.normal(0.75 - 0.8 * has["youth"], 0.12), 0.0, 1.0)  # 0 young to 1 old
        pale, other = person.uniform(0.0, 0.22), person.uniform(0.30, 1.0)
        self.melanin = np.where(has["pale_skin"] > 0, pale, other)  # 0 palest to 1 darkest
        left = has["looking_left"]
        self.bald = person.chance(0.45) * flag((masculine > 0.3) & (age > 0.3)) * (1.0 - has["long_hair"])
        self.headband = np.maximum(self.bald, moment.chance(0.12)) * has["obstructed_forehead"] * (1.0 - has["hat"])
        self.skin = _skin_colour(self.melanin)
        self.hair = _hair_colour(person, self.melanin, age)
        self.head_width = person.normal(0.405 + 0.012 * masculine, 0.014)
        self.chin = person.normal(0.545 + 0.02 * masculine + 0.02 * age, 0.015)
        self.eyes_apart = person.normal(0.182, 0.009)
        self.neck = person.normal(0.200 + 0.028 * masculine, 0.012)  # half its width
        self.light_x = np.clip(moment.normal(0.0, 0.45), -0.9, 0.9)  # where the light comes from: -1 left, 1 right
        self.light_y = moment.uniform(0.15, 0.55)  # how much from above
        self.contrast = moment.uniform(0.16, 0.34)
        # Of the head: -1 left edge of the picture, 1 right edge.
        self.turn = np.clip(moment.normal(0.15 - 0.85 * left, 0.28 - 0.10 * left), -1.0, 1.0)

    def dice(self) -> tuple[Dice, Dice]:
        """Return fresh dice for the next part: the same for all pictures of a person, and new for every picture."""
        per_person = next(self.streams).random((int(self.persons.max()) + 1, _COLUMNS), dtype=np.float32)
        per_picture = next(self.streams).random((len(self.persons), _COLUMNS), dtype=np.float32)
        return Dice(per_person[self.persons]), Dice(per_picture)


def _skin_colour(melanin: Array) -> Array:
    stops, table = np.linspace(0.0, 1.0, len(_SKIN)), np.asarray(_SKIN) / 255.0
    return np.stack([np.interp(melanin, stops, table[:, i]) for i in range(3)], axis=1).astype(np.float32)


def _hair_colour(person: Dice, melanin: Array, age: Array) -> Array:
    dark, any_shade = person.pick(3), person.pick(len(_HAIR))
    shade = palette(_HAIR, np.where(person.uniform() < 0.25 + 0.9 * melanin, dark, any_shade))
    greying = np.clip(age * person.uniform(0.2, 1.4), 0.0, 0.95) * (age > 0.4)
    return mix(shade, rgb(186, 184, 182) * person.uniform(0.75, 1.15)[:, None], greying)


class Pose(Part):
    """Where the head is: shifted, scaled and rolled in the picture, turned to a side."""

    def __init__(self, sitting: Sitting) -> None:
        _, moment = sitting.dice()
        self.shift_x = moment.normal(0.0, 0.02)
        self.shift_y = moment.normal(0.04, 0.013)
        self.scale = moment.normal(1.15, 0.03)
        self.sine = moment.normal(0.0, 0.03)  # of the roll
        self.turn = sitting.turn
        self.width = sitting.head_width  # half the width of the head: the length over which a turn moves the features
        assert max(np.abs(self.shift_x).max(), np.abs(self.shift_y).max()) <= MAX_SHIFT
        assert self.scale.min() >= 1.0
        assert self.scale.max() <= MAX_SCALE
        assert np.abs(self.sine).max() <= MAX_SINE

    def canvas(self, size: int) -> Canvas:
        centres = (np.arange(size, dtype=np.float32) + np.float32(0.5)) * np.float32(2.0 / size) - np.float32(1.0)
        right, down = centres[None, None, :], centres[None, :, None]
        body_x, body_y = (right - self.shift_x) / self.scale, (down - self.shift_y) / self.scale
        cosine = np.sqrt(1.0 - self.sine * self.sine)
        x, y = cosine * body_x + self.sine * body_y, cosine * body_y - self.sine * body_x
        face_x = x - 0.115 * self.turn * np.maximum(1.0 - (x / self.width) ** 2, 0.0)
        pixels = np.empty((len(x), 3, size, size), dtype=np.float32)
        pixel = np.float32(2.0 / size) / self.scale
        return Canvas(pixels, x, y, face_x, body_x, body_y, right, down, pixel)


def flag(condition: NDArray[np.bool_]) -> Array:
    return condition.astype(np.float32)
