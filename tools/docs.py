"""Build the documentation as a site: every Markdown page, and the reference of the Python interface from docstrings.

python tools/docs.py OUT    write OUT/README.html, OUT/docs/*.html and OUT/api/*.html; a dead link is a failure
"""

import pkgutil
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import blindsight

ROOT = Path(__file__).resolve().parent.parent
_STYLE = (
    "body{max-width:60rem;margin:2rem auto;padding:0 1rem;font:16px/1.6 system-ui,sans-serif;color:#1d2430}"
    "pre{background:#f4f4f1;padding:.8rem;overflow-x:auto;border-radius:6px}code{font-size:.92em}img{max-width:100%}"
    "table{border-collapse:collapse;display:block;overflow-x:auto}td,th{border:1px solid #dcdfe4;padding:.3rem .6rem;"
    "text-align:left;vertical-align:top}a{color:#1f5f8b}"
)
_OURS = """{% extends "default/module.html.jinja2" %}
{% macro is_public(doc) %}
{% if not (doc.name.startswith("set_") and doc.name.endswith("_request")) %}{{ default_is_public(doc) }}{% endif %}
{% endmacro %}
"""  # without the methods that scikit-learn adds to every estimator to route metadata


def pages() -> list[Path]:
    """Return every Markdown page of the repository that people read."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted([*found, *(ROOT / "benchmarks").rglob("*.md"), *(ROOT / "apps").rglob("*.md")])


def slug(heading: str) -> str:
    """Return the address that readers of Markdown give a heading.

    >>> slug("Five schemes, one `sum`")
    'five-schemes-one-sum'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def dead_links(markdown: Iterable[Path]) -> list[str]:
    """Return the links inside the repository that lead nowhere, as "page: link"."""
    dead, anchors = [], {}
    for page in markdown:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = unquote(link).partition("#")
            target = page.parent / path if path else page
            if re.match(r"[a-z]+:", link):
                continue
            if not target.exists():
                dead.append(f"{page.relative_to(ROOT)}: {link}")
            elif anchor and target.suffix == ".md":
                if target not in anchors:
                    anchors[target] = {
                        slug(line) for line in re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
                    }
                if anchor not in anchors[target]:
                    dead.append(f"{page.relative_to(ROOT)}: {link}")
    return dead


class _Links(HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links, self.names = list[str](), set[str]()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names |= {value for name in ("id", "name") if (value := given.get(name))}
        self.links += [value for name in ("href", "src") if (value := given.get(name))]


def dead_in_site(folder: Path) -> list[str]:
    """Return the links of generated pages that lead to no page, or to no place in it."""
    found = {page.resolve(): _Links(page) for page in folder.rglob("*.html")}
    dead = []
    for page, parsed in found.items():
        for link in parsed.links:
            if re.match(r"[a-z]+:|//", link):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and target in found and anchor not in found[target].names):
                dead.append(f"{page.relative_to(folder.resolve())}: {link}")
    return dead


def unlink_hidden(folder: Path) -> None:
    """Take links to what pdoc does not show (private bases, what a class inherits) out of its pages."""
    names = {page.resolve(): _Links(page).names for page in folder.rglob("*.html")}
    for page in names:

        def kept(link: re.Match[str], page: Path = page) -> str:
            target = (page.parent / unquote(link[1])).resolve() if link[1] else page
            return link[0] if link[2] in names.get(target, {link[2]}) else link[3]

        page.write_text(re.sub(r'<a href="((?![a-z]+:)[^"#]*)#([^"]+)">(.*?)</a>', kept, page.read_text()))


def modules() -> list[str]:
    """Return what a user may import: the rooms of the package and their modules."""
    found = pkgutil.walk_packages(blindsight.__path__, "blindsight.")
    names = [one.name for one in found if "._" not in one.name and ".flower." not in one.name]
    return [name for name in names if name.split(".")[1] not in ("cli", "demo", "report", "service")]


def build(out: Path) -> None:
    """Write all pages below `out`."""
    import pdoc
    from markdown_it import MarkdownIt

    for name in blindsight.__all__:  # they are loaded when they are asked for, which pdoc does not
        setattr(blindsight, name, getattr(blindsight, name))
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as templates:
        (Path(templates) / "module.html.jinja2").write_text(_OURS)
        pdoc.render.configure(docformat="restructuredtext", template_directory=Path(templates))
        warnings.simplefilter("ignore")  # packages without __all__ bring their modules along, named twice
        pdoc.pdoc("blindsight", *modules(), output_directory=out / "api")
    unlink_hidden(out / "api")
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    for page in pages():
        html = reader.render(page.read_text())
        html = re.sub(
            r"<h(\d)>(.*?)</h\1>", lambda h: f'<h{h[1]} id="{slug(re.sub("<.*?>", "", h[2]))}">{h[2]}</h{h[1]}>', html
        )
        html = re.sub(r'href="((?![a-z]+:)[^"#]*)\.md', r'href="\1.html', html)
        target = (out / page.relative_to(ROOT)).with_suffix(".html")
        target.parent.mkdir(parents=True, exist_ok=True)
        title = re.search(r"^# (.*)$", page.read_text(), re.MULTILINE)
        named = title[1] if title else page.stem
        head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{named}</title><style>{_STYLE}</style>'
        target.write_text(f"{head}\n{html}")
        for name in re.findall(r'(?:src|href)="((?![a-z]+:)[^"#]+)"', html):
            source = page.parent / unquote(name)
            if source.is_dir():
                (target.parent / unquote(name)).mkdir(parents=True, exist_ok=True)
            elif source.is_file() and source.suffix != ".md":
                copy = target.parent / unquote(name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(source.read_bytes())


def main(out: Path) -> int:
    """Build the site and say which links are dead."""
    build(out)
    dead = [*dead_links(pages()), *dead_in_site(out)]
    print("\n".join(dead) or f"{out / 'docs' / 'index.html'}: no dead link.")
    return bool(dead)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
