"""Make the notebooks in examples/ from the tutorials in docs/tutorials, so that their text exists once.

python tools/notebooks.py            write them
python tools/notebooks.py --check    refuse if one is not what its tutorial makes
python tools/notebooks.py --run      execute all, or those named after it, each in an empty folder
"""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
_BLOCK = re.compile(r"```(python|sh)\n(.*?)```\n?", re.DOTALL)


def cells(page: str) -> Iterator[tuple[str, str]]:
    """Return the parts of a tutorial in order: ("text" | "python" | "sh", what it says).

    >>> list(cells("One.\\n\\n```sh\\nls\\n```\\n\\nTwo.\\n"))
    [('text', 'One.'), ('sh', 'ls'), ('text', 'Two.')]
    """
    end = 0
    for found in [*_BLOCK.finditer(page), None]:
        if text := page[end : None if found is None else found.start()].strip():
            yield "text", text
        if found is not None:
            yield found[1], found[2].strip()
            end = found.end()


def notebook(page: Path) -> str:
    """Return a tutorial as a notebook without outputs."""
    made = []
    for number, (kind, text) in enumerate(cells(page.read_text())):
        cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
        if kind == "text":
            cell = {"cell_type": "markdown"}
            text = re.sub(r"\]\((\w+)\.md", r"](\1.ipynb", text).replace("](../", "](../docs/")
        elif kind == "sh":
            text = f"%%bash -e\n{text}"
        made.append(cell | {"id": f"{page.stem}-{number}", "metadata": {}, "source": text.splitlines(keepends=True)})
    language = {"language_info": {"name": "python"}}
    return json.dumps({"cells": made, "metadata": language, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def place(page: Path) -> Path:
    """Return where the notebook of a tutorial lies."""
    return ROOT / "examples" / f"{page.stem}.ipynb"


def execute(path: Path) -> None:
    """Run a notebook in an empty folder; what fails raises."""
    import nbclient
    import nbformat

    given: Any = nbformat  # without types
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(
            given.read(path, as_version=4), timeout=900, resources={"metadata": {"path": folder}}
        ).execute()


def main(task: str = "", *names: str) -> int:
    """Do what the command line asks for."""
    if task == "--check":
        stale = [
            page.name for page in TUTORIALS if not place(page).is_file() or place(page).read_text() != notebook(page)
        ]
        print(f"Notebooks out of date: {', '.join(stale)}. Run: make notebooks" if stale else "Notebooks are current.")
        return bool(stale)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for page in [page for page in TUTORIALS if not names or page.stem in names]:
        begun = time.perf_counter()
        place(page).write_text(notebook(page))
        if task == "--run":
            execute(place(page))
            print(f"{place(page).name}: {time.perf_counter() - begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
