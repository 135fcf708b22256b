"""Portraits of nobody, painted back to front: backdrop, body, head, eyes, brows, nose, mouth, hair and what is worn."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from blindsight.data.faces.canvas import (
    Array,
    Canvas,
    Part,
    Pose,
    Rows,
    Sitting,
    bump,
    cover,
    ellipse,
    flag,
    mix,
    palette,
    rgb,
    squircle,
    wave,
)

_STREAMS = 2 * 14  # two for the sitting and for each part
_WALLS = (
    (214, 205, 190), (188, 197, 205), (226, 220, 208), (170, 180, 165), (205, 180, 165),
    (150, 160, 175), (196, 190, 205), (120, 125, 130), (90, 105, 120),
)  # fmt: skip
_ACCENTS = (
    (150, 60, 50), (60, 90, 130), (200, 170, 100), (70, 110, 80),
    (120, 84, 116), (210, 200, 185), (90, 70, 60), (190, 110, 60),
)  # fmt: skip
_CHANCES = 36
_CLOTHES = (
    (58, 76, 110), (140, 50, 55), (235, 232, 225), (60, 60, 66), (92, 120, 92), (196, 160, 90),
    (120, 145, 175), (150, 120, 150), (210, 120, 90), (80, 130, 135), (30, 36, 48), (180, 180, 176),
)  # fmt: skip
_CREW, _VEE, _SHIRT, _ROLL = range(4)
_IRIS = ((84, 56, 36), (104, 74, 44), (66, 46, 34), (92, 120, 150), (110, 146, 170), (92, 122, 86), (120, 116, 80))
_WARM = rgb(225, 255, 255)  # shadows on skin darken red a little less than the rest
_FRAMES = ((28, 26, 28), (70, 44, 28), (120, 30, 34), (40, 54, 84), (130, 126, 120))
_FELT = (
    (60, 66, 80), (150, 56, 52), (90, 74, 60), (200, 180, 140),
    (52, 92, 88), (36, 36, 42), (206, 148, 60), (110, 120, 150),
)  # fmt: skip
_HAIR_SHADOW = rgb(220, 255, 255)


class Backdrop(Part):
    """The background. The first three kinds are indoors, the others outdoors."""

    def __init__(self, sitting: Sitting) -> None:
        _, moment = sitting.dice()
        self.kind = moment.pick(3) + 3.0 * sitting.has["outdoors"]
        self.wall = moment.colour(_WALLS) * moment.uniform(0.75, 1.05)[:, None]
        self.accent = moment.colour(_ACCENTS)
        self.side = 2.0 * moment.chance(0.5) - 1.0  # -1 or 1: where the light, the window or the picture is
        self.place_x = moment.uniform(0.4, 0.72)
        self.place_y = moment.uniform(-0.6, -0.2)
        self.extent = moment.uniform(0.16, 0.32)
        self.phase = moment.uniform()
        self.weather = moment.uniform()
        # (n, 36, 1): positions and shades of clouds, leaves and books
        self.chances = np.concatenate([moment.uniform() for _ in range(_CHANCES)], axis=1)

    def draw(self, canvas: Canvas) -> None:
        kinds = (Backdrop._picture, Backdrop._shelf, Backdrop._window, Backdrop._hills, Backdrop._trees, Backdrop._sea)
        for kind, paint in enumerate(kinds):
            with canvas.only(self.kind == kind) as (part, rows):
                paint(self[rows], part)

    def _wall(self, c: Canvas) -> None:
        light = 1.0 + 0.10 * self.side * c.right - 0.10 * c.down
        c.pixels[...] = self.wall * light[:, None]

    def _picture(self, c: Canvas) -> None:
        self._wall(c)
        across, down = np.abs(c.right - self.side * self.place_x), np.abs(c.down - self.place_y)
        mount = mix(self.wall, rgb(255, 255, 250), 0.6)
        for grow, colour in ((0.03, self.accent * 0.6), (0.0, mount), (-0.06, self.accent)):
            layer = cover(across - (0.8 * self.extent + grow), 0.05) * cover(down - (self.extent + grow), 0.05)
            c.paint(layer, colour)
        c.shade(-0.14 * cover(0.45 + 0.1 * self.phase - c.down, 0.04))

    def _shelf(self, c: Canvas) -> None:
        wood = mix(self.wall, rgb(110, 78, 52), 0.8)
        c.pixels[...] = mix(self.wall, wood * 0.55, 0.85)
        place = (c.right + 1.0) * 4.5 + self.phase
        number = np.floor(place)
        rounding = 0.9 - 0.25 * (2.0 * np.abs(place - number - 0.5)) ** 4
        table = np.asarray(_ACCENTS, dtype=np.float32) / np.float32(255.0)
        for shelf in range(3):
            index = (number[:, 0].astype(np.int64) * 3 + shelf * 5) % _CHANCES
            chance = np.take_along_axis(self.chances[:, :, 0], index, axis=1)
            books = np.moveaxis(table[(chance * 997.0).astype(np.int64) % len(table)], 2, 1)[:, :, None, :]
            floor = 0.62 * shelf - 0.42 - 0.2 * self.phase
            height = (0.30 + 0.22 * chance)[:, None, :]
            c.paint(cover(floor - height - c.down, 0.05) * cover(c.down - floor, 0.05), books * rounding[:, None])
            c.paint(cover(np.abs(c.down - floor - 0.03) - 0.035, 0.03), wood)

    def _window(self, c: Canvas) -> None:
        self._wall(c)
        across = (c.right - self.side * 0.72) * self.side
        sky = mix(rgb(225, 238, 246), rgb(180, 205, 225), self.weather)
        c.paint(cover(-across - 0.42, 0.05) * cover(c.down - 0.35, 0.05), sky)
        post = cover(np.abs(across + 0.42) - 0.035, 0.03) * cover(c.down - 0.38, 0.05)
        sill = cover(np.abs(c.down - 0.36) - 0.03, 0.03) * cover(-across - 0.45, 0.03)
        bar = cover(np.abs(c.down + 0.35) - 0.018, 0.03) * cover(-across - 0.40, 0.03)
        c.paint(np.maximum(np.maximum(post, sill), bar), rgb(240, 236, 228))
        c.paint(cover(0.12 - across, 0.06), self.accent, 1.05 + 0.14 * wave(c.right * 3.5 + self.phase))

    def _sky(self, c: Canvas) -> None:
        zenith = mix(rgb(96, 156, 218), rgb(150, 178, 200), self.weather)
        horizon = mix(rgb(206, 228, 240), rgb(244, 226, 204), self.phase)
        c.pixels[...] = mix(zenith, horizon, np.clip((c.down + 1.0) * 0.75, 0.0, 1.0))
        high = c.crop(-1.0, -1.0, 1.0, 0.0)
        for i in range(4):
            u, v, size = (self.chances[:, 3 * i + j, None] for j in range(3))
            radius = 0.16 + 0.2 * size
            puff = ((high.right - 2.2 * u + 1.1) / radius) ** 2 + ((high.down + 0.95 - 0.7 * v) / (0.45 * radius)) ** 2
            high.paint(0.75 * bump(puff), rgb(252, 252, 252))

    def _hills(self, c: Canvas) -> None:
        self._sky(c)
        far = 0.10 * wave(c.right * 0.35 + self.phase) + 0.04 * wave(c.right * 0.9 + 3.0 * self.phase)
        c.paint(
            cover(self.place_y + 0.42 + far - c.down, 0.06), mix(rgb(120, 150, 160), rgb(110, 140, 110), self.weather)
        )
        near = 0.09 * wave(c.right * 0.3 + 0.6 - self.phase) + 0.015 * wave(c.right * 5.0)
        c.paint(cover(self.place_y + 0.62 + near - c.down, 0.08), mix(rgb(96, 142, 70), rgb(140, 150, 80), self.phase))

    def _trees(self, c: Canvas) -> None:
        self._sky(c)
        c.paint(cover(0.25 - c.down, 0.2), rgb(110, 140, 76))
        for i in range(11):
            u, v, shade = (self.chances[:, 3 * i + j, None] for j in range(3))
            radius = 0.34 + 0.18 * wave(7.0 * shade + u)
            crown = ellipse(c.right - 2.4 * u + 1.2, c.down + 0.75 - 0.95 * v, radius, 0.85 * radius)
            c.paint(0.85 * cover(crown, 0.14), mix(rgb(48, 88, 50), rgb(140, 176, 92), shade))

    def _sea(self, c: Canvas) -> None:
        self._sky(c)
        level = self.place_y + 0.45
        c.paint(cover(level - c.down, 0.03), mix(rgb(62, 128, 160), rgb(90, 160, 170), self.weather))
        shore = level + 0.34 + 0.04 * wave(c.right * 0.5 + self.phase)
        c.paint(cover(shore - c.down, 0.06), rgb(222, 200, 160))


class Body(Part):
    """The bust below the head, dressed for the day: round neck, V-neck, shirt collar or roll neck."""

    def __init__(self, sitting: Sitting) -> None:
        person, moment = sitting.dice()
        kind = moment.pick(4)
        cloth = moment.colour(_CLOTHES) * moment.uniform(0.85, 1.1)[:, None]
        light, dark = np.clip(1.18 * cloth + 0.06, 0.0, 0.97), 0.8 * cloth
        self.neck = sitting.neck  # half its width
        self.slope = person.normal(0.33 - 0.06 * sitting.masculine, 0.04)
        self.broad = person.normal(0.74 + 0.09 * sitting.masculine, 0.03)
        self.kind = kind
        self.cloth = cloth
        self.trim = np.where(kind[:, None] == _SHIRT, light, dark)
        self.stripes = 0.16 * moment.chance(0.18) * flag(kind != _SHIRT)
        self.skin, self.light_x, self.chin = sitting.skin, sitting.light_x, sitting.chin

    def draw(self, canvas: Canvas) -> None:
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


class Head(Part):
    """Skull and jaw in skin. A squarer, wider jaw and a longer chin are among the marks of a man's face."""

    def __init__(self, sitting: Sitting) -> None:
        person, _ = sitting.dice()
        masculine, age = sitting.masculine, sitting.age
        self.width = sitting.head_width
        self.top = person.normal(0.56, 0.012)
        self.chin = sitting.chin
        self.square = np.clip(person.normal(0.38 + 0.24 * masculine + 0.08 * age, 0.1), 0.0, 0.85)
        self.taper = np.clip(person.normal(0.24 - 0.09 * masculine, 0.04), 0.05, 0.4)
        self.ear = person.normal(1.0 + 0.1 * age, 0.1)
        self.skin = sitting.skin
        self.blush = person.uniform(0.02, 0.14) * (1.1 - 0.5 * sitting.melanin)
        self.light_x, self.light_y, self.contrast = sitting.light_x, sitting.light_y, sitting.contrast

    def outline(self, c: Canvas) -> Array:
        """Return the radius in units of the head: 1 at its edge."""
        low, high = np.maximum(c.y, 0.0) / self.chin, np.minimum(c.y, 0.0) / self.top
        low *= low
        across = c.x / (self.width * (1.0 - self.taper * low))
        corner = np.where(c.y > 0, self.square, np.float32(0.1))
        return squircle(across * across, low + high * high, corner)

    def draw(self, canvas: Canvas) -> None:
        self._ears(canvas)
        c = canvas.crop(-0.46, -0.60, 0.46, 0.64)
        radius = self.outline(c)
        front = np.sqrt(np.maximum(1.02 - radius * radius, 0.0))
        lit = (self.light_x / self.width) * c.x - (self.light_y / 0.56) * c.y + 0.9 * front - 0.85
        dark, bright = self.skin * rgb(128, 114, 109), self.skin * 1.1
        share = (0.5 / 0.6) + (self.contrast / 0.6) * lit
        c.paint(cover((radius - 1.0) * 0.43, c.pixel), mix(dark, bright, share))
        c = canvas.crop(-0.39, 0.07, 0.39, 0.33)
        cheek = bump(((np.abs(c.face_x) - 0.23) / 0.16) ** 2 + ((c.y - 0.2) / 0.13) ** 2)
        c.shade(-self.blush * cheek, rgb(0, 230, 200))

    def _ears(self, canvas: Canvas) -> None:
        c = canvas.crop(-0.56, -0.12, 0.56, 0.24)
        out, down = np.abs(c.x) - self.width - 0.02, c.y - 0.06
        square = (out / (0.062 * self.ear)) ** 2 + (down / (0.125 * self.ear)) ** 2
        tone = 0.88 + (0.25 / 0.4) * self.contrast * self.light_x * c.x - 0.16 * bump(2.2 * square)
        c.paint(cover((np.sqrt(square) - 1.0) * 0.075, c.pixel), self.skin * rgb(255, 240, 236), tone)


