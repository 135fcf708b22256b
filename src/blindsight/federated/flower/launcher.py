"""Flower's programs with a warm executor: a message to an app is handled by a fork of an interpreter that is ready.

    python -m blindsight.federated.flower.launcher supernode ...    # the options of flower-supernode
    python -m blindsight.federated.flower.launcher superexec ...    # those of flower-superexec
    python -m blindsight.federated.flower.launcher superlink ...    # those of flower-superlink

Flower starts a program for every message to a ClientApp, which costs two CPU seconds before any work, and a SuperNode
asks for messages every three seconds. Here the executor (Flower: SuperExec) has imported Flower, Blindsight and the
packages the app imported before, and `ForkingExecutor` forks it for each message: an app still finds a process of its
own, with nothing of the app in it. The SuperNode wakes its executor when there is work, and lets only this executor
fetch it: it shows a secret that is never on a disk (`--isolation process`). A node that asks this SuperLink for
messages is answered when there is one (`LongPolling`), so it asks every few seconds; of Flower's own SuperLink it asks
every quarter of a second in a run and every second between runs, as a ServerApp asks for replies. All else is Flower's.

Anyone who reaches Flower's control interface may register nodes and submit runs, whose code is executed next to the
aggregator's keys. The SuperLink of this launcher answers there only to programs on its own machine (`LoopbackOnly`).
With `BLINDSIGHT_APP`, the SHA-256 of an app's bundle, in the environment, no other app is installed or run, whatever
the SuperLink sends.

What is replaced in Flower is its `Executor` protocol, the SuperLink's hooks and some module attributes. `_seam` refuses
a version that lacks one: a SuperLink whose control interface would be open does not start.
"""

import argparse
import asyncio
import atexit
import gc
import hashlib
import hmac
import importlib
import os
import select
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from flwr.proto import fleet_pb2, runtime_pb2
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor

from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.federated.commands import APP_VARIABLE, FEDERATION_VARIABLE
from blindsight.federated.identity import software
from blindsight.federated.invite import ADMISSION, LARGEST_REQUEST, admitted
from blindsight.rng import system_bytes

BUSY_SECONDS, IDLE_SECONDS, REPLY_SECONDS = 0.25, 1.0, 0.02
"""How often a SuperNode asks for messages in a run and between runs, and its own app for its reply."""

HELD_SECONDS = 5
"""How long a SuperLink may hold the question of a node for messages."""

_PREFERENCE = f"wait={HELD_SECONDS}"  # RFC 7240
_PULL, _PUSH = "/v1/fleet/pull-messages", "/v1/runtime/push-messages"
_STAYS_BUSY = 20.0  # seconds after a message
_FIRST_RETRY = 0.05  # seconds after which what is still being uploaded is asked for again; Flower: 1
_PROGRAMS = {
    "flwr-clientapp": ("flwr.supernode.cli.flwr_clientapp", "flwr_clientapp"),
    "flwr-serverapp": ("flwr.superlink.cli.flwr_serverapp", "flwr_serverapp"),
}
_WARM = (*(module for module, _ in _PROGRAMS.values()), "numpy", "blindsight.federated.flower.mod",
         "blindsight.federated.flower.strategy", "blindsight.learn.classifier",
         "blindsight.learn.kmeans")  # fmt: skip


def _seam(module: str, name: str) -> ModuleType:
    """Return a module of Flower in which `name` can be replaced; without it there is nothing to go on with."""
    found = importlib.import_module(module)
    if not hasattr(found, name):
        raise InputError(f"this version of Flower has no {module}.{name}. Use flower-supernode and flower-superexec.")
    return found


