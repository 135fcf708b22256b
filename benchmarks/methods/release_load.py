"""Load on a service of its own processes by wrk, a compiled generator with a small script, over loopback without TLS.

`connections` requests are under way all the time: each is sent when the one before it on its connection was answered.
What the service, its database and the generator take is CPU time (user and system) of their processes.
"""

import json
import os
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from benchmarks.methods.own_postgres import OwnPostgres, own_postgres
from benchmarks.methods.processes import Processes
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
_USED = 0.8  # of the bodies that are left, by the rate of the warm-up: they must not run out
_STEP = 100_000  # releases between two looks at the memory


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
    streams: int = 200
    soak: int = 1_000_000


Figures = dict[str, float]
LOADS = ("single", "batch", "idle", "streams", "two")


def run(given: Load, *, seed: int, database: str) -> dict[str, Figures]:
    """Return figures by load: single releases, batches, single ones beside idle connections, beside streams of events,
    and by two processes. Each load has a service of its own with all budgets unspent.
    """
    with _filled(given, database, people=-(-given.releases // FRAMES), streams=given.streams) as filled:
        return {load: filled.measured(load) for load in LOADS}


def run_soak(given: Load, *, seed: int, database: str = "sqlite") -> dict[str, Figures]:
    """Return what the service holds in memory after so many releases, in batches of a hundred and then one a request:
    the last is repeated where all frames are released, and is logged and signed like any other.
    """
    with _filled(given, database, people=0, repeating=100) as filled, filled.service(1) as wrk:
        bodies, sent = [json.dumps(ask) for ask in filled.asked["asks"]], 0
        found = {"at 0": wrk.memory()}
        for path, each, most in (("/batch", len(bodies), given.soak), ("", 1, given.soak + given.soak // 5)):
            together = [f'{{"releases": [{", ".join(bodies)}]}}'] if each > 1 else bodies
            while sent < most:
                told = replace(wrk, connections=wrk.connections // 8 if each > 1 else wrk.connections).ask(
                    f"/v1/releases{path}", together, given.seconds
                )
                before, sent = sent, sent + int(told["requests"]) * each
                found["failed"] = found.get("failed", 0) + told["failed"]
                if sent // _STEP > before // _STEP or sent >= most:
                    found[f"at {sent}"] = wrk.memory()
        return {"soak": {**found, "releases": float(sent)}}


def run_bare(given: Load, *, seed: int) -> dict[str, Figures]:
    """Return figures of the least that FastAPI and SQLite can do."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="serve-load-"))
        process, address = stack.enter_context(_running(_program("bare", {"folder": folder})))
        wrk = _Wrk(Path(folder), address, "none", [process.pid], given.connections, given.seconds)
        found = wrk.load("/", [json.dumps({"person": "person 1"})] * 4 * given.releases)
        del found["warm"]
        return {"bare": found}


@dataclass(frozen=True)
class _Filled:
    """A service's folder and database with grants of which nothing was released yet; it is copied for each load."""

    given: Load
    folder: Path
    server: OwnPostgres | None
    told: dict[str, Any]

    @property
    def asked(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "asks.json").read_text())
        return found

    @contextmanager
    def service(self, processes: int) -> "Iterator[_Wrk]":
        """Run a service on a copy."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="serve-load-")))
            shutil.copytree(self.folder, folder, dirs_exist_ok=True)
            told, watched = {**self.told, "folder": str(folder), "processes": processes}, []
            if self.server is not None:
                import psycopg

                name = folder.name.replace("-", "_").lower()
                with psycopg.connect(self.server.dsn, autocommit=True) as connection:
                    connection.execute(f'CREATE DATABASE "{name}" TEMPLATE postgres')
                told["database"], watched = _url(self.server, name), [self.server.pid]
            process, address = stack.enter_context(_running(_program("serve", told)))
            token, given = self.asked["token"], self.given
            yield _Wrk(folder, address, token, [process.pid, *watched], given.connections, given.seconds, told)

    def measured(self, load: str) -> Figures:
        given, asked = self.given, self.asked
        bodies, each, path = [json.dumps(ask) for ask in asked["asks"]] * FRAMES, 1, "/v1/releases"
        with self.service(2 if load == "two" else 1) as wrk, ExitStack() as beside:
            if load == "batch":
                each, path, wrk = given.batch, f"{path}/batch", replace(wrk, connections=max(2, wrk.connections // 8))
                parts = (bodies[at : at + each] for at in range(0, len(bodies), each))
                bodies = [f'{{"releases": [{", ".join(part)}]}}' for part in parts]
            elif load == "idle":
                beside.enter_context(_idle(wrk.address, given.idle))
            elif load == "streams":
                beside.enter_context(_streaming(wrk.address, asked["streams"]))
            found = wrk.load(path, bodies, each)
            logged, left_off = found["releases"] + found.pop("warm"), 3 * given.connections * (given.batch + 3)
            counted = int(subprocess.check_output(_program("count", wrk.told), cwd=_ROOT, text=True))
        if not logged <= counted <= logged + left_off:  # some were under way when wrk stopped
            raise ServiceError(f"{load}: wrk counts {logged:.0f} releases, the log {counted}.")
        return found


@contextmanager
def _filled(given: Load, database: str, **people: int) -> Iterator[_Filled]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="serve-load-")))
        server = stack.enter_context(own_postgres(fsync="on")) if database == "postgresql" else None
        told = {"folder": str(folder), "database": None if server is None else _url(server, "postgres"), "processes": 1}
        told |= {"dimension": given.dimension, "width": given.width, **people}
        subprocess.run(_program("fill", told), cwd=_ROOT, check=True)
        yield _Filled(given, folder, server, told)


def _url(server: OwnPostgres, name: str) -> str:
    return f"postgresql://postgres@/{name}?host={server.folder}"


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
    with ExitStack() as stack:
        for _ in range(count):
            _asked(stack, address, "/v1/health")
        yield


@contextmanager
def _streaming(address: str, wanted: Sequence[Sequence[str]]) -> Iterator[None]:
    """Hold a stream of events open for each token and person, one event a second; all must get what they should."""
    with ExitStack() as stack, selectors.DefaultSelector() as waiting:
        for token, person in wanted:
            path = f"/v1/streams/{quote(person)}?every=1"
            waiting.register(_asked(stack, address, path, f"Authorization: Bearer {token}\r\n"), selectors.EVENT_READ)
        begun, events, over = time.monotonic(), 0, threading.Event()

        def read() -> None:
            nonlocal events
            while not over.is_set():
                for key, _ in waiting.select(0.1):
                    events += key.fileobj.recv(1 << 20).count(b"event: release")  # type: ignore[union-attr]

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield
        finally:
            over.set()
            reader.join()
        passed = time.monotonic() - begun
        if events < 0.8 * len(wanted) * (passed - 2):
            raise ServiceError(f"{len(wanted)} streams got {events} events in {passed:.0f} s.")


def _asked(stack: ExitStack, address: str, path: str, more: str = "") -> socket.socket:
    """Return a connection on which something was asked, and its answer has begun."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4000)), hard))
    place = urlsplit(address)
    one = stack.enter_context(socket.create_connection((str(place.hostname), int(place.port or 80))))
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n{more}\r\n".encode())
    if not one.recv(4096).startswith(b"HTTP/1.1 200"):
        raise ServiceError("a connection was refused.")
    return one


@dataclass(frozen=True)
class _Wrk:
    folder: Path
    address: str
    token: str
    watched: Sequence[int]
    connections: int
    seconds: int
    told: dict[str, Any] = field(default_factory=dict)

    def load(self, path: str, bodies: Sequence[str], each: int = 1) -> Figures:
        """Send bodies, of `each` releases, as long as they last; figures are by release. A second before is not
        counted, in which everything is met for the first time.
        """
        warm = self.ask(path, bodies, 1)
        sent = int(warm["requests"]) + self.connections  # these were under way
        left = (len(bodies) - sent) * _USED / max(1, warm["requests"])
        begun, before = Processes.now(), os.times()
        told = self.ask(path, bodies[sent:], max(1, min(self.seconds, int(left))))
        ended, after = Processes.now(), os.times()
        used = sum(ended.cpu(pid) - begun.cpu(pid) for pid in self.watched)
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
            "warm": each * warm["requests"],
            "failed": told["failed"] + warm["failed"],
            "memory": self.memory(),
        }

    def memory(self) -> float:
        """Return what the service has in memory now, in MB."""
        return Processes.now().memory(self.watched[0]) / 1e6

    def ask(self, path: str, bodies: Sequence[str], seconds: int) -> dict[str, float]:
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