class Eyes(Part):
    """Both eyes at once: x is folded at the nose, so that outward is positive on either side."""

    def __init__(self, sitting: Sitting) -> None:
        person, moment = sitting.dice()
        masculine, age = sitting.masculine, sitting.age
        wide = person.normal(0.094 - 0.004 * masculine - 0.006 * age, 0.006)
        squint = 0.16 * sitting.has["smiling"] + 0.28 * sitting.has["frowning"]
        brown, bright = person.pick(3), 3.0 + person.pick(4)
        self.apart = sitting.eyes_apart
        self.wide = wide
        self.upper = wide * person.normal(0.60 - 0.05 * masculine - 0.12 * age, 0.05) * (1.0 - 0.6 * squint)
        self.lower = wide * person.normal(0.42 - 0.04 * age, 0.04) * (1.0 - 1.5 * squint)
        self.tilt = person.normal(0.06, 0.06)
        self.iris = palette(_IRIS, np.where(person.uniform() < 0.75 * sitting.melanin + 0.2, brown, bright))
        self.gaze = 0.040 * np.clip(1.1 * sitting.turn + moment.normal(0.0, 0.12), -1.0, 1.0)
        self.lash = person.normal(0.62 - 0.32 * masculine, 0.08)
        self.crease = person.uniform(0.12, 0.40)
        self.spark = 2.0 * flag(sitting.light_x > 0) - 1.0  # -1 or 1: where the light is mirrored
        self.age = age
        self.skin = sitting.skin

    def draw(self, canvas: Canvas) -> None:
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


