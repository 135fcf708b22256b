"""Plots that follow the reader's theme: drawn by matplotlib, coloured by the page.

Ink, grid and the series colours are drawn in marker colours that `to_svg` replaces by CSS variables, so one drawing
reads well on light and dark paper. Text stays text: it can be searched, selected and read aloud.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK, GRID = "#010101", "#020202"
SERIES = ("#030301", "#030302", "#030303", "#030304", "#030305", "#030306")
"""Marker colours of up to six series, in the order in which they should be used."""

_VARIABLES = {INK: "--ink", GRID: "--grid"} | {marker: f"--series-{i}" for i, marker in enumerate(SERIES, 1)}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "blindsight",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "figure.facecolor": "none",
}


@contextmanager
def drawing(width: float = 7.2, height: float = 3.6) -> Iterator[tuple[Figure, Axes]]:
    """Open a figure with one set of axes in the report's style; sizes are in inches."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, figure.add_subplot()


def to_svg(figure: Figure) -> str:
    """Return the figure as SVG to be put inside a page, its marker colours turned into the page's variables."""
    buffer = StringIO()
    with rc_context(_STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    for marker, variable in _VARIABLES.items():
        svg = svg.replace(marker, f"var({variable})")
    return re.sub(r"font: ([\d.]+)px '[^;]*'", r"font: \1px var(--sans)", svg)
