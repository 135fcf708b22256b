"""The head: its outline, the light on its skin, its ears."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from blindsight.data.portraits.canvas import Array, Canvas, bump, cover, mix, rgb, squircle
from blindsight.data.portraits.sitting import Part, Sitting


@dataclass(frozen=True)
class Head(Part):
    """Skull and jaw in skin. A squarer, wider jaw and a longer chin are among the marks of a man's face."""

    width: Array
    top: Array
    chin: Array
    square: Array
    taper: Array
    ear: Array
    skin: Array
    blush: Array
    light_x: Array
    light_y: Array
    contrast: Array

    @classmethod
    def cast(cls, sitting: Sitting) -> Self:
        """Draw the traits of this part."""
        person, _ = sitting.dice()
        masculine, age = sitting.masculine, sitting.age
        return cls(
            width=sitting.head_width,
            top=person.normal(0.56, 0.012),
            chin=sitting.chin,
            square=np.clip(person.normal(0.38 + 0.24 * masculine + 0.08 * age, 0.1), 0.0, 0.85),
            taper=np.clip(person.normal(0.24 - 0.09 * masculine, 0.04), 0.05, 0.4),
            ear=person.normal(1.0 + 0.1 * age, 0.1),
            skin=sitting.skin,
            blush=person.uniform(0.02, 0.14) * (1.1 - 0.5 * sitting.melanin),
            light_x=sitting.light_x,
            light_y=sitting.light_y,
            contrast=sitting.contrast,
        )

    def outline(self, c: Canvas) -> Array:
        """Return the radius in units of the head: 1 at its edge."""
        low, high = np.maximum(c.y, 0.0) / self.chin, np.minimum(c.y, 0.0) / self.top
        low *= low
        across = c.x / (self.width * (1.0 - self.taper * low))
        corner = np.where(c.y > 0, self.square, np.float32(0.1))
        return squircle(across * across, low + high * high, corner)

    def draw(self, canvas: Canvas) -> None:
        """Paint the ears, then the head lit from one side and above, with warmer shadows."""
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
