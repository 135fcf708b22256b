"""Who sits for a portrait, and in which circumstances: the numbers that several parts of a picture share.

Chance is organised so that nothing disturbs anything else. Every part of a picture owns two streams, one drawn per
person and one per picture, and takes one column of uniform numbers per trait whatever the attributes are. So pictures
of one person share a face, the first pictures of a long series equal a short series, and switching one attribute
leaves all other traits as they were.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from blindsight.data.portraits.canvas import MAX_SCALE, MAX_SHIFT, MAX_SINE, Array, Canvas, Rows, mix, rgb

_COLUMNS = 48
_SKIN = ((250, 209, 180), (240, 194, 160), (222, 172, 136), (196, 142, 102), (150, 102, 70), (104, 68, 46))
_HAIR = ((38, 28, 24), (58, 40, 30), (92, 62, 40), (128, 84, 48), (176, 130, 74), (208, 170, 108), (140, 66, 36))
_GREY = rgb(186, 184, 182)

Colours = Sequence[tuple[int, int, int]]


class Dice:
    """Independent uniform numbers, one row per picture, handed out column by column as traits of shape (n, 1, 1)."""

    def __init__(self, uniforms: Array) -> None:
        self._columns = iter(np.ascontiguousarray(uniforms.T)[:, :, None, None])

    def uniform(self, low: Array | float = 0.0, high: Array | float = 1.0) -> Array:
        """Draw evenly between two bounds."""
        return np.asarray(low + (high - low) * next(self._columns), dtype=np.float32)

    def normal(self, mean: Array | float, spread: Array | float) -> Array:
        """Draw a bell-shaped number, cut at 2.3 spreads so that no face is grotesque."""
        return np.asarray(mean + spread * ndtri(np.clip(next(self._columns), 0.01, 0.99)), dtype=np.float32)

    def chance(self, probability: Array | float) -> Array:
        """Draw 1 with this probability, else 0."""
        return np.asarray(next(self._columns) < probability, dtype=np.float32)

    def pick(self, count: int) -> Array:
        """Draw one of 0, 1, ..., count - 1."""
        choice: Array = np.floor(next(self._columns) * np.float32(count))
        return choice

    def colour(self, colours: Colours) -> Array:
        """Draw one of these colours, 0..255 per channel."""
        return palette(colours, self.pick(len(colours)))


def palette(colours: Colours, index: Array) -> Array:
    """Return the colours (n, 3, 1, 1) at these places (n, 1, 1) of a list."""
    table = np.asarray(colours, dtype=np.float32) / np.float32(255.0)
    return table[index[:, 0, 0].astype(np.int64)][:, :, None, None]


@dataclass(frozen=True)
class Part:
    """A part of the picture: traits of shape (n, 1, 1) or (n, 3, 1, 1), one row per picture, or smaller parts."""

    def __post_init__(self) -> None:
        """Check that no trait slipped into double precision, which would double the cost of every pixel."""
        for trait in fields(self):
            value = getattr(self, trait.name)
            assert isinstance(value, Part) or value.dtype == np.float32, f"{type(self).__name__}.{trait.name}"

    def __getitem__(self, rows: Rows | slice) -> Self:
        return replace(self, **{trait.name: getattr(self, trait.name)[rows] for trait in fields(self)})


@dataclass(frozen=True)
class Sitting:
    """A series of portraits before a stroke is painted: attributes, circumstances, and what parts have in common."""

    has: Mapping[str, Array]  # attribute name -> 0 or 1
    persons: Rows
    streams: Iterator[np.random.Generator]
    masculine: Array  # about -1 or 1, blurred: the build behind jaw, brows, lips, neck and shoulders
    age: Array  # 0 young to 1 old
    melanin: Array  # 0 palest to 1 darkest
    skin: Array
    hair: Array
    head_width: Array
    chin: Array
    eyes_apart: Array
    neck: Array  # half its width
    bald: Array
    headband: Array
    light_x: Array  # where the light comes from: -1 left, 1 right
    light_y: Array  # how much from above
    contrast: Array
    turn: Array  # of the head: -1 left edge of the picture, 1 right edge

    @classmethod
    def arrange(cls, has: Mapping[str, Array], persons: Rows, streams: Iterator[np.random.Generator]) -> Self:
        """Settle who sits and how the light falls."""
        person, moment = _dice(persons, streams)
        masculine = person.normal(2.0 * has["male"] - 1.0, 0.35)
        age = np.clip(person.normal(0.75 - 0.8 * has["youth"], 0.12), 0.0, 1.0)
        pale, other = person.uniform(0.0, 0.22), person.uniform(0.30, 1.0)
        melanin = np.where(has["pale_skin"] > 0, pale, other)
        left = has["looking_left"]
        bald = person.chance(0.45) * flag((masculine > 0.3) & (age > 0.3)) * (1.0 - has["long_hair"])
        headband = np.maximum(bald, moment.chance(0.12)) * has["obstructed_forehead"] * (1.0 - has["hat"])
        return cls(
            has=has,
            persons=persons,
            streams=streams,
            masculine=masculine,
            age=age,
            melanin=melanin,
            skin=_skin_colour(melanin),
            hair=_hair_colour(person, melanin, age),
            head_width=person.normal(0.405 + 0.012 * masculine, 0.014),
            chin=person.normal(0.545 + 0.02 * masculine + 0.02 * age, 0.015),
            eyes_apart=person.normal(0.182, 0.009),
            neck=person.normal(0.200 + 0.028 * masculine, 0.012),
            bald=bald,
            headband=headband,
            light_x=np.clip(moment.normal(0.0, 0.45), -0.9, 0.9),
            light_y=moment.uniform(0.15, 0.55),
            contrast=moment.uniform(0.16, 0.34),
            turn=np.clip(moment.normal(0.15 - 0.85 * left, 0.28 - 0.10 * left), -1.0, 1.0),
        )

    def dice(self) -> tuple[Dice, Dice]:
        """Return fresh dice for the next part: the same for all pictures of a person, and new for every picture."""
        return _dice(self.persons, self.streams)


def _dice(persons: Rows, streams: Iterator[np.random.Generator]) -> tuple[Dice, Dice]:
    per_person = next(streams).random((int(persons.max()) + 1, _COLUMNS), dtype=np.float32)
    per_picture = next(streams).random((len(persons), _COLUMNS), dtype=np.float32)
    return Dice(per_person[persons]), Dice(per_picture)


def _skin_colour(melanin: Array) -> Array:
    stops, table = np.linspace(0.0, 1.0, len(_SKIN)), np.asarray(_SKIN) / 255.0
    return np.stack([np.interp(melanin, stops, table[:, i]) for i in range(3)], axis=1).astype(np.float32)


def _hair_colour(person: Dice, melanin: Array, age: Array) -> Array:
    """Dark hair goes with dark skin, grey with age."""
    dark, any_shade = person.pick(3), person.pick(len(_HAIR))
    shade = palette(_HAIR, np.where(person.uniform() < 0.25 + 0.9 * melanin, dark, any_shade))
    greying = np.clip(age * person.uniform(0.2, 1.4), 0.0, 0.95) * (age > 0.4)
    return mix(shade, _GREY * person.uniform(0.75, 1.15)[:, None], greying)


@dataclass(frozen=True)
class Pose(Part):
    """Where the head is: shifted, scaled and rolled in the picture, turned to a side."""

    shift_x: Array
    shift_y: Array
    scale: Array
    sine: Array  # of the roll
    turn: Array
    width: Array  # half the width of the head: the length over which a turn moves the features

    @classmethod
    def cast(cls, sitting: Sitting) -> Self:
        """Draw the traits of this part."""
        _, moment = sitting.dice()
        pose = cls(
            shift_x=moment.normal(0.0, 0.02),
            shift_y=moment.normal(0.04, 0.013),
            scale=moment.normal(1.15, 0.03),
            sine=moment.normal(0.0, 0.03),
            turn=sitting.turn,
            width=sitting.head_width,
        )
        assert max(np.abs(pose.shift_x).max(), np.abs(pose.shift_y).max()) <= MAX_SHIFT
        assert pose.scale.min() >= 1.0
        assert pose.scale.max() <= MAX_SCALE
        assert np.abs(pose.sine).max() <= MAX_SINE
        return pose

    def canvas(self, size: int) -> Canvas:
        """Stretch an empty canvas of size x size pixels per picture."""
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
    """Return 1 where a condition holds, else 0, in single precision."""
    return condition.astype(np.float32)
