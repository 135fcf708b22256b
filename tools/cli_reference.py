"""Write docs/cli.md from the command line's own help, or with --check refuse one that is not current."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from blindsight.cli import app
from blindsight.cli.command import help_records

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below `command` with the words that call it."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{path} {name}")


def describe(path: str, command: click.Command) -> str:
    """Return one command's section: what it does, how it is called, its options."""
    context = click.Context(command, info_name=path)
    lines = [
        f"## `{path}`",
        "",
        command.help or "",
        "",
        f"    {path} {' '.join(command.collect_usage_pieces(context))}",
    ]
    if records := help_records(context):
        lines += ["", "| option | meaning |", "| --- | --- |"]
        lines += [f"| `{' '.join(name.split())}` | {' '.join(text.split())} |" for _, name, text in records]
    return "\n".join(lines) + "\n"


def reference() -> str:
    """Return the whole reference as markdown."""
    sections = (describe(path, command) for path, command in commands(app, "blindsight"))
    return "# The command line\n\nMade from the program's own help; do not edit.\n\n" + "\n".join(sections)


def main() -> None:
    """Write or check the reference."""
    if "--check" not in sys.argv[1:]:
        REFERENCE.parent.mkdir(exist_ok=True)
        REFERENCE.write_text(reference())
    elif not REFERENCE.exists() or REFERENCE.read_text() != reference():
        sys.exit("docs/cli.md is not current. Run: make reference")


if __name__ == "__main__":
    main()
