"""Line charts as coordinates: a template draws them as SVG, and a browser with scripts redraws them with readouts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 44


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """Several lines over the same `x`, whose places are named by `ticks`; `levels` are horizontal lines.

    `alt` says in words what is to be seen. A line has None where it has no point.
    """

    x: Sequence[float]
    ticks: Sequence[str]
    lines: Mapping[str, Sequence[float | None]]
    levels: Mapping[str, float]
    x_label: str
    y_label: str
    low: float
    high: float
    alt: str

    def across(self, x: float) -> float:
        """Return how far from the left a value stands."""
        first, last = self.x[0], self.x[-1]
        share = 0.5 if first == last else (x - first) / (last - first)
        return round(LEFT + 14 + share * (WIDTH - LEFT - RIGHT - 28), 1)

    def down(self, y: float) -> float:
        """Return how far from the top a value stands."""
        share = (y - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    def points(self, line: str) -> list[tuple[float, float]]:
        """Return the places of one line's points."""
        values = zip(self.x, self.lines[line], strict=False)
        return [(self.across(x), self.down(y)) for x, y in values if y is not None]

    @property
    def grid(self) -> list[tuple[float, str]]:
        """Return where horizontal rules stand, and their numbers."""
        reach = self.high - self.low
        step, digits = (0.2, 1) if reach > 0.6 else (0.1, 1) if reach > 0.25 else (0.05, 2)
        values = [self.low + number * step for number in range(round(reach / step) + 1)]
        return [(self.down(value), f"{value:.{digits}f}") for value in values]

    def to_json(self) -> str:
        """Return what a script needs to draw the same."""
        return json.dumps(
            {
                "x": list(self.x),
                "ticks": list(self.ticks),
                "lines": [{"name": name, "y": list(values)} for name, values in self.lines.items()],
                "levels": [{"name": name, "y": value} for name, value in self.levels.items()],
                "xLabel": self.x_label,
                "yLabel": self.y_label,
                "low": self.low,
                "high": self.high,
            }
        )


def tint(value: float | None, strongest: float) -> int:
    """Return how strongly a cell of a matrix is coloured, 0 to 5.

    >>> tint(0.0, 1.0), tint(-0.5, 1.0), tint(3.0, 1.0), tint(None, 1.0)
    (0, 3, 5, 0)
    """
    return 0 if value is None else min(5, round(5 * abs(value) / strongest + 1e-9))


def bar(value: float, low: float = 0.45, high: float = 1.0) -> float:
    """Return where a balanced accuracy stands on a scale of 0 to 100.

    >>> bar(0.45), bar(1.0)
    (0.0, 100.0)
    """
    return round(100 * (min(max(value, low), high) - low) / (high - low), 2)