class Brows(Part):
    """Eyebrows, the furrow of a frown between them, and the lines that age draws on the forehead."""

    def __init__(self, sitting: Sitting) -> None:
        person, moment = sitting.dice()
        masculine = sitting.masculine
        frown = sitting.has["frowning"] * moment.uniform(0.75, 1.15)
        lift = moment.normal(0.0, 0.006) - 0.014 * sitting.has["smiling"] + 0.046 * frown
        self.apart = sitting.eyes_apart + 0.008 - 0.016 * frown
        self.height = person.normal(-0.150 + 0.012 * masculine, 0.008) + lift
        self.thick = np.maximum(person.normal(0.021 + 0.009 * masculine, 0.003), 0.011)
        self.arch = person.normal(0.030 - 0.012 * masculine, 0.008) * (1.0 - 0.6 * frown)
        self.slant = person.normal(0.06, 0.04) - 0.50 * frown
        self.length = person.normal(0.115, 0.007)
        self.colour = mix(0.75 * sitting.hair, rgb(40, 30, 26), 0.35)
        self.frown = frown
        self.age = sitting.age

    def draw(self, canvas: Canvas) -> None:
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


class Nose(Part):
    """The nose, modelled by light and shadow, and the folds from it to the corners of the mouth."""

    def __init__(self, sitting: Sitting) -> None:
        person, _ = sitting.dice()
        masculine, age = sitting.masculine, sitting.age
        lit = sitting.light_x + 0.35 * (2.0 * flag(sitting.light_x > 0) - 1.0)
        self.length = person.normal(0.195 + 0.008 * masculine + 0.010 * age, 0.012)
        self.wide = person.normal(0.068 + 0.007 * masculine + 0.004 * age, 0.007)
        self.relief = 1.7 * sitting.contrast * lit  # signed: the lit side of the ridge
        self.fold = 0.01 + 0.13 * age + 0.045 * sitting.has["smiling"]
        self.skin = sitting.skin

    def draw(self, canvas: Canvas) -> None:
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