class _Clock:
    """Stands for the module `time` in a module of Flower; `wait` takes the place of `sleep`."""

    def __init__(self, wait: Callable[[float], object]) -> None:
        self.sleep = wait

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class ForkingExecutor(SubprocessExecutor):  # type: ignore[misc, unused-ignore]
    """Forks this process for every task; what a task had to import, the app apart, is imported here for the next."""

    def __init__(self) -> None:
        self._heard, self._tell = os.pipe()
        os.set_blocking(self._heard, False)

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Run the program of a task in a fork: there, this never returns."""
        program = TASK_TYPE_TO_COMMAND[spec.task_type]
        if program not in _PROGRAMS:
            return LaunchResult.failed(f"the warm executor runs ServerApps and ClientApps; got {program}.")
        _flush()
        gc.freeze()  # pages that both processes have stay shared
        if os.fork():
            return LaunchResult.accepted()
        atexit.register(_leave)  # runs after what the task registers
        module, function = _PROGRAMS[program]
        security = ["--insecure"] if spec.insecure else ["--root-certificates", str(spec.root_certificates_path)]
        sys.argv = [program, "--runtime-api-address", spec.runtime_api_address, "--token", spec.token, *security]
        sys.argv += ["--parent-pid", str(os.getppid())]
        importlib.import_module("flwr.supercore.exit.exit_handler").registered_exit_handlers.clear()
        atexit.register(self._report, set(sys.modules))
        getattr(importlib.import_module(module), function)()
        raise SystemExit(0)

    def reconcile(self) -> None:
        """Look after forks that have ended, and import what they had to import."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        with suppress(BlockingIOError):
            for name in os.read(self._heard, 1 << 16).decode().split():
                with suppress(Exception):
                    importlib.import_module(name)

    def _report(self, before: set[str]) -> None:
        """Tell the process that forked this one what was imported here that is no part of the app."""
        apps = str(Path(os.environ.get("FLWR_HOME", "~/.flwr")).expanduser())
        files = {name: getattr(sys.modules[name], "__file__", None) for name in {*sys.modules} - before}
        found = [name for name, file in files.items() if file and not file.startswith(apps) and name != "__main__"]
        os.write(self._tell, "\n".join(sorted(found)).encode()[: select.PIPE_BUF])


def superexec(arguments: Sequence[str], wake: int | None = None) -> None:
    """Run Flower's SuperExec with the warm executor; a byte on `wake` says that there may be work."""
    if pinned := os.environ.get(APP_VARIABLE, ""):
        pin_app(pinned)
    for name in _WARM:
        importlib.import_module(name)
    module = _seam("flwr.supercore.superexec.run_superexec", "get_executor")
    module.get_executor = lambda *_, **__: ForkingExecutor()  # type: ignore[attr-defined]
    _seam("flwr.superlink.grid.http_grid", "time").time = _Clock(  # type: ignore[attr-defined]
        lambda seconds: time.sleep(min(seconds, BUSY_SECONDS))
    )
    _retry_soon()
    _seam(module.__name__, "time").time = _Clock(  # type: ignore[attr-defined]
        lambda _: time.sleep(IDLE_SECONDS) if wake is None else _awaited(wake)
    )
    _run("flwr.supercore.cli.flower_superexec", "flower_superexec", arguments)


