"""What a report is made of: chapters of text, tables, plots, pictures and privacy statements."""

import re
from base64 import b64encode
from dataclasses import dataclass, field
from io import BytesIO

from PIL import Image

from blindsight.statement import PrivacyStatement

_NUMBER = re.compile(r"[+\-−]?[\d.,]+(e[+-]?\d+)?( ?(%|s|ms|MB|kB|points))?")


@dataclass(frozen=True)
class Text:
    """A paragraph of plain text."""

    text: str
    kind: str = "text"


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings; cells that are numbers are set right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    kind: str = "table"

    def is_numeric(self, column: int) -> bool:
        """Tell whether every cell of a column is a number (with or without a unit), so that it should be set right."""
        return all(_NUMBER.fullmatch(row[column]) for row in self.rows)


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
        """Return the picture as a PNG inside an address, so that the report stays one file."""
        buffer = BytesIO()
        self.image.save(buffer, format="PNG")
        return "data:image/png;base64," + b64encode(buffer.getvalue()).decode()


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
    def anchor(self) -> str:
        """Return the chapter's address inside the page."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")
