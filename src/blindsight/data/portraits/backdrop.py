"""What is behind the person: three kinds of room, three kinds of landscape, all a little out of focus."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from blindsight.data.portraits.canvas import Array, Canvas, bump, cover, ellipse, mix, rgb, wave
from blindsight.data.portraits.sitting import Part, Sitting

_WALLS = (
    (214, 205, 190), (188, 197, 205), (226, 220, 208), (170, 180, 165), (205, 180, 165),
    (150, 160, 175), (196, 190, 205), (120, 125, 130), (90, 105, 120),
)  # fmt: skip
_ACCENTS = (
    (150, 60, 50), (60, 90, 130), (200, 170, 100), (70, 110, 80),
    (120, 84, 116), (210, 200, 185), (90, 70, 60), (190, 110, 60),
)  # fmt: skip
_CHANCES = 36


@dataclass(frozen=True)
class Backdrop(Part):
    """The background. The first three kinds are indoors, the others outdoors."""

    kind: Array
    wall: Array
    accent: Array
    side: Array  # -1 or 1: where the light, the window or the picture is
    place_x: Array
    place_y: Array
    extent: Array
    phase: Array
    weather: Array
    chances: Array  # (n, 36, 1): positions and shades of clouds, leaves and books

    @classmethod
    def cast(cls, sitting: Sitting) -> Self:
        """Draw the traits of this part."""
        _, moment = sitting.dice()
        return cls(
            kind=moment.pick(3) + 3.0 * sitting.has["outdoors"],
            wall=moment.colour(_WALLS) * moment.uniform(0.75, 1.05)[:, None],
            accent=moment.colour(_ACCENTS),
            side=2.0 * moment.chance(0.5) - 1.0,
            place_x=moment.uniform(0.4, 0.72),
            place_y=moment.uniform(-0.6, -0.2),
            extent=moment.uniform(0.16, 0.32),
            phase=moment.uniform(),
            weather=moment.uniform(),
            chances=np.concatenate([moment.uniform() for _ in range(_CHANCES)], axis=1),
        )

    def draw(self, canvas: Canvas) -> None:
        """Fill the whole canvas."""
        kinds = (Backdrop._picture, Backdrop._shelf, Backdrop._window, Backdrop._hills, Backdrop._trees, Backdrop._sea)
        for kind, paint in enumerate(kinds):
            with canvas.only(self.kind == kind) as (part, rows):
                paint(self[rows], part)

    def _wall(self, c: Canvas) -> None:
        light = 1.0 + 0.10 * self.side * c.right - 0.10 * c.down
        c.pixels[...] = self.wall * light[:, None]

    def _picture(self, c: Canvas) -> None:
        """A wall with a framed picture above a darker panel."""
        self._wall(c)
        across, down = np.abs(c.right - self.side * self.place_x), np.abs(c.down - self.place_y)
        mount = mix(self.wall, rgb(255, 255, 250), 0.6)
        for grow, colour in ((0.03, self.accent * 0.6), (0.0, mount), (-0.06, self.accent)):
            layer = cover(across - (0.8 * self.extent + grow), 0.05) * cover(down - (self.extent + grow), 0.05)
            c.paint(layer, colour)
        c.shade(-0.14 * cover(0.45 + 0.1 * self.phase - c.down, 0.04))

    def _shelf(self, c: Canvas) -> None:
        """Books on wooden shelves."""
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
        """Daylight between a curtain and the wall."""
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
        """Far hills behind a meadow."""
        self._sky(c)
        far = 0.10 * wave(c.right * 0.35 + self.phase) + 0.04 * wave(c.right * 0.9 + 3.0 * self.phase)
        c.paint(
            cover(self.place_y + 0.42 + far - c.down, 0.06), mix(rgb(120, 150, 160), rgb(110, 140, 110), self.weather)
        )
        near = 0.09 * wave(c.right * 0.3 + 0.6 - self.phase) + 0.015 * wave(c.right * 5.0)
        c.paint(cover(self.place_y + 0.62 + near - c.down, 0.08), mix(rgb(96, 142, 70), rgb(140, 150, 80), self.phase))

    def _trees(self, c: Canvas) -> None:
        """Leaves over a lawn."""
        self._sky(c)
        c.paint(cover(0.25 - c.down, 0.2), rgb(110, 140, 76))
        for i in range(11):
            u, v, shade = (self.chances[:, 3 * i + j, None] for j in range(3))
            radius = 0.34 + 0.18 * wave(7.0 * shade + u)
            crown = ellipse(c.right - 2.4 * u + 1.2, c.down + 0.75 - 0.95 * v, radius, 0.85 * radius)
            c.paint(0.85 * cover(crown, 0.14), mix(rgb(48, 88, 50), rgb(140, 176, 92), shade))

    def _sea(self, c: Canvas) -> None:
        """Water behind a beach."""
        self._sky(c)
        level = self.place_y + 0.45
        c.paint(cover(level - c.down, 0.03), mix(rgb(62, 128, 160), rgb(90, 160, 170), self.weather))
        shore = level + 0.34 + 0.04 * wave(c.right * 0.5 + self.phase)
        c.paint(cover(shore - c.down, 0.06), rgb(222, 200, 160))