def supernode(arguments: Sequence[str]) -> None:
    """Run Flower's SuperNode, and a warm executor that ends with it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9094)
    address = parser.parse_known_args(list(arguments))[0]
    secret = os.memfd_create("superexec-secret", 0)
    os.write(secret, system_bytes(32))
    proof = ["--superexec-auth-secret-file", f"/proc/self/fd/{secret}"]
    wake, awaken = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:  # before anything here has threads; TLS is not needed within a machine
        place = ["--insecure", "--runtime-api-address", f"{address.host}:{address.port}"]  # loopback: its own node
        superexec([*place, *proof, "--parent-pid", str(parent)], wake)
        raise SystemExit(0)
    polling = _Polling(awaken)
    _seam("flwr.supernode.start_client_internal", "time").time = _Clock(polling.wait)  # type: ignore[attr-defined]
    connection = _seam("flwr.supernode.fleet_http_connection", "FleetHttpClient")
    client = connection.FleetHttpClient

    class PatientClient(client):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, interceptors: Sequence[Any], **named: Any) -> None:
            super().__init__(*arguments, interceptors=[*interceptors, polling], **named)

    connection.FleetHttpClient = PatientClient  # type: ignore[attr-defined]
    _retry_soon()
    _lean()
    chosen = ["--host", address.host, "--port", str(address.port), "--isolation", "process"]
    _run("flwr.supernode.cli.flower_supernode", "flower_supernode", [*arguments, *chosen, *proof])


def _retry_soon() -> None:
    module = _seam("flwr.supercore.inflatable.inflatable_utils", "pull_objects")
    for function in (module.pull_objects, module.pull_and_inflate_object_from_tree):
        function.__kwdefaults__["initial_backoff"] = _FIRST_RETRY


class _Polling:
    """How a SuperNode waits: Flower says 3 seconds between messages, and half a second for a reply of its app.

    As an interceptor of its requests it asks the SuperLink to hold them (RFC 7240: Prefer), and knows whether it did.
    """

    def __init__(self, awaken: int) -> None:
        self._awaken, self._told, self._held, self._last = awaken, False, False, time.monotonic()

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        if context.request.url.path != _PULL:
            return call_next(context)
        context.request.headers["Prefer"] = _PREFERENCE
        response = call_next(context)
        self._held = "Preference-Applied" in response.headers
        return response

    def wait(self, seconds: float) -> None:
        if seconds < 1:
            if not self._told:
                os.write(self._awaken, b"!")
            self._told, self._last = True, time.monotonic()
            time.sleep(REPLY_SECONDS)
        else:
            self._told = False
            busy = time.monotonic() - self._last < _STAYS_BUSY
            time.sleep(0 if self._held else BUSY_SECONDS if busy else IDLE_SECONDS)


class LongPolling:
    """ASGI middleware: a node that asks for messages and prefers to wait is answered when there is one for it.

    One that has left is not answered: Flower would take the message for delivered.
    """

    def __init__(self, app: Any) -> None:
        self._app, self._waiting = app, defaultdict[int, set[asyncio.Event]](set)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path, preference = scope.get("path"), dict(scope.get("headers", ())).get(b"prefer")
        if path == _PUSH:
            await self._pushed(scope, receive, send)
        elif path == _PULL and preference == _PREFERENCE.encode():
            await self._pulled(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _pushed(self, scope: Any, receive: Any, send: Any) -> None:
        body, answer = await _whole(receive), list[Any]()

        async def noted(part: Any) -> None:
            answer.append(part.get("status"))
            await send(part)

        await self._app(scope, _again(body, receive), noted)
        if answer[:1] == [200]:
            for message in runtime_pb2.PushAppMessagesRequest.FromString(body).messages_list:
                for event in self._waiting.get(message.metadata.dst_node_id, ()):
                    event.set()

    async def _pulled(self, scope: Any, receive: Any, send: Any) -> None:
        body, until, answer = await _whole(receive), time.monotonic() + HELD_SECONDS, list[Any]()
        left, news = asyncio.ensure_future(receive()), asyncio.Event()
        node = _node_in(body)
        self._waiting[node].add(news)

        async def noted(part: Any) -> None:
            answer.append(part)

        async def leaving() -> Any:
            return await asyncio.shield(left)

        try:
            while not left.done():
                news.clear()
                answer.clear()
                await self._app({**scope, "state": {**scope.get("state", {})}}, _again(body, leaving), noted)
                empty = answer[0]["status"] == 200 and not any(part.get("body") for part in answer)
                if not empty or (seconds := until - time.monotonic()) <= 0:
                    answer[0]["headers"] = [*answer[0]["headers"], (b"preference-applied", b"wait")]
                    for part in answer:
                        await send(part)
                    return
                waited = asyncio.ensure_future(news.wait())
                await asyncio.wait({left, waited}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                waited.cancel()
        finally:
            left.cancel()
            self._waiting[node].discard(news)
            if not self._waiting[node]:
                del self._waiting[node]


async def _whole(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    return body


def _again(body: bytes, receive: Any) -> Any:
    """Return a `receive` that hands out a body that was read already, then what follows."""
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return parts.pop() if parts else await receive()

    return again


def _node_in(body: bytes) -> int:
    """Return which node asks for messages; 0 if that cannot be read."""
    request = fleet_pb2.PullMessagesRequest()
    with suppress(Exception):  # protobuf's own errors
        request.ParseFromString(body)
    return int(request.node.node_id)


def _lean() -> None:
    from fastapi import FastAPI

    build = FastAPI.build_middleware_stack

    def built(app: FastAPI) -> Any:
        app.user_middleware = in_one_layer(app.user_middleware)
        return build(app)

    FastAPI.build_middleware_stack = built  # type: ignore[method-assign, assignment]


def in_one_layer(layers: Sequence[Any]) -> list[Any]:
    """Merge consecutive function middlewares into one layer: Flower's nine took most of a request's time."""
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware

    made: list[Any] = []
    for simple, group in groupby(layers, lambda layer: issubclass(layer.cls, BaseHTTPMiddleware)):
        found = list(group)
        if simple:
            functions = [layer.cls(None, *layer.args, **layer.kwargs).dispatch_func for layer in found]
            found = [Middleware(BaseHTTPMiddleware, dispatch=_chain(functions))]
        made += found
    return made


def _chain(functions: Sequence[Any]) -> Any:
    if len(functions) == 1:
        return functions[0]
    first, rest = functions[0], _chain(functions[1:])

    async def dispatch(request: Any, call_next: Any) -> Any:
        return await first(request, lambda inner: rest(inner, call_next))

    return dispatch


class LoopbackOnly:
    """ASGI middleware: all of the SuperLink but what nodes and executors need is for programs on its own machine.

    Nodes prove who they are (`--enable-supernode-auth`), executors show their secret. A proxy on this machine must let
    through /v1/fleet/ alone, because what it passes on comes from here.
    """

    OPEN = ("/v1/fleet/", "/v1/runtime/", "/health", ADMISSION)

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        here = scope["type"] == "lifespan" or _is_loopback((scope.get("client") or ("",))[0])
        if not here and not scope.get("path", "").startswith(self.OPEN):
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"for programs on this machine alone"})
            return
        await self._app(scope, receive, send)


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def add_admission_endpoint(app: Any, home: Path) -> None:
    """Let invited parties join at the SuperLink (`federated.invite`)."""
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import Response

    async def door(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_REQUEST:
                break
        status, answer = await run_in_threadpool(admitted, home, body)
        return Response(answer, status, media_type="application/json" if status == 200 else "text/plain")

    app.add_route(ADMISSION, door, methods=["POST"])


def superlink(arguments: Sequence[str]) -> None:
    """Run Flower's SuperLink, whose control interface answers to programs on this machine alone."""
    from starlette.middleware import Middleware

    hooks = _seam("flwr.superlink.extensions", "get_middleware")
    others = hooks.get_middleware
    hooks.get_middleware = lambda: (Middleware(LoopbackOnly), Middleware(LongPolling), *others())  # type: ignore[attr-defined]
    _lean()
    if folder := os.environ.get(FEDERATION_VARIABLE, ""):
        configure = _seam(hooks.__name__, "configure_app").configure_app

        def configure_app(app: Any) -> None:
            configure(app)
            add_admission_endpoint(app, Path(folder))

        hooks.configure_app = configure_app  # type: ignore[attr-defined]
    _run("flwr.superlink.cli.flower_superlink", "flower_superlink", arguments)


