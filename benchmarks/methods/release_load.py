"""Load on a service of its own processes by wrk, a compiled generator with a small script, over loopback without TLS.

`connections` requests are under way all the time: each is sent when the one before it on its connection was answered.
What the service, its database and the generator take is CPU time (user and system) of their processes.
"""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.methods.own_postgres import own_postgres
from benchmarks.methods.release_service import FRAMES
from blindsight.errors import MissingExtraError, ServiceError

_SCRIPT = """
local bodies, at, path, headers = {}, 0, "%s", {["Authorization"] = "Bearer %s", ["Content-Type"] = "application/json"}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
request = function()
  at = at + 1
  return wrk.format("POST", path, headers, bodies[math.min(at, #bodies)])
end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"seconds": %%f, "requests": %%d, "failed": %%d, "p50": %%f, "p99": %%f, "most": %%f}\\n',
    summary.duration / 1e6, summary.requests, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
"""
_USED = 0.5  # of the bodies that are left, by the rate of the warm-up: they must not run out


@dataclass(frozen=True)
class Load:
    """Which features and sift, how many releases at most in one measurement, and for how many seconds."""

    dimension: int
    width: int
    releases: int
    seconds: int
    connections: int = 32
    batch: int = 20
    idle: int = 1000


Figures = dict[str, float]


def run(given: Load, *, seed: int, database: str) -> dict[str, Figures]:
    """Return figures by load: single releases, batches, single ones beside idle connections, and by two processes."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="serve-load-")))
        server = stack.enter_context(own_postgres(fsync="on")) if database == "postgresql" else None
        url = None if server is None else f"postgresql://postgres@/postgres?host={server.folder}"
        told = {"folder": str(folder), "database": url, "dimension": given.dimension, "width": given.width}
        told |= {"people": -(-4 * given.releases // FRAMES), "processes": 1}
        subprocess.run(_program("fill", told), cwd=_ROOT, check=True)
        asked = json.loads((folder / "asks.json").read_text())
        bodies, size = [json.dumps(ask) for ask in asked["asks"]] * FRAMES, given.releases
        single, several, beside, two = (bodies[at : at + size] for at in range(0, 4 * size, size))
        batches = [several[at : at + given.batch] for at in range(0, size - given.batch + 1, given.batch)]
        found: dict[str, Figures] = {}
        for processes in (1, 2):
            with _running(_program("serve", told | {"processes": processes})) as (process, address):
                watched = [process.pid] if server is None else [process.pid, server.pid]
                wrk = _Wrk(folder, address, asked["token"], watched, given.connections, given.seconds)
                if processes == 2:
                    found["two"] = wrk.load("/v1/releases", two)
                    break
                found["single"] = wrk.load("/v1/releases", single)
                together = [f'{{"releases": [{", ".join(batch)}]}}' for batch in batches]
                few = replace(wrk, connections=max(2, given.connections // 8))  # 80 releases under way
                found["batch"] = few.load("/v1/releases/batch", together, each=given.batch)
                with _idle(address, given.idle):
                    found["idle"] = wrk.load("/v1/releases", beside)
        logged = sum(figures["releases"] + figures.pop("warm") for figures in found.values())
        check = [*_program("count", told)]
        counted = int(subprocess.run(check, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)
        left_off = 3 * given.connections * (given.batch + 3)  # under way when wrk stopped
        if not logged <= counted <= logged + left_off:
            raise ServiceError(f"wrk counts {logged:.0f} releases, the log {counted}.")
    return found


def run_bare(given: Load, *, seed: int) -> dict[str, Figures]:
    """Return figures of the least that FastAPI and SQLite can do."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="serve-load-"))
        process, address = stack.enter_context(_running(_program("bare", {"folder": folder})))
        wrk = _Wrk(Path(folder), address, "none", [process.pid], given.connections, given.seconds)
        found = wrk.load("/", [json.dumps({"person": "person 1"})] * 4 * given.releases)
        del found["warm"]
        return {"bare": found}


