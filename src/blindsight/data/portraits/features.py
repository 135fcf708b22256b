"""Eyes, brows, nose and mouth."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from blindsight.data.portraits.canvas import Array, Canvas, bump, cover, mix, rgb, wave
from blindsight.data.portraits.sitting import Part, Sitting, flag, palette

_IRIS = ((84, 56, 36), (104, 74, 44), (66, 46, 34), (92, 120, 150), (110, 146, 170), (92, 122, 86), (120, 116, 80))
_WARM = rgb(225, 255, 255)
"""Shadows on skin darken red a little less than the rest."""


@dataclass(frozen=True)
class Eyes(Part):
    """Both eyes at once: x is folded at the nose, so that outward is positive on either side."""

    apart: Array
    wide: Array
    upper: Array
    lower: Array
    tilt: Array
    iris: Array
    gaze: Array
    lash: Array
    crease: Array
    spark: Array  # -1 or 1: where the light is mirrored
    age: Array
    skin: Array

    @classmethod
    def cast(cls, sitting: Sitting) -> Self:
        """Draw the traits of this part."""
        person, moment = sitting.dice()
        masculine, age = sitting.masculine, sitting.age
        wide = person.normal(0.094 - 0.004 * masculine - 0.006 * age, 0.006)
        squint = 0.16 * sitting.has["smiling"] + 0.28 * sitting.has["frowning"]
        brown, bright = person.pick(3), 3.0 + person.pick(4)
        return cls(
            apart=sitting.eyes_apart,
            wide=wide,
            upper=wide * person.normal(0.60 - 0.05 * masculine - 0.12 * age, 0.05) * (1.0 - 0.6 * squint),
            lower=wide * person.normal(0.42 - 0.04 * age, 0.04) * (1.0 - 1.5 * squint),
            tilt=person.normal(0.06, 0.06),
            iris=palette(_IRIS, np.where(person.uniform() < 0.75 * sitting.melanin + 0.2, brown, bright)),
            gaze=0.040 * np.clip(1.1 * sitting.turn + moment.normal(0.0, 0.12), -1.0, 1.0),
            lash=person.normal(0.62 - 0.32 * masculine, 0.08),
            crease=person.uniform(0.12, 0.40),
            spark=2.0 * flag(sitting.light_x > 0) - 1.0,
            age=age,
            skin=sitting.skin,
        )

    def draw(self, canvas: Canvas) -> None:
        """Paint socket, eyeball, iris, lashes and lids."""
        c = canvas.crop(-0.37, -0.15, 0.37, 0.14)
        side = np.where(c.face_x > 0, np.float32(1.0), np.float32(-1.0))
        u = np.abs(c.face_x) - self.apart
        v = c.y + self.tilt * u
        c.shade((-0.16 - 0.06 * self.age) * bump((u / 0.17) ** 2 + ((v + 0.02) / 0.12) ** 2), _WARM)
        c.shade(-0.20 * self.age * bump((u / 0.10) ** 2 + ((v - 0.085) / 0.035) ** 2), rgb(230, 255, 245))
        arch = 1.0 - (u / self.wide) ** 2
        top, bottom = -v - self.upper * arch, v - self.lower * arch
        opening = cover(np.maximum(top, bottom), c.pixel)
        c.paint(opening, rgb(244, 240, 236), 0.97 - 0.28 * bump((top / 0.045) ** 2))
        self._iris(c, u - side * self.gaze, v + 0.006, side, opening)
        self._lids(c, u, top, bottom)

    def _iris(self, c: Canvas, u: Array, v: Array, side: Array, opening: Array) -> None:
        radius = np.sqrt(u * u + v * v)
        glow = 0.78 + 7.0 * v - 0.35 * flag(radius > 0.042)
        c.paint(cover(radius - 0.050, c.pixel) * opening, self.iris, np.clip(glow, 0.35, 1.3))
        c.paint(cover(radius - 0.022, c.pixel) * opening, rgb(18, 14, 14))
        du, dv = u * side - 0.016 * self.spark, v + 0.018
        c.paint(0.9 * cover(np.sqrt(du * du + dv * dv) - 0.012, c.pixel) * opening, rgb(255, 255, 255))

    def _lids(self, c: Canvas, u: Array, top: Array, bottom: Array) -> None:
        corner = np.abs(u) - 1.06 * self.wide
        lash = np.abs(top - 0.004) - (0.009 + 0.012 * self.lash * (0.6 + 4.0 * u))
        c.paint((0.55 + 0.45 * self.lash) * cover(np.maximum(lash, corner), c.pixel), rgb(46, 32, 28))
        below, fold = np.abs(bottom) - 0.004, np.abs(top - 0.034) - 0.004
        lines = 0.35 * cover(np.maximum(below, corner), c.pixel)
        lines += self.crease * cover(np.maximum(fold, corner), c.pixel)
        c.paint(lines, self.skin * 0.5)


@dataclass(frozen=True)
class Brows(Part):
    """Eyebrows, the furrow of a frown between them, and the lines that age draws on the forehead."""

    apart: Array
    height: Array
    thick: Array
    arch: Array
    slant: Array
    length: Array
    colour: Array
    frown: Array
    age: Array

    @classmethod
    def cast(cls, sitting: Sitting) -> Self:
        """Draw the traits of this part."""
        person, moment = sitting.dice()
        masculine = sitting.masculine
        frown = sitting.has["frowning"] * moment.uniform(0.75, 1.15)
        lift = moment.normal(0.0, 0.006) - 0.014 * sitting.has["smiling"] + 0.046 * frown
        return cls(
            apart=sitting.eyes_apart + 0.008 - 0.016 * frown,
            height=person.normal(-0.150 + 0.012 * masculine, 0.008) + lift,
            thick=np.maximum(person.normal(0.021 + 0.009 * masculine, 0.003), 0.011),
            arch=person.normal(0.030 - 0.012 * masculine, 0.008) * (1.0 - 0.6 * frown),
            slant=person.normal(0.06, 0.04) - 0.50 * frown,
            length=person.normal(0.115, 0.007),
            colour=mix(0.75 * sitting.hair, rgb(40, 30, 26), 0.35),
            frown=frown,
            age=sitting.age,
        )

    def draw(self, canvas: Canvas) -> None:
        """Paint furrow and lines, then the brows over them."""
        c = canvas.crop(-0.33, -0.38, 0.33, 0.02)
        with c.only(self.frown > 0) as (part, rows):
            furrow = ((np.abs(part.face_x) - 0.030) / 0.032) ** 2 + ((part.y + 0.10) / 0.105) ** 2
            part.shade(-0.46 * self.frown[rows] * bump(furrow), rgb(245, 255, 255))
        with c.only(self.age > 0.2) as (part, rows):
            lines = np.maximum(wave((part.y + 0.5 * part.face_x * part.face_x) * 15.0 + 0.25), 0.0)
            lines *= bump((part.face_x / 0.30) ** 2 + ((part.y + 0.265) / 0.12) ** 2)
            part.shade(-0.26 * self.age[rows] * lines, _WARM)
        u = np.abs(c.face_x) - self.apart
        t = u / self.length
        q = t * t
        v = c.y - self.height - self.arch * (q - 0.4) - self.slant * u
        shape = np.abs(v) - self.thick * (1.0 - 0.3 * t) * (1.0 - q * q)
        hairs = 0.90 + 0.05 * wave(c.face_x * 12.0 + c.y * 6.0)
        c.paint(cover(np.maximum(shape, 0.11 * (np.abs(t) - 1.0)), 1.3 * c.pixel) * hairs, self.colour)


@dataclass(frozen=True)
class Nose(Part):
    """The nose, modelled by light and shadow, and the folds from it to the corners of the mouth."""

    length: Array
    wide: Array
    relief: Array  # signed: the lit side of the ridge
    fold: Array
    skin: Array

    @classmethod
    def cast(cls, sitting: Sitting) -> Self:
        """Draw the traits of this part."""
        person, _ = sitting.dice()
        masculine, age = sitting.masculine, sitting.age
        lit = sitting.light_x + 0.35 * (2.0 * flag(sitting.light_x > 0) - 1.0)
        return cls(
            length=person.normal(0.195 + 0.008 * masculine + 0.010 * age, 0.012),
            wide=person.normal(0.068 + 0.007 * masculine + 0.004 * age, 0.007),
            relief=1.7 * sitting.contrast * lit,
            fold=0.01 + 0.13 * age + 0.045 * sitting.has["smiling"],
            skin=sitting.skin,
        )

    def draw(self, canvas: Canvas) -> None:
        """Paint ridge, tip, underside, wings and nostrils."""
        c = canvas.crop(-0.19, -0.13, 0.19, 0.38)
        x, side, v = c.face_x, np.abs(c.face_x), c.y - self.length
        t = x / (0.048 + 5.0 * np.maximum(c.y + 0.1, 0.0) * self.wide)
        light = self.relief * t * bump(t * t) * bump(((c.y - 0.07) / 0.19) ** 2)
        light += 0.16 * bump((x / 0.020) ** 2 + ((c.y - 0.08) / 0.16) ** 2)
        light += 0.20 * bump((x / 0.04) ** 2 + ((v + 0.022) / 0.035) ** 2)
        light -= 0.26 * bump((x / (1.3 * self.wide)) ** 2 + ((v - 0.035) / 0.045) ** 2)
        light -= 0.30 * bump(((side - self.wide) / 0.016) ** 2 + ((v + 0.006) / 0.034) ** 2)
        groove = (side - 0.095 - 0.62 * (v + 0.01)) / 0.030
        light -= self.fold * bump(groove * groove + ((v - 0.065) / 0.095) ** 2)
        c.shade(light, _WARM)
        nostril = bump(((side - 0.56 * self.wide) / 0.026) ** 2 + ((v - 0.008) / 0.017) ** 2)
        c.paint(0.80 * nostril, self.skin * rgb(105, 76, 70))


@dataclass(frozen=True)
class Mouth(Part):
    """Lips that are closed or open to show teeth, curved up by a smile and down by a frown."""

    place: Array
    wide: Array
    curve: Array
    upper: Array
    lower: Array
    open: Array
    lip: Array

    @classmethod
    def cast(cls, sitting: Sitting) -> Self:
        """Draw the traits of this part."""
        person, moment = sitting.dice()
        masculine, has = sitting.masculine, sitting.has
        smile = has["smiling"] * moment.uniform(0.75, 1.15)
        sulk = has["frowning"] * (1.0 - has["smiling"])
        grin = has["smiling"] * moment.chance(0.8) * moment.uniform(0.7, 1.15)
        full = person.normal(1.0 - 0.16 * masculine - 0.12 * sitting.age, 0.1)
        red = np.clip(person.normal(0.34 - 0.30 * masculine, 0.14), 0.0, 0.85)
        rose = rgb(190, 70, 76) * (0.55 + 0.45 * sitting.skin[:, :1])
        return cls(
            place=person.normal(0.345 + 0.004 * masculine, 0.010),
            wide=person.normal(0.128 + 0.006 * masculine, 0.008) + 0.055 * smile - 0.012 * sulk,
            curve=moment.normal(0.004, 0.006) + 0.060 * smile - 0.042 * sulk,
            upper=0.024 * full * (1.0 - 0.25 * grin),
            lower=0.036 * full * (1.0 - 0.15 * grin),
            open=0.062 * grin,
            lip=mix(sitting.skin * rgb(226, 150, 140), rose, red),
        )

    def draw(self, canvas: Canvas) -> None:
        """Paint the shadow below, the lips, and what is between them."""
        c = canvas.crop(-0.24, 0.25, 0.24, 0.50)
        q = (c.face_x / self.wide) ** 2
        arch = np.maximum(1.0 - q, 0.0)
        v = c.y - self.place - self.curve * (0.45 - q)
        ends = np.abs(c.face_x) - self.wide
        under = (c.y - self.place - self.lower - self.open - 0.035) / 0.035
        shadow = 0.20 * bump((c.face_x / (0.75 * self.wide)) ** 2 + under * under)
        shadow += 0.26 * bump((ends / 0.028) ** 2 + (v / 0.026) ** 2)
        c.shade(-shadow, _WARM)
        bow = 1.25 - 0.22 * np.maximum(1.0 - 9.0 * q, 0.0)
        lips = np.maximum(-v - (self.upper * bow + 0.18 * self.open) * arch, v - (self.lower + self.open) * arch)
        gloss = bump((c.face_x / 0.07) ** 2 + ((v - self.open - 0.5 * self.lower) / 0.018) ** 2)
        c.paint(cover(np.maximum(lips, ends), c.pixel), self.lip, 0.92 + 0.16 * gloss - 0.12 * flag(v < 0))
        with c.only(self.open > 0) as (part, rows):
            self[rows]._teeth(part, v[rows], arch[rows], ends[rows])
        with c.only(self.open == 0) as (part, rows):
            seam = np.maximum(np.abs(v[rows]) - 0.0055, ends[rows] - 0.01)
            part.paint(0.75 * cover(seam, part.pixel), self.lip[rows] * rgb(100, 70, 70))

    def _teeth(self, c: Canvas, v: Array, arch: Array, ends: Array) -> None:
        gap = np.maximum(np.maximum(-v - 0.006 - 0.12 * self.open * arch, v - self.open * arch), ends + 0.012)
        c.paint(cover(gap, c.pixel), rgb(96, 34, 36))
        teeth = np.maximum(gap + 0.003, v - 0.72 * self.open * arch)
        c.paint(cover(teeth, c.pixel), rgb(248, 244, 238), 0.88 + 0.12 * arch)
