"""Write the tables of src/blindsight/papers/README.md from papers/items.toml and the benchmarks' tables, or check them.

::

    python tools/papers_map.py            # writes the README's tables
    python tools/papers_map.py --check    # fails if something named is missing or the README is old

An item names its function, its test and its verdict, and where a figure can be compared the benchmark's table with
section, row and column of our figure and the paper's. "Ours" is read from that table.
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAPERS = ROOT / "src" / "blindsight" / "papers"
TABLES = ROOT / "benchmarks" / "tables"
VERDICTS = ("reproduced", "differs", "refuted", "other data", "undecided", "not built")
"""How a verdict begins; what follows says why."""

_KEYS = {"item", "function", "test", "verdict", "table", "cell", "paper", "ours", "command"}


def problems(documents: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with the items."""
    for document in documents.values():
        for item in document["items"]:
            name = f"{document['title']}: {item.get('item', '?')}"
            if strange := item.keys() - _KEYS:
                yield f"{name}: unknown keys {', '.join(sorted(strange))}"
            if not item.get("verdict", "").startswith(VERDICTS):
                yield f"{name}: the verdict must begin with one of {', '.join(VERDICTS)}"
            if item.get("verdict", "").startswith("not built"):
                continue
            if not _function_exists(item.get("function", "")):
                yield f"{name}: there is no function {item.get('function')}"
            if not _test_exists(item.get("test", "")):
                yield f"{name}: there is no test {item.get('test')}"
            try:
                _ours(item)
            except LookupError as error:
                yield f"{name}: {error}"


def _function_exists(name: str) -> bool:
    module, _, path = name.partition(":")
    try:
        found = import_module(f"blindsight.{module}")
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return False
    return bool(path)


def _test_exists(name: str) -> bool:
    file, _, function = name.partition("::")
    path = ROOT / "tests" / f"{file}.py"
    return path.is_file() and function in _functions(path)


@cache
def _functions(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef))


def _ours(item: dict[str, Any]) -> str:
    if "table" not in item:
        return str(item.get("ours", ""))
    sections = _sections(TABLES / f"{item['table']}.md")
    if "cell" not in item:
        return str(item.get("ours", ""))
    section, row, column = item["cell"]
    found = [name for name in sections if name.startswith(section)]
    if len(found) != 1:
        raise LookupError(f"{item['table']} has {len(found)} sections that begin with {section!r}")
    header, rows = sections[found[0]]
    lines = [line for line in rows if row in (line[0], " | ".join(line[:2]))]
    if len(lines) != 1 or column not in header:
        raise LookupError(f"{item['table']}, {section}: {len(lines)} rows {row!r}, columns {', '.join(header)}")
    return lines[0][header.index(column)]


@cache
def _sections(path: Path) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return header and rows of the table of every section of a benchmark's page."""
    if not path.is_file():
        raise LookupError(f"there is no table {path.name}")
    sections: dict[str, tuple[list[str], list[list[str]]]] = {}
    for part in re.split(r"^## ", path.read_text(), flags=re.MULTILINE)[1:]:
        title, *lines = part.splitlines()
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        if rows:
            sections[title] = rows[0], rows[2:]
    return sections


def tables(documents: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each generated part of the README."""
    for name, document in documents.items():
        lines = ["| item | function | test | paper | ours | verdict | measured by |", "| --- " * 7 + "|"]
        for item in document["items"]:
            function = item.get("function", "").replace(":", ".")
            measured = f"`make bench NAME={item['table']}`" if "table" in item else item.get("command", "")
            cells = [
                item["item"],
                f"`{function}`" if function else "",
                f"`{item['test']}`" if "test" in item else "",
                str(item.get("paper", "")),
                _ours(item),
                item["verdict"],
                measured,
            ]
            lines.append("| " + " | ".join(cells) + " |")
        yield name, "\n".join(lines)
    counted = {document["title"]: _counted(document) for document in documents.values()}
    counted["all"] = sum(counted.values(), Counter[str]())
    lines = ["| document | " + " | ".join(VERDICTS) + " |", "| --- " + "| ---: " * len(VERDICTS) + "|"]
    lines += [
        f"| {name} | " + " | ".join(str(count[kind]) for kind in VERDICTS) + " |" for name, count in counted.items()
    ]
    yield "counts", "\n".join(lines)


def _counted(document: dict[str, Any]) -> Counter[str]:
    verdicts = (item["verdict"] for item in document["items"])
    return Counter(next(kind for kind in VERDICTS if verdict.startswith(kind)) for verdict in verdicts)


def main() -> int:
    """Write the README, or with --check compare it."""
    documents = tomllib.loads((PAPERS / "items.toml").read_text())
    found = list(problems(documents))
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        return 1
    readme = PAPERS / "README.md"
    old = text = readme.read_text()
    for name, table in tables(documents):
        start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        if text.count(start) != 1 or text.count(end) != 1:
            print(f"README.md needs one place for {name!r}: {start}...{end}", file=sys.stderr)
            return 1
        before, rest = text.split(start)
        text = before + start + table + end + rest.split(end)[1]
    if "--check" in sys.argv[1:]:
        if text != old:
            print(
                "papers/README.md is not what items.toml and the tables say: run tools/papers_map.py", file=sys.stderr
            )
        return int(text != old)
    readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
