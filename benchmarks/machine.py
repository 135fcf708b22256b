"""What a measurement cost and where it was made: enough to judge a figure, nothing that names a host."""

import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass
class Cost:
    """Time and memory of a piece of work; filled in when it ends, however it ends."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure the block: wall time, CPU time of this process and its finished children, peak memory of this process.

    The peak starts from what the process holds already (the data, the libraries). Where the system cannot forget an
    older peak (other than Linux), the figure is the peak since the process began.
    """
    cost = Cost()
    _forget_peak_memory()
    cpu, wall = _cpu_seconds(), time.perf_counter()
    try:
        yield cost
    finally:
        cost.wall_seconds = time.perf_counter() - wall
        cost.cpu_seconds = _cpu_seconds() - cpu
        cost.peak_memory_bytes = _peak_memory_bytes()


@cache
def machine() -> dict[str, str]:
    """Describe the machine in words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
    }


def package_versions() -> dict[str, str]:
    """Return the versions of all installed packages that have been imported so far."""
    imported = {name for name in sys.modules if not name.startswith("_")} - {__package__}  # others own such names too
    names = {name for module, names in _distributions().items() if module in imported for name in names}
    return {name: _version(name) for name in sorted(names, key=str.lower)}


@cache
def commit(folder: Path) -> str | None:
    """Return the git commit of the code around `folder`, marked if files differ from it; None if there is no telling.

    New results and tables are no change of the code.
    """
    git = ("git", "--no-optional-locks", "-C", str(folder))
    status = ("status", "--porcelain", "--", ":/", ":(exclude)results", ":(exclude)tables")
    try:
        head, changes = (
            subprocess.run((*git, *words), capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "HEAD"), status)
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head} with changes" if changes else head


@cache
def _version(name: str) -> str:
    return importlib.metadata.version(name)


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _forget_peak_memory() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux: start the high-water mark anew
    except OSError:
        return


def _peak_memory_bytes() -> int:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    marks = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
    return marks[0] if marks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
