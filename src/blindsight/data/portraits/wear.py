"""What is worn on the head: eyeglasses, hats, headbands."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from blindsight.data.portraits.canvas import Array, Canvas, bump, cover, ellipse, mix, rgb, squircle, wave
from blindsight.data.portraits.hair import Hair
from blindsight.data.portraits.sitting import Part, Sitting

_FRAMES = ((28, 26, 28), (70, 44, 28), (120, 30, 34), (40, 54, 84), (130, 126, 120))
_FELT = (
    (60, 66, 80), (150, 56, 52), (90, 74, 60), (200, 180, 140),
    (52, 92, 88), (36, 36, 42), (206, 148, 60), (110, 120, 150),
)  # fmt: skip


@dataclass(frozen=True)
class Glasses(Part):
    """One pair per person, round to rectangular, worn or not."""

    worn: Array
    apart: Array
    wide: Array
    tall: Array
    square: Array
    thick: Array
    frame: Array
    head_width: Array

    @classmethod
    def cast(cls, sitting: Sitting) -> Self:
        """Draw the traits of this part."""
        person, _ = sitting.dice()
        return cls(
            worn=sitting.has["eyeglasses"],
            apart=sitting.eyes_apart + 0.002,
            wide=person.normal(0.142, 0.006),
            tall=person.normal(0.115, 0.010),
            square=np.clip(person.normal(0.5, 0.35), 0.0, 0.93),
            thick=person.normal(0.012, 0.003),
            frame=person.colour(_FRAMES),
            head_width=sitting.head_width,
        )

    def draw(self, canvas: Canvas) -> None:
        """Paint lenses with a glare, rims, bridge and arms."""
        with canvas.crop(-0.45, -0.15, 0.45, 0.18).only(self.worn > 0) as (c, rows):
            self[rows]._draw(c)

    def _draw(self, c: Canvas) -> None:
        side = np.abs(c.face_x)
        out = side - self.apart
        rim = (squircle((out / self.wide) ** 2, ((c.y - 0.015) / self.tall) ** 2, self.square) - 1.0) * 0.125
        glare = bump(((out + 0.06 + 0.5 * c.y) / 0.035) ** 2 + ((c.y + 0.03) / 0.07) ** 2)
        c.paint(cover(rim, c.pixel) * (0.07 + 0.35 * glare), rgb(236, 244, 250))
        bridge = np.maximum(np.abs(c.y + 0.015 + 0.4 * side * side) - self.thick, out + self.wide)
        arm = np.maximum(np.abs(c.y + 0.03) - self.thick, np.maximum(self.wide - out, np.abs(c.x) - self.head_width))
        frame = np.minimum(np.minimum(np.abs(rim) - self.thick, bridge), arm)
        c.paint(cover(frame, c.pixel), self.frame, 1.0 - 1.5 * c.y)


@dataclass(frozen=True)
class Hat(Part):
    """A knitted cap, a brimmed hat, a peaked cap, or a headband, which is no hat. It sits low to cover the forehead."""

    kind: Array  # -1: bare-headed
    line: Array
    wide: Array
    tall: Array
    felt: Array
    trim: Array
    light_x: Array

    @classmethod
    def cast(cls, sitting: Sitting, hair: Hair) -> Self:
        """Draw the traits of this part."""
        _, moment = sitting.dice()
        hat = sitting.has["hat"]
        felt = moment.colour(_FELT)
        pale = moment.chance(0.5)[:, None] > 0
        return cls(
            kind=(moment.pick(3) + 1.0) * hat + 4.0 * sitting.headband - 1.0,
            line=moment.normal(-0.36 + 0.20 * sitting.has["obstructed_forehead"], 0.012),
            wide=hair.width + hair.volume + 0.02,
            tall=hair.top + hair.volume + moment.uniform(0.04, 0.10),
            felt=felt,
            trim=np.where(pale, mix(felt, rgb(240, 236, 226), 0.6), 0.6 * felt),
            light_x=sitting.light_x,
        )

    def draw(self, canvas: Canvas) -> None:
        """Paint the shadow on the forehead, then what is worn."""
        kinds = ((Hat._knitted, 0.10), (Hat._brimmed, 0.0), (Hat._peaked, 0.10), (Hat._band, 0.10))
        whole = canvas.crop(-0.76, -0.78, 0.76, 0.06)
        for kind, (paint, bend) in enumerate(kinds):
            with whole.only(self.kind == kind) as (c, rows):
                hat = self[rows]
                across = (c.x / hat.wide) ** 2
                below = c.y - hat.line - bend * across
                under = np.where(below > -0.05, bump(((below - 0.03) / 0.13) ** 2), np.float32(0.0))
                c.shade(-0.30 * under * np.minimum(4.0 * np.maximum(1.0 - across, 0.0), 1.0), rgb(225, 255, 255))
                tone = 0.90 + 0.3 * hat.light_x * c.x - 0.25 * across - 0.12 * c.y
                paint(hat, c, below, tone)

    def _crown(self, c: Canvas, below: Array, flat: float) -> Array:
        rise = np.minimum(c.y + 0.12, 0.0) / (self.tall - 0.12)
        dome = (squircle((c.x / self.wide) ** 2, rise * rise, flat) - 1.0) * 0.46
        return np.maximum(dome, below)

    def _knitted(self, c: Canvas, below: Array, tone: Array) -> None:
        rib = 0.07 * wave(c.x * 9.0 / (1.3 + c.y))
        c.paint(cover(self._crown(c, below, 0.2), c.pixel), self.felt, tone + rib)
        cuff = np.maximum(np.abs(below + 0.065) - 0.065, np.abs(c.x) - self.wide - 0.015)
        c.paint(cover(cuff, c.pixel), self.trim, tone + 0.10 * wave(c.x * 10.0))

    def _brimmed(self, c: Canvas, below: Array, tone: Array) -> None:
        crown = self._crown(c, below, 0.75)
        c.paint(cover(crown, c.pixel), self.felt, tone)
        c.paint(cover(np.maximum(crown, -0.10 - below), c.pixel), self.trim, tone)
        brim = ellipse(c.x, c.y - self.line, self.wide + 0.20, 0.085)
        c.paint(cover(brim, c.pixel), self.felt, tone + 0.12 - 2.0 * (c.y - self.line))

    def _peaked(self, c: Canvas, below: Array, tone: Array) -> None:
        seam = 0.12 * bump((c.face_x / 0.02) ** 2)
        c.paint(cover(self._crown(c, below, 0.15), c.pixel), self.felt, tone - seam)
        peak = ellipse(c.face_x, c.y - self.line + 0.01, 0.86 * self.wide, 0.095)
        upper = -below - 0.05 + 0.02 * (c.x / self.wide) ** 2
        c.paint(cover(np.maximum(peak, upper), c.pixel), self.trim, tone + 0.05)

    def _band(self, c: Canvas, below: Array, tone: Array) -> None:
        band = np.maximum(np.abs(below + 0.06) - 0.06, np.abs(c.x) - self.wide + 0.03 - 0.04 * c.y)
        c.paint(cover(band, c.pixel), self.felt, tone + 0.12 * np.clip(4.0 * wave(below * 8.0), -1.0, 1.0))