_ROOT = Path(__file__).resolve().parents[2]


def _program(what: str, told: dict[str, Any]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.methods.release_service", what, json.dumps(told)]


@contextmanager
def _running(program: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a service for the time of the block; it must end as a service ends."""
    with subprocess.Popen(program, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            if not address:
                raise ServiceError("the service did not start; its words are above.")
            yield process, address
        finally:
            process.send_signal(signal.SIGTERM)
    if process.returncode not in (0, -signal.SIGTERM):
        raise ServiceError(f"the service ended with exit code {process.returncode}.")


@contextmanager
def _idle(address: str, count: int) -> Iterator[None]:
    """Hold so many connections open that asked once and are silent now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 500)), hard))
    place = urlsplit(address)
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.create_connection((str(place.hostname), int(place.port or 80))))
            one.sendall(f"GET /v1/health HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
            if not one.recv(4096).startswith(b"HTTP/1.1 200"):
                raise ServiceError("an idle connection was refused.")
        yield


@dataclass(frozen=True)
class _Wrk:
    folder: Path
    address: str
    token: str
    watched: Sequence[int]
    connections: int
    seconds: int

    def load(self, path: str, bodies: Sequence[str], each: int = 1) -> Figures:
        """Send bodies, of `each` releases, as long as they last; figures are by release.

        Two seconds are not counted: in the first everything is met for the first time; the faster tells the rate.
        """
        warmed, sent = [], 0
        for _ in range(2):
            warmed.append(self._ask(path, bodies[sent:], 1))
            sent += int(warmed[-1]["requests"]) + self.connections  # these were under way
        left = (len(bodies) - sent) * _USED / max(1, *(one["requests"] for one in warmed))
        cpu, before = _cpu_seconds(self.watched), os.times()
        told = self._ask(path, bodies[sent:], max(1, min(self.seconds, int(left))))
        used, after = _cpu_seconds(self.watched) - cpu, os.times()
        if told["requests"] + self.connections > len(bodies) - sent:
            raise ServiceError(f"{len(bodies)} requests at {path} are too few for {told['seconds']:.0f} s. Pose more.")
        generator = after.children_user + after.children_system - before.children_user - before.children_system
        releases = each * told["requests"]
        if not releases:
            raise ServiceError(f"nothing was answered at {path} within {self.seconds} s.")
        return {
            "rate": releases / told["seconds"],
            "p50": told["p50"],
            "p99": told["p99"],
            "most": told["most"],
            "cpu": 1000 * used / releases,
            "generator": 1000 * generator / releases,
            "releases": float(releases),
            "warm": each * sum(one["requests"] for one in warmed),
            "failed": told["failed"] + sum(one["failed"] for one in warmed),
            "memory": sum(_pages(pid) for pid in _family(self.watched[0])) * os.sysconf("SC_PAGE_SIZE") / 1e6,
        }

    def _ask(self, path: str, bodies: Sequence[str], seconds: int) -> dict[str, float]:
        program = shutil.which("wrk")
        if program is None:
            raise MissingExtraError("this load is made by wrk, which is not installed: apt-get install wrk")
        lines, script = self.folder / "bodies", self.folder / "load.lua"
        lines.write_text("\n".join(bodies))
        script.write_text(_SCRIPT % (path, self.token, lines))
        words = ["-t1", f"-c{self.connections}", f"-d{seconds}s", "--timeout", "30s", "-s", str(script)]
        done = subprocess.run([program, *words, self.address], stdout=subprocess.PIPE, text=True, check=True)
        told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return told


def _family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()


def _pages(pid: int) -> int:
    return int(_stat(pid)[21])


def _cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU time so far of processes, all that descend from them, and their children that ended."""
    ticks = sum(sum(map(int, _stat(one)[11:15])) for pid in pids for one in _family(pid))
    return ticks / os.sysconf("SC_CLK_TCK")