def pin_app(digest: str) -> None:
    """Let apps with this SHA-256 be installed, and no others."""
    for name in ("flwr.supernode.runtime.run_clientapp", "flwr.superlink.runtime.run_serverapp"):
        module = _seam(name, "install_from_fab")
        install = module.install_from_fab

        def checked(fab: bytes, *others: Any, install: Callable[..., Path] = install, **named: Any) -> Path:
            found = hashlib.sha256(fab).hexdigest()
            if not hmac.compare_digest(found, digest):
                raise PrivacyError(
                    f"the SuperLink sent the app {found}; this node, with blindsight {software()}, runs {digest}. "
                    "If both are Blindsight's own, install the same version of blindsight-vision at all parties."
                )
            return install(fab, *others, **named)

        module.install_from_fab = checked  # type: ignore[attr-defined]


def _awaited(wake: int) -> None:
    """Wait until there may be work, a second at most."""
    if select.select([wake], [], [], IDLE_SECONDS)[0]:
        os.read(wake, 1 << 12)


def _run(module: str, function: str, arguments: Sequence[str]) -> None:
    sys.argv = [function.replace("_", "-"), *arguments]
    getattr(importlib.import_module(module), function)()


def _leave() -> None:
    """End a fork without taking apart what it shares with the process that forked it, which would copy all of it."""
    _flush()
    os._exit(0)


def _flush() -> None:
    """Write what is buffered, so that a fork does not write it again."""
    sys.stdout.flush()
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> None:
    programs: dict[str, Callable[[Sequence[str]], None]] = {
        "supernode": supernode,
        "superexec": superexec,
        "superlink": superlink,
    }
    if not arguments or arguments[0] not in programs:
        raise SystemExit(str(UnknownNameError("program", " ".join(arguments[:1]), programs)))
    programs[arguments[0]](arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
