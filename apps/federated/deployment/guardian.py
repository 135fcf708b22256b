"""Run one command and leave nothing of it behind: its children, their children and those that moved to other sessions.

Started by `processes.Service` as `python guardian.py GRACE COMMAND...`; it needs the standard library alone. Whatever
the command's processes leave orphaned becomes a child of the guardian (Linux: "child subreaper"), so that it can find
and end all of them. Standard input is the leash: the letter K ends everything at once (SIGKILL), and its closing, which
also happens when whoever holds the other end dies in any way, asks the command to stop (SIGTERM) and ends the rest
after GRACE seconds.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

KILL = b"K"
_PR_SET_CHILD_SUBREAPER = 36
_POLL = 0.1  # seconds


def main() -> int:
    """Guard the command named in the arguments; return its exit status."""
    grace, command = float(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # only the leash decides
    order = None
    while child.poll() is None and order is None:
        if select.select([0], [], [], _POLL)[0]:
            order = os.read(0, 1)
    if order == b"":
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace)
    _kill_descendants()
    child.wait()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _kill_descendants() -> None:
    """Kill all that descend from this process, and again, until a look around finds none alive."""
    while alive := _descendants():
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _descendants() -> list[int]:
    """Return the living processes below this one; a zombie has ended, but its children count."""
    children: dict[int, list[int]] = {}
    living = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(parent), []).append(int(folder.name))
        if state not in "ZX":
            living.add(int(folder.name))
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return [pid for pid in found if pid in living]


if __name__ == "__main__":
    sys.exit(main())