class Mouth(Part):
    """Lips that are closed or open to show teeth, curved up by a smile and down by a frown."""

    def __init__(self, sitting: Sitting) -> None:
        person, moment = sitting.dice()
        masculine, has = sitting.masculine, sitting.has
        smile = has["smiling"] * moment.uniform(0.75, 1.15)
        sulk = has["frowning"] * (1.0 - has["smiling"])
        grin = has["smiling"] * moment.chance(0.8) * moment.uniform(0.7, 1.15)
        full = person.normal(1.0 - 0.16 * masculine - 0.12 * sitting.age, 0.1)
        red = np.clip(person.normal(0.34 - 0.30 * masculine, 0.14), 0.0, 0.85)
        rose = rgb(190, 70, 76) * (0.55 + 0.45 * sitting.skin[:, :1])
        self.place = person.normal(0.345 + 0.004 * masculine, 0.010)
        self.wide = person.normal(0.128 + 0.006 * masculine, 0.008) + 0.055 * smile - 0.012 * sulk
        self.curve = moment.normal(0.004, 0.006) + 0.060 * smile - 0.042 * sulk
        self.upper = 0.024 * full * (1.0 - 0.25 * grin)
        self.lower = 0.036 * full * (1.0 - 0.15 * grin)
        self.open = 0.062 * grin
        self.lip = mix(sitting.skin * rgb(226, 150, 140), rose, red)

    def draw(self, canvas: Canvas) -> None:
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


