"""A report page: text, tables, plots, pictures and privacy statements as one HTML file without script or network.

Plots are drawn by matplotlib in marker colours that `to_svg` replaces by CSS variables (light and dark); text stays
text, which can be searched, selected and read aloud.
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from blindsight.files import AnyPath, as_path, atomic_writer
from blindsight.statement import PrivacyStatement

_MARKS = (
    dict.fromkeys(("not refuted", "at chance", "accept"), "good")
    | dict.fromkeys(("refuted", "leaks", "reject"), "bad")
    | dict.fromkeys(("undecided", "not run", "as stated", "inconclusive"), "warn")
)
_NO_NUMBER = ("-", "none", "infinite")
_NUMBER = re.compile(r"[+\-−]?[\d.,]+(e[+-]?\d+)?( ?(%|s|ms|MB|kB|points|of \d+))?")


@dataclass(frozen=True)
class Text:
    """A paragraph of plain text."""

    text: str
    kind: str = "text"


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings, with a caption below and perhaps a title above."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    title: str = ""
    kind: str = "table"

    def is_numeric(self, column: int) -> bool:
        cells = [row[column] for row in self.rows]
        return any(_NUMBER.fullmatch(cell) for cell in cells) and all(
            _NUMBER.fullmatch(cell) or cell in _NO_NUMBER for cell in cells
        )

    @property
    def wordy(self) -> bool:
        """Whether it is all sentences: on a phone its rows are shown as lists, so that no column is out of sight."""
        return len(self.columns) > 3 and not any(self.is_numeric(column) for column in range(len(self.columns)))

    @staticmethod
    def mark(cell: str) -> str:
        """The CSS class of a cell that is a verdict: good, bad, warn; "" for any other cell."""
        return _MARKS.get(cell, "")


@dataclass(frozen=True)
class Plot:
    """A drawing as SVG text (see `plots.to_svg`), described by `alt` for those who cannot see it."""

    svg: str
    caption: str
    alt: str
    kind: str = "plot"


@dataclass(frozen=True)
class Picture:
    """A raster picture, described by `alt` for those who cannot see it."""

    image: Image.Image = field(repr=False)
    caption: str
    alt: str
    kind: str = "picture"

    def data_uri(self) -> str:
        """PNG, or JPEG where that is smaller."""
        png, jpeg = BytesIO(), BytesIO()
        self.image.save(png, format="PNG")
        self.image.convert("RGB").save(jpeg, format="JPEG", quality=90, subsampling=0)
        kind, data = min(("png", png.getvalue()), ("jpeg", jpeg.getvalue()), key=lambda encoded: len(encoded[1]))
        return f"data:image/{kind};base64,{b64encode(data).decode()}"


@dataclass(frozen=True)
class StatementBlock:
    """The privacy statement of the result shown above it."""

    statement: PrivacyStatement
    kind: str = "statement"


Block = Text | Table | Plot | Picture | StatementBlock


@dataclass(frozen=True)
class Chapter:
    """One part of the story: a title, a sentence that says what was found, and the evidence."""

    title: str
    lead: str
    blocks: tuple[Block, ...]

    @property
    def several_statements(self) -> bool:
        """If so, the page folds them to their headlines."""
        return sum(isinstance(block, StatementBlock) for block in self.blocks) > 1

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def environment() -> Environment:
    return Environment(
        loader=PackageLoader("blindsight.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


def render_report(title: str, chapters: Sequence[Chapter], *, facts: Mapping[str, str]) -> str:
    """Return the report as one HTML page; `facts` (machine, versions, seed, ...) close it."""
    pages = environment()
    css = Markup(pages.get_template("report.css").render())  # noqa: S704 - our own file
    return pages.get_template("report.html").render(title=title, chapters=chapters, facts=facts, css=css)


def write_report(
    path: AnyPath, title: str, chapters: Sequence[Chapter], *, facts: Mapping[str, str], private: bool = False
) -> Path:
    """Write the report to `path`, whole or not at all, and return the path; a `private` one only its owner can read."""
    path = as_path(path)
    page = render_report(title, chapters, facts=facts)
    with atomic_writer(path, private=private) as stream:
        stream.write(page.encode())
    return path


LEGEND: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "fontsize": 9}
"""Outside the axes, for a legend that would hide something inside."""

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


def heat_map(
    axes: Axes,
    values: NDArray[np.float64],
    names: Sequence[str],
    *,
    strongest: float,
    limit: float = np.inf,
    least: float = 0.0,
) -> None:
    """Draw a number in every cell off the diagonal: blue, orange if negative, red above the limit. A value of
    `strongest` has the full tint; below `least` a cell stays empty.
    """
    axes.grid(visible=False)
    for (row, column), value in np.ndenumerate(values):
        if row == column or abs(value) < least:
            continue
        if np.isnan(value):
            axes.text(column, row, "none", ha="center", va="center", fontsize=8)
            continue
        tint = 0.06 + 0.54 * min(1.0, abs(value) / strongest)
        colour = SERIES[4] if value > limit else SERIES[0] if value > 0 else SERIES[1]
        axes.add_patch(Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, color=colour, alpha=tint, linewidth=0))
        axes.text(column, row, _short(value), ha="center", va="center", fontsize=9)
    drawn = [plain_text(name) for name in names]
    axes.set_xticks(range(len(names)), drawn, rotation=40, ha="right", rotation_mode="anchor", fontsize=9)
    axes.set_yticks(range(len(names)), drawn, fontsize=9)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylim(len(names) - 0.4, -0.6)


def plain_text(text: str) -> str:
    """Return text that matplotlib draws as it is: dollars would begin a formula."""
    return text.replace("$", r"\$")


def _short(value: float) -> str:
    """Return two decimals without the zero before the point.

    >>> _short(0.123), _short(-0.05), _short(0.001), _short(1.0)
    ('.12', '-.05', '.00', '1.00')
    """
    text = f"{value:z.2f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.995 else text
