"""From attributes to pictures: arranges the parts, paints them back to front, exposes the result."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data.portraits.backdrop import Backdrop
from blindsight.data.portraits.body import Body
from blindsight.data.portraits.canvas import Array, Canvas, Rows
from blindsight.data.portraits.features import Brows, Eyes, Mouth, Nose
from blindsight.data.portraits.hair import Beard, Hair
from blindsight.data.portraits.head import Head
from blindsight.data.portraits.sitting import Part, Pose, Sitting
from blindsight.data.portraits.wear import Glasses, Hat

_STREAMS = 2 * 14  # two for the sitting and for each part


@dataclass(frozen=True)
class Exposure(Part):
    """The camera: brightness, colour temperature, fall-off to the corners, sensor noise."""

    gain: Array
    light_x: Array
    noise: Array

    @classmethod
    def cast(cls, sitting: Sitting) -> Self:
        """Draw the traits of this part."""
        _, moment = sitting.dice()
        warmth = moment.normal(0.015, 0.03)
        balance = np.stack([1.0 + warmth, np.ones_like(warmth), 1.0 - warmth], axis=1)
        return cls(
            gain=255.0 * balance * moment.normal(1.0, 0.08)[:, None],
            light_x=sitting.light_x,
            noise=255.0 * moment.uniform(0.004, 0.014),
        )

    def develop(self, canvas: Canvas, grain: np.random.Generator) -> NDArray[np.uint8]:
        """Turn what was painted into pictures (b, h, w, 3), with noise drawn picture by picture; uses up the canvas."""
        pixels, right, down = canvas.pixels, canvas.right, canvas.down
        light = 1.0 + 0.12 * self.light_x * right - 0.05 * down - 0.07 * (right * right + down * down)
        pixels *= light[:, None]
        pixels *= self.gain
        pixels += _triangular(pixels.shape, grain) * self.noise[:, None]
        pixels += np.float32(0.5)
        np.clip(pixels, 0.0, 255.0, out=pixels)
        return np.ascontiguousarray(np.moveaxis(pixels.astype(np.uint8), 1, 3))


@dataclass(frozen=True)
class Portraits(Part):
    """A series of portraits, ready to be painted at any size; a slice of it is a shorter series."""

    pose: Pose
    backdrop: Backdrop
    body: Body
    head: Head
    eyes: Eyes
    brows: Brows
    nose: Nose
    mouth: Mouth
    beard: Beard
    hair: Hair
    glasses: Glasses
    hat: Hat
    exposure: Exposure

    @classmethod
    def cast(cls, has: Mapping[str, NDArray[np.int8]], persons: Rows, rng: np.random.Generator) -> Self:
        """Draw all traits of portraits of `persons` that have these attributes (name -> 0 or 1 per picture)."""
        columns = {name: column.astype(np.float32)[:, None, None] for name, column in has.items()}
        sitting = Sitting.arrange(columns, persons, iter(rng.spawn(_STREAMS)))
        head, mouth = Head.cast(sitting), Mouth.cast(sitting)
        hair = Hair.cast(sitting, head)
        return cls(
            pose=Pose.cast(sitting),
            backdrop=Backdrop.cast(sitting),
            body=Body.cast(sitting),
            head=head,
            eyes=Eyes.cast(sitting),
            brows=Brows.cast(sitting),
            nose=Nose.cast(sitting),
            mouth=mouth,
            beard=Beard.cast(sitting, head, mouth),
            hair=hair,
            glasses=Glasses.cast(sitting),
            hat=Hat.cast(sitting, hair),
            exposure=Exposure.cast(sitting),
        )

    def paint(self, size: int, grain: np.random.Generator) -> NDArray[np.uint8]:
        """Paint the series as pictures of size x size pixels; `grain` gives the sensor noise, picture by picture."""
        canvas = self.pose.canvas(size)
        self.backdrop.draw(canvas)
        self.body.draw(canvas)
        self.hair.draw_back(canvas)
        for layer in (self.head, self.nose, self.beard, self.mouth, self.eyes, self.brows):
            layer.draw(canvas)
        self.hair.draw_front(canvas)
        self.glasses.draw(canvas)
        self.hat.draw(canvas)
        return self.exposure.develop(canvas, grain)


def _triangular(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw noise of mean 0 and variance 1, triangular: the sum of two uniform bytes, three times faster than normal."""
    pairs = np.frombuffer(rng.bytes(2 * math.prod(shape)), dtype=np.uint8).reshape(shape[0], 2, *shape[1:])
    total = np.add(pairs[:, 0], pairs[:, 1], dtype=np.uint16).astype(np.float32)
    return (total - np.float32(255.0)) * np.float32(math.sqrt(6.0 / (256**2 - 1)))
