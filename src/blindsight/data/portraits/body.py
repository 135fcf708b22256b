"""Neck, shoulders and clothes."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from blindsight.data.portraits.canvas import Array, Canvas, bump, cover, rgb, wave
from blindsight.data.portraits.sitting import Part, Sitting, flag

_CLOTHES = (
    (58, 76, 110), (140, 50, 55), (235, 232, 225), (60, 60, 66), (92, 120, 92), (196, 160, 90),
    (120, 145, 175), (150, 120, 150), (210, 120, 90), (80, 130, 135), (30, 36, 48), (180, 180, 176),
)  # fmt: skip
_CREW, _VEE, _SHIRT, _ROLL = range(4)


@dataclass(frozen=True)
class Body(Part):
    """The bust below the head, dressed for the day: round neck, V-neck, shirt collar or roll neck."""

    neck: Array  # half its width
    slope: Array
    broad: Array
    kind: Array
    cloth: Array
    trim: Array
    stripes: Array
    skin: Array
    light_x: Array
    chin: Array

    @classmethod
    def cast(cls, sitting: Sitting) -> Self:
        """Draw the traits of this part."""
        person, moment = sitting.dice()
        kind = moment.pick(4)
        cloth = moment.colour(_CLOTHES) * moment.uniform(0.85, 1.1)[:, None]
        light, dark = np.clip(1.18 * cloth + 0.06, 0.0, 0.97), 0.8 * cloth
        return cls(
            neck=sitting.neck,
            slope=person.normal(0.33 - 0.06 * sitting.masculine, 0.04),
            broad=person.normal(0.74 + 0.09 * sitting.masculine, 0.03),
            kind=kind,
            cloth=cloth,
            trim=np.where(kind[:, None] == _SHIRT, light, dark),
            stripes=0.16 * moment.chance(0.18) * flag(kind != _SHIRT),
            skin=sitting.skin,
            light_x=sitting.light_x,
            chin=sitting.chin,
        )

    def draw(self, canvas: Canvas) -> None:
        """Paint the shoulders, then the neck, then the edge of the cloth around it."""
        self._shoulders(canvas.crop(-1.0, 0.55, 1.0, 1.0))
        c = canvas.crop(-0.34, 0.25, 0.34, 1.0)
        side = np.abs(c.body_x)
        hem = self._hem(c, side)
        self._neck(c, side, hem)
        with c.only(self.kind < _SHIRT) as (part, rows):
            band = np.maximum(np.abs(hem[rows] - 0.018) - 0.018, side[rows] - 1.22 * self.neck[rows])
            part.paint(cover(band, part.pixel) * cover(0.60 - part.body_y, 0.03), self.trim[rows])
        with c.only(self.kind == _SHIRT) as (part, rows):
            self[rows]._collar(part, side[rows], hem[rows])
        with c.only(self.kind == _ROLL) as (part, rows):
            self[rows]._roll_neck(part, side[rows])

    def _shoulders(self, c: Canvas) -> None:
        side = np.abs(c.body_x)
        line = 0.635 + self.slope * side * side + 4.0 * np.maximum(side - self.broad, 0.0) ** 2
        folds = 1.09 + 0.10 * self.light_x * c.body_x - 0.10 * c.body_y + 0.05 * wave(c.body_x * 1.7 + c.body_y)
        folds += self.stripes * np.clip(3.0 * wave(c.body_y * 7.0), -1.0, 1.0)
        c.paint(cover(line - c.body_y, c.pixel), self.cloth, folds)

    def _hem(self, c: Canvas, side: Array) -> Array:
        """Return how far below the edge of the cloth a pixel lies: negative on the skin."""
        below = np.maximum(c.body_y - 0.62, 0.0) / 0.15
        crew = 0.18 * (np.sqrt((side / (1.12 * self.neck)) ** 2 + below * below) - 1.0)
        vee = 0.6 * (c.body_y - 0.85 - 0.04 * flag(self.kind == _SHIRT) + 1.25 * side)
        roll = c.body_y - 0.60 - 0.2 * side * side
        return np.where(self.kind == _CREW, crew, np.where(self.kind == _ROLL, roll, vee))

    def _neck(self, c: Canvas, side: Array, hem: Array) -> None:
        out = side / self.neck
        layer = cover(np.maximum((out - 1.0) * self.neck, hem), c.pixel)
        tone = 0.92 + 0.16 * self.light_x * c.body_x / self.neck - 0.22 * out * out
        c.paint(layer, self.skin * rgb(255, 242, 235), tone - 0.34 * bump(((c.body_y - self.chin - 0.03) / 0.22) ** 2))

    def _collar(self, c: Canvas, side: Array, hem: Array) -> None:
        reach = 0.06 + 0.25 * np.maximum(c.body_y - 0.62, 0.0)
        outer = side - 1.3 * self.neck + 0.35 * (c.body_y - 0.66)
        flap = np.maximum(np.maximum(np.abs(hem - reach) - reach, outer), 0.60 - c.body_y)
        c.shade(-0.22 * cover(flap - 0.02, 0.03))
        c.paint(cover(flap, c.pixel), self.trim)

    def _roll_neck(self, c: Canvas, side: Array) -> None:
        tube = np.maximum(0.595 + 0.1 * side * side - c.body_y, side - 1.08 * self.neck)
        c.paint(cover(tube, c.pixel), self.cloth, 1.0 - 2.8 * side * side + 0.07 * wave(c.body_x * 11.0))