class Hair(Part):
    """A cap of hair with an opening for the face, and long hair that falls behind the neck.

    A fringe is the same cap with a lower opening. People without hair on top, and a few others, cover their forehead
    with a headband instead (see `Hat`).
    """

    def __init__(self, sitting: Sitting, head: Head) -> None:
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
        self.colour = sitting.hair
        self.volume = np.maximum(volume * (1.0 - 0.4 * has["hat"]), 0.008)
        self.width = head.width
        self.top = head.top
        self.hairline = np.where(fringe > 0, moment.normal(-0.15, 0.014), free)
        self.parting = person.normal(0.0, 0.10) * (1.0 - 0.7 * fringe) * (1.0 - bald)
        self.square = np.where(fringe > 0, np.float32(0.75), square)
        self.tilt = person.normal(0.0, 0.16) * (1.0 - 0.5 * fringe) * (1.0 - bald)
        self.comb = 0.006 + 0.016 * fringe
        self.curl = curl
        self.long = long
        self.length = person.normal(0.86, 0.09)
        # where short hair ends beside the face
        self.sides = np.where(long > 0, np.float32(0.48), np.where(bob > 0, over_ear, at_ear))
        # how steeply it ends: large behind the ear, small over it
        self.tuck = np.where(long > 0, np.float32(0.0), np.where(bob > 0, np.float32(0.3), np.float32(3.0)))
        self.bald = bald
        self.neck, self.light_x = sitting.neck, sitting.light_x

    def draw_back(self, canvas: Canvas) -> None:
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
        c.shade(-0.16 * (1.0 - self.bald) * above * cover(np.maximum(outer, opening - 0.035), 0.07), _HAIR_SHADOW)
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
        outline = 0.016 * self.curl * (wave(4.1 * x + 1.7 * y) + wave(4.6 * y - 2.3 * x + 0.3))
        warp = 0.25 * wave(2.3 * y + 1.1 * x)
        return outline, 0.16 * self.curl * wave(7.0 * x + 3.0 * y + warp) * wave(6.0 * y - 2.6 * x - warp)


