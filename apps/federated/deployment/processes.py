"""Real processes that start when asked, say when they are ready, and are gone when their owner is gone.

Each `Service` runs below a guardian (guardian.py) in a session of its own with a log file. The owner holds a pipe; when
it closes, because the owner said so, was interrupted or was killed, the guardian stops the service and all it started.
"""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

from apps.federated.deployment import guardian
from blindsight.errors import InputError, ServiceError
from blindsight.files import storage_errors

_POLL = 0.1  # seconds
_LAST_LINES = 12
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LISTENING_PORTS = range(20_000, 32_768)  # Linux takes the ports of outgoing connections from 32768 on


class Service:
    """One command that can be started, stopped, killed and started again; its output is appended to one log file."""

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str], grace: float = 5.0
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = log
        self._environment = dict(environment)
        self._grace = grace
        self._guardian: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def running(self) -> bool:
        """Whether the command has been started and has not ended."""
        return self._guardian is not None and self._guardian.poll() is None

    @property
    def pid(self) -> int:
        """The process below which everything of this service runs; -1 before the first start."""
        return -1 if self._guardian is None else self._guardian.pid

    def start(self) -> None:
        """Start the command; does not wait until it is ready."""
        if self.running:
            raise InputError(f"{self.name} is running already.")
        with storage_errors("write", self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                self._log_start = log.tell()
                self._guardian = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-I", guardian.__file__, str(self._grace), *self.command],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )

    def output(self) -> str:
        """Return what the command wrote since it was last started."""
        with storage_errors("read", self.log), self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")

    def wait_until(self, ready: Callable[[], bool], *, timeout: float) -> None:
        """Wait until `ready()`; a command that ends before, or takes longer than `timeout` seconds, is an error."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise ServiceError(f"{self.name} stopped before it was ready; it said: {self.last_words()}")
            if time.monotonic() > deadline:
                raise ServiceError(f"{self.name} was not ready within {timeout:g} s; it said: {self.last_words()}")
            time.sleep(_POLL)

    def last_words(self) -> str:
        """Return the last lines of the output, as one line without colours."""
        plain = _COLOUR.sub("", self.output())
        lines = [line.strip() for line in plain.splitlines() if line.strip()]
        return " / ".join(lines[-_LAST_LINES:]) or "nothing"

    def stop(self) -> None:
        """Ask the command to stop, end what is left of it, and return when nothing is."""
        self._end(b"")

    def kill(self) -> None:
        """End the command and all it started at once (SIGKILL), as if the machine had lost its power."""
        self._end(guardian.KILL)

    def _end(self, order: bytes) -> None:
        if self._guardian is None:
            return
        pipe = self._guardian.stdin
        assert pipe is not None  # it was opened as a pipe
        if not pipe.closed:
            with suppress(BrokenPipeError):  # the command had ended, and its guardian with it
                pipe.write(order)
                pipe.close()
        self._guardian.wait()


def check_port(port: int, host: str = "127.0.0.1") -> None:
    """Refuse a port that another program listens on."""
    if not 1 <= port <= 65535:
        raise InputError(f"a port lies between 1 and 65535; got {port}.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServiceError(
                f"port {port} on {host} is in use by another program. Stop that program or choose another port."
            ) from error


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` different ports nobody listens on, none of which the system gives to outgoing connections."""
    ports = []
    for port in SystemRandom().sample(_LISTENING_PORTS, len(_LISTENING_PORTS)):
        with suppress(ServiceError):
            check_port(port, host)
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ServiceError(f"{count} free ports were asked for, but {host} has {len(ports)}.")
