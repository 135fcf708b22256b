"""Hair on the head and on the chin."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from blindsight.data.portraits.canvas import Array, Canvas, bump, cover, rgb, squircle, wave
from blindsight.data.portraits.features import Mouth
from blindsight.data.portraits.head import Head
from blindsight.data.portraits.sitting import Part, Sitting, flag

_WARM = rgb(220, 255, 255)


@dataclass(frozen=True)
class Hair(Part):
    """A cap of hair with an opening for the face, and long hair that falls behind the neck.

    A fringe over the forehead is the same cap with a lower, combed opening. People without hair on top cover their
    forehead with a headband instead (see `Hat`), and so do a few others.
    """

    colour: Array
    volume: Array
    width: Array
    top: Array
    hairline: Array
    parting: Array
    square: Array
    tilt: Array
    comb: Array
    curl: Array
    long: Array
    length: Array
    sides: Array  # where short hair ends beside the face
    tuck: Array  # how steeply it ends: large behind the ear, small over it
    bald: Array
    neck: Array
    light_x: Array

    @classmethod
    def cast(cls, sitting: Sitting, head: Head) -> Self:
        """Draw the traits of this part."""
        person, moment = sitting.dice()
        has, masculine = sitting.has, sitting.masculine
        long, bald = has["long_hair"], sitting.bald
        curl = person.chance(0.3) * person.uniform(0.5, 1.0)
        bob = person.chance(0.6 * flag(masculine < 0)) * (1.0 - long)
        over_ear, at_ear = person.normal(0.20, 0.03), person.normal(0.07, 0.03)
        volume = person.normal(0.055 + 0.02 * long + 0.05 * curl, 0.014) * (1.0 - 0.85 * bald)
        free = person.normal(-0.36 - 0.03 * sitting.age * flag(masculine > 0), 0.018) - 0.5 * bald
        fringe = has["obstructed_forehead"] * (1.0 - np.maximum(sitting.headband, bald))
        square = np.clip(person.normal(0.2, 0.2), 0.0, 0.7)
        return cls(
            colour=sitting.hair,
            volume=np.maximum(volume * (1.0 - 0.4 * has["hat"]), 0.008),
            width=head.width,
            top=head.top,
            hairline=np.where(fringe > 0, moment.normal(-0.15, 0.014), free),
            parting=person.normal(0.0, 0.10) * (1.0 - 0.7 * fringe) * (1.0 - bald),
            square=np.where(fringe > 0, np.float32(0.75), square),
            tilt=person.normal(0.0, 0.16) * (1.0 - 0.5 * fringe) * (1.0 - bald),
            comb=0.006 + 0.016 * fringe,
            curl=curl,
            long=long,
            length=person.normal(0.86, 0.09),
            sides=np.where(long > 0, np.float32(0.48), np.where(bob > 0, over_ear, at_ear)),
            tuck=np.where(long > 0, np.float32(0.0), np.where(bob > 0, np.float32(0.3), np.float32(3.0))),
            bald=bald,
            neck=sitting.neck,
            light_x=sitting.light_x,
        )

    def draw_back(self, canvas: Canvas) -> None:
        """Paint long hair: behind the neck, over the shoulders."""
        with canvas.crop(-0.62, -0.72, 0.62, 1.0).only(self.long > 0) as (c, rows):
            self[rows]._fall(c)

    def _fall(self, c: Canvas) -> None:
        ripple = 0.035 * self.curl * wave(c.y * 4.0) + 0.012 * wave(c.y * 2.3 + 9.0 * self.parting)
        width = self.width + self.volume + 0.03 + 0.05 * np.clip(c.y + 0.2, 0.0, 0.7) + ripple
        across = c.x / width
        crown = np.minimum(c.y + 0.05, 0.0) / (self.top + self.volume - 0.05)
        tip = np.maximum(c.y - self.length + 0.25, 0.0) / 0.25
        shape = (np.sqrt(across * across + crown * crown + tip * tip) - 1.0) * 0.45
        shape = np.maximum(shape, self.neck - 0.01 - np.abs(c.body_x))
        strands = 0.10 * wave(c.x * 9.0 / (1.0 + 0.15 * c.y) + 6.0 * ripple) - 0.22 * bump((c.x / 0.42) ** 2)
        c.paint(cover(shape, 1.5 * c.pixel), self.colour, 0.82 + strands + 0.2 * self.light_x * c.x)

    def draw_front(self, canvas: Canvas) -> None:
        """Paint the cap of hair and the shadow it casts on the forehead."""
        for chosen, bottom in ((self.long > 0, 0.66), (self.long == 0, 0.30)):
            with canvas.crop(-0.60, -0.74, 0.60, bottom).only(chosen) as (c, rows):
                self[rows]._cap(c)

    def _cap(self, c: Canvas) -> None:
        across = c.x / (self.width + 0.8 * self.volume + 0.012)
        crown = np.minimum(c.y, 0.0) / (self.top + self.volume)
        radius = np.sqrt(across * across + crown * crown)
        outer = (radius - 1.0) * 0.46
        flow = 9.0 * c.face_x / (c.y + 1.25) + 6.0 * self.parting
        tone = 0.90 + 0.09 * wave(flow) + 0.05 * wave(1.8 * flow) + (0.22 / 0.4) * self.light_x * c.x
        tone += 0.30 * bump(((radius - 0.80) / 0.17) ** 2)
        rows = np.flatnonzero(self.curl)
        ringlets, curls = self[rows]._curls(c.x[rows], c.y[rows])
        outer[rows] += ringlets
        tone[rows] += curls
        opening = self._opening(c)
        beside = self.tuck * np.maximum(np.abs(c.x) - 0.95 * self.width, 0.0)
        above = cover(0.7 * (c.y - self.sides + beside), 1.3 * c.pixel + 0.2 * self.long)
        c.shade(-0.16 * (1.0 - self.bald) * above * cover(np.maximum(outer, opening - 0.035), 0.07), _WARM)
        tone -= 0.20 * bump((opening / 0.07) ** 2)
        hair = (1.0 - 0.25 * self.bald) * above * cover(np.maximum(outer, opening), 1.3 * c.pixel)
        c.paint(hair, self.colour, tone)

    def _opening(self, c: Canvas) -> Array:
        """Return the distance into the face: positive where the hair leaves the face free."""
        comb = self.comb * wave(c.face_x * 7.0 + 10.0 * self.parting)
        high = np.minimum(c.y + self.tilt * c.face_x + comb - 0.10, 0.0) / (0.10 - self.hairline)
        across = (c.face_x - self.parting * np.clip(-2.0 * c.y, 0.0, 1.0)) / (0.90 * self.width)
        return (1.0 - squircle(across * across, high * high, self.square)) * 0.40

    def _curls(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return what curls add to the outline and to the tone."""
        outline = 0.016 * self.curl * (wave(4.1 * x + 1.7 * y) + wave(4.6 * y - 2.3 * x + 0.3))
        warp = 0.25 * wave(2.3 * y + 1.1 * x)
        return outline, 0.16 * self.curl * wave(7.0 * x + 3.0 * y + warp) * wave(6.0 * y - 2.6 * x - warp)


@dataclass(frozen=True)
class Beard(Part):
    """A full beard, a short one or a goatee; without, some men show a trace of stubble."""

    strength: Array
    goatee: Array
    hang: Array
    colour: Array
    place: Array  # of the mouth
    wide: Array
    head: Head

    @classmethod
    def cast(cls, sitting: Sitting, head: Head, mouth: Mouth) -> Self:
        """Draw the traits of this part."""
        person, _ = sitting.dice()
        beard, kind = sitting.has["beard"], person.pick(3)
        stubble = np.clip(person.normal(0.06, 0.08), 0.0, 0.2) * flag(sitting.masculine > 0)
        return cls(
            strength=np.where(beard > 0, 0.95 - 0.10 * flag(kind == 1), stubble),
            goatee=flag(kind == 2),
            hang=person.normal(0.045, 0.018) * flag(kind != 1) * beard,
            colour=0.85 * sitting.hair,
            place=mouth.place,
            wide=mouth.wide,
            head=head,
        )

    def draw(self, canvas: Canvas) -> None:
        """Paint the beard over jaw and upper lip."""
        with canvas.crop(-0.46, 0.0, 0.46, 0.70).only(self.strength > 0.03) as (c, rows):
            self[rows]._draw(c)

    def _draw(self, c: Canvas) -> None:
        side = np.abs(c.face_x)
        lip = np.clip(0.225 + 0.5 * np.maximum(side - 0.07, 0.0), 0.215, 0.34)
        cheek = 0.30 - 0.55 * np.maximum(side - 0.16, 0.0) - 0.5 * np.maximum(side - 0.3, 0.0)
        outline = (self.head.outline(c) - 1.0) * 0.45 - self.hang * np.clip(4.0 * c.y - 1.2, 0.0, 1.0)
        shape = np.maximum(
            np.maximum(outline, np.where(side < 0.2, lip, cheek) - c.y), side - 0.45 + 0.21 * self.goatee
        )
        shape += 0.010 * wave(c.face_x * 8.0) * wave(c.y * 7.0)
        bare = bump((c.face_x / (0.8 * self.wide)) ** 2 + ((c.y - self.place - 0.085) / 0.03) ** 2)
        tone = 0.92 + 0.06 * wave(c.face_x * 9.0 + 0.35 * wave(c.y * 5.0)) + 0.04 * wave(c.face_x * 6.0 - c.y * 8.0)
        tone -= 0.15 * np.clip(3.0 * c.y - 1.35, 0.0, 1.0)
        c.paint(self.strength * (1.0 - 0.25 * bare) * cover(shape, 0.05), self.colour, tone)
