"""Load on a service of its own process: requests that leave by the clock, whether earlier ones were answered or not.

A request counts from the moment it was due, so that a service that stands still for a second is charged for everybody
who would have come in that second. Connections are kept and reused, as an app's would be. Without a rate, as many as
there are connections are under way all the time: the most the service can do.
"""

import asyncio
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.release_service import FRAMES
from blindsight.errors import ServiceError

WARM_UP = 100  # releases that are not counted
_CLOCK_TICKS = 100  # a second, of the times under /proc


@dataclass(frozen=True)
class Load:
    """Which features and sift, and how many releases are asked for at most."""

    dimension: int
    width: int
    releases: int


Answer = dict[str, NDArray[Any]]


def run(given: Load, *, seed: int, rate: int, seconds: float, connections: int) -> Answer:
    """Return when each request was due and answered, its status, the numbers, and the service's CPU seconds."""
    with running_service(given) as (process, told):
        asks = itertools.chain.from_iterable(itertools.repeat(told["asks"], FRAMES))
        requests = (_request(told, ask) for ask in asks)
        return asyncio.run(_load(told["url"], requests, process.pid, rate, seconds, connections))


@contextmanager
def running_service(given: Load) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run a service for the time of the block; it must end as a service ends."""
    people = -(-(given.releases + WARM_UP) // FRAMES)
    program = [sys.executable, "-m", "benchmarks.methods.release_service"]
    with tempfile.TemporaryDirectory(prefix="serve-load-") as folder:
        words = [str(Path(folder) / "service"), *map(str, (given.dimension, given.width, people))]
        root = Path(__file__).resolve().parents[2]
        with subprocess.Popen([*program, *words], cwd=root, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            try:
                if not line:
                    raise ServiceError("the service did not start; its words are above.")
                yield process, json.loads(line)
            finally:
                process.send_signal(signal.SIGTERM)
        if process.returncode:
            raise ServiceError(f"the service ended with exit code {process.returncode}.")


async def _load(url: str, requests: Iterator[bytes], pid: int, rate: int, seconds: float, connections: int) -> Answer:
    address = urlsplit(url)
    free: asyncio.Queue[Any] = asyncio.Queue()
    for _ in range(connections):
        free.put_nowait(await asyncio.open_connection(address.hostname, address.port))
    for request in itertools.islice(requests, WARM_UP):
        await _one(free, request, 0.0)
    cpu, start, under_way = _cpu_seconds(pid), time.perf_counter(), []
    for number in itertools.count():
        elapsed = number / rate if rate else time.perf_counter() - start
        if elapsed >= seconds or (request := next(requests, b"")) == b"":
            break
        due = start + elapsed
        await asyncio.sleep(due - time.perf_counter())
        if not rate:  # go on as soon as somebody is free
            free.put_nowait(await free.get())
        under_way.append(asyncio.create_task(_one(free, request, due)))
        await asyncio.sleep(0)
    answers = await asyncio.gather(*under_way)
    used = _cpu_seconds(pid) - cpu
    while not free.empty():
        free.get_nowait()[1].close()
    return {
        "due": np.array([answer[0] for answer in answers]) - start,
        "answered": np.array([answer[1] for answer in answers]) - start,
        "status": np.array([answer[2] for answer in answers]),
        "rows": np.array([answer[3] for answer in answers]),
        "cpu": np.array([used]),
    }


async def _one(free: "asyncio.Queue[Any]", request: bytes, due: float) -> tuple[float, float, int, list[float]]:
    """Ask once on the next free connection; return when it was due and answered, the status and the numbers."""
    reader, writer = connection = await free.get()
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    body = await reader.readexactly(int(length.split(b":")[1]))
    answered, status = time.perf_counter(), int(head.split(b" ", 2)[1])
    free.put_nowait(connection)
    return due, answered, status, json.loads(body)["rows"][0] if status == 200 else []


def _request(told: dict[str, Any], ask: dict[str, Any]) -> bytes:
    body = json.dumps(ask).encode()
    head = (
        f"POST /v1/releases HTTP/1.1\r\nHost: {urlsplit(told['url']).netloc}\r\n"
        f"Authorization: Bearer {told['token']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far; 0 where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS
