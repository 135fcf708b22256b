"""From chapters to one self-contained HTML file: no script, no network, light and dark, laptop and phone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from blindsight.files import atomic_writer
from blindsight.report.blocks import Chapter


def render_report(title: str, chapters: Sequence[Chapter], *, facts: Mapping[str, str]) -> str:
    """Return the report as one HTML page; `facts` (machine, versions, seed, ...) close it."""
    pages = Environment(
        loader=PackageLoader("blindsight.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    css = Markup(pages.get_template("report.css").render())  # noqa: S704 - our own file
    return pages.get_template("report.html").render(title=title, chapters=chapters, facts=facts, css=css)


def write_report(
    path: Path, title: str, chapters: Sequence[Chapter], *, facts: Mapping[str, str], private: bool = False
) -> Path:
    """Write the report to `path`, whole or not at all, and return the path; a `private` one only its owner can read."""
    page = render_report(title, chapters, facts=facts)
    with atomic_writer(path, private=private) as stream:
        stream.write(page.encode())
    return path
