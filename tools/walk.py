"""Count the modules of Blindsight that a command runs through, and the doors between them.

::

    python tools/walk.py learn classifier --data digits --rounds 2    # lists the modules in the order of first calls
    python tools/walk.py --check                                     # fails if a command of LIMITS grew

A door is a pair of modules of which the first calls the second. Calls while a module is imported do not count.
"""

import contextlib
import io
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src" / "blindsight"
LIMITS = {"learn classifier --data digits --rounds 2": (41, 115)}
"""At most so many modules and doors for a command; what grows past them is looked at before the limit is raised."""


class Walk:
    """The modules and doors of everything that runs while it is the profiler of the process."""

    def __init__(self) -> None:
        self.modules: dict[str, None] = {}  # in order
        self.doors: set[tuple[str, str]] = set()
        self._names: dict[CodeType, str | None] = {}

    def __enter__(self) -> "Walk":
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or (callee := self._module(frame.f_code)) is None:
            return
        caller = self._caller(frame)
        door = None if caller is None or caller == callee else (caller, callee)
        if (callee in self.modules and (door is None or door in self.doors)) or _importing(frame):
            return
        self.modules[callee] = None
        if door is not None:
            self.doors.add(door)

    def _caller(self, frame: FrameType) -> str | None:
        back = frame.f_back
        while back is not None:
            if (name := self._module(back.f_code)) is not None:
                return name
            back = back.f_back
        return None

    def _module(self, code: CodeType) -> str | None:
        if code not in self._names:
            path = Path(code.co_filename)
            inside = path.is_relative_to(SOURCE)
            self._names[code] = path.relative_to(SOURCE).with_suffix("").as_posix() if inside else None
        return self._names[code]


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def walk(command: list[str]) -> Walk:
    """Run a command in this process, in an empty folder, and return its walk; one that fails ends this process."""
    from blindsight.cli import main

    sys.argv = ["blindsight", *command]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        walked = Walk()
        try:
            with walked:
                main()
        except SystemExit as stop:
            if stop.code:
                raise
    return walked


def main() -> int:
    """Show one walk, or check all that have limits."""
    words = sys.argv[1:]
    if not words:
        sys.exit(__doc__)
    if words != ["--check"]:
        walked = walk(words)
        for module in walked.modules:
            print(module)
        print(f"{len(walked.modules)} modules, {len(walked.doors)} doors")
        return 0
    grown = 0
    for command, (most_modules, most_doors) in LIMITS.items():
        walked = walk(command.split())
        modules, doors = len(walked.modules), len(walked.doors)
        print(f"{command}: {modules} modules (at most {most_modules}), {doors} doors (at most {most_doors})")
        grown += modules > most_modules or doors > most_doors
    return min(grown, 1)


if __name__ == "__main__":
    sys.exit(main())