class Beard(Part):
    """A full beard, a short one or a goatee; without, some men show a trace of stubble."""

    def __init__(self, sitting: Sitting, head: Head, mouth: Mouth) -> None:
        person, _ = sitting.dice()
        beard, kind = sitting.has["beard"], person.pick(3)
        stubble = np.clip(person.normal(0.06, 0.08), 0.0, 0.2) * flag(sitting.masculine > 0)
        self.strength = np.where(beard > 0, 0.95 - 0.10 * flag(kind == 1), stubble)
        self.goatee = flag(kind == 2)
        self.hang = person.normal(0.045, 0.018) * flag(kind != 1) * beard
        self.colour = 0.85 * sitting.hair
        self.place = mouth.place  # of the mouth
        self.wide = mouth.wide
        self.head = head

    def draw(self, canvas: Canvas) -> None:
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


class Glasses(Part):
    """One pair per person, round to rectangular, worn or not."""

    def __init__(self, sitting: Sitting) -> None:
        person, _ = sitting.dice()
        self.worn = sitting.has["eyeglasses"]
        self.apart = sitting.eyes_apart + 0.002
        self.wide = person.normal(0.142, 0.006)
        self.tall = person.normal(0.115, 0.010)
        self.square = np.clip(person.normal(0.5, 0.35), 0.0, 0.93)
        self.thick = person.normal(0.012, 0.003)
        self.frame = person.colour(_FRAMES)
        self.head_width = sitting.head_width

    def draw(self, canvas: Canvas) -> None:
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


class Hat(Part):
    """A knitted cap, a brimmed hat, a peaked cap, or a headband, which is no hat. It sits low to cover the forehead."""

    def __init__(self, sitting: Sitting, hair: Hair) -> None:
        _, moment = sitting.dice()
        hat = sitting.has["hat"]
        felt = moment.colour(_FELT)
        pale = moment.chance(0.5)[:, None] > 0
        self.kind = (moment.pick(3) + 1.0) * hat + 4.0 * sitting.headband - 1.0  # -1: bare-headed
        self.line = moment.normal(-0.36 + 0.20 * sitting.has["obstructed_forehead"], 0.012)
        self.wide = hair.width + hair.volume + 0.02
        self.tall = hair.top + hair.volume + moment.uniform(0.04, 0.10)
        self.felt = felt
        self.trim = np.where(pale, mix(felt, rgb(240, 236, 226), 0.6), 0.6 * felt)
        self.light_x = sitting.light_x

    def draw(self, canvas: Canvas) -> None:
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


class Exposure(Part):
    """The camera: brightness, colour temperature, fall-off to the corners, sensor noise."""

    def __init__(self, sitting: Sitting) -> None:
        _, moment = sitting.dice()
        warmth = moment.normal(0.015, 0.03)
        balance = np.stack([1.0 + warmth, np.ones_like(warmth), 1.0 - warmth], axis=1)
        self.gain = 255.0 * balance * moment.normal(1.0, 0.08)[:, None]
        self.light_x = sitting.light_x
        self.noise = 255.0 * moment.uniform(0.004, 0.014)

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


class Portraits(Part):
    """A series of portraits, ready to be painted at any size; a slice of it is a shorter series."""

    def __init__(self, has: Mapping[str, NDArray[np.int8]], persons: Rows, rng: np.random.Generator) -> None:
        """Draw all traits of portraits of `persons` that have these attributes (name -> 0 or 1 per picture)."""
        columns = {name: column.astype(np.float32)[:, None, None] for name, column in has.items()}
        sitting = Sitting(columns, persons, iter(rng.spawn(_STREAMS)))
        head, mouth = Head(sitting), Mouth(sitting)
        hair = Hair(sitting, head)
        self.pose = Pose(sitting)
        self.backdrop = Backdrop(sitting)
        self.body = Body(sitting)
        self.head = head
        self.eyes = Eyes(sitting)
        self.brows = Brows(sitting)
        self.nose = Nose(sitting)
        self.mouth = mouth
        self.beard = Beard(sitting, head, mouth)
        self.hair = hair
        self.glasses = Glasses(sitting)
        self.hat = Hat(sitting, hair)
        self.exposure = Exposure(sitting)

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
