"""The HTTP app and the process that serves it: limits, then the guard, then one call of the gateway; and the page.

`create_app` checks before it returns that every route under /v1 is guarded (`access`); else the service does not start.
The document at /v1/openapi.json describes every answer. No page loads a viewer from elsewhere.

*A running service* takes its address before any work is done and announces it once it answers. SIGTERM or Ctrl-C ends
it in order: no more requests are taken, those in flight get a few seconds, the running job stops at its next step and
continues after the next start, and the exit code is 0. A second Ctrl-C does not wait.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, cast

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from threadpoolctl import threadpool_limits

from blindsight import __version__
from blindsight.errors import BlindsightError, InputError, ServiceError
from blindsight.service import errors, routes
from blindsight.service.access import ACCESS, BODY, PREFIX, check_routes, described
from blindsight.service.gateway import Gateway
from blindsight.service.limits import Connections, RateLimit, Turns, add_limits
from blindsight.service.log import MACHINE
from blindsight.service.models import Health, WithToken
from blindsight.service.principals import Token, told_of
from blindsight.service.settings import ServiceSettings

_ABOUT = (
    "A trusted service that holds pictures, verifies what apps propose, and lets only sifted data out. "
    "Every call but /v1/health, /v1/ready and /v1/enrolment needs a token: `Authorization: Bearer TOKEN`. "
    'Every refusal is one sentence: `{"error": "..."}`.'
)


ENROLMENTS_PER_MINUTE = 10  # attempts from one address to redeem a code


def create_app(
    settings: ServiceSettings,
    gateway: Gateway,
    page: bool = False,
    limits: tuple[RateLimit, RateLimit] | None = None,
) -> FastAPI:
    """Return the service's app over a gateway, which the caller starts and closes, with or without the page. `limits`
    (by address, by principal) are those of all processes of the service.
    """
    app = FastAPI(
        title="Blindsight",
        version=__version__,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.gateway, app.state.library = gateway, routes.Library(settings.folder)
    by_address, by_principal = limits or (None, RateLimit(settings.requests_per_minute))
    app.state.limit, app.state.turns, app.state.tokens = by_principal, Turns(), {}
    app.state.enrolling = RateLimit(ENROLMENTS_PER_MINUTE, burst=ENROLMENTS_PER_MINUTE)
    errors.install(app)
    add_limits(app, settings, by_address)
    app.add_api_route(f"{PREFIX}/health", _health, methods=["GET"], tags=["health"], responses=described(429))
    app.add_api_route(f"{PREFIX}/ready", _ready, methods=["GET"], tags=["health"], responses=described(429, 503))
    app.add_api_route(
        f"{PREFIX}/enrolment",
        routes.enrol,
        methods=["POST"],
        response_model=WithToken,
        status_code=201,
        tags=["enrolment"],
        responses=described(403, 422, 429, 503, *BODY),
    )
    app.router.routes.extend(routes.router.routes)  # releases first: asked most often
    if page:
        _add_page(app, settings, gateway)
    check_routes(app.routes)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


def _ready(request: Request) -> Health:
    """Tell that the service can do its work, or refuse: database, disk or worker are away, or the log was cut."""
    request.app.state.gateway.check_ready()
    return Health(status="ok", version=__version__)


async def _health() -> Health:
    """Tell that the service answers; whether it can do its work is what /v1/ready tells."""
    return Health(status="ok", version=__version__)


def _add_page(app: FastAPI, settings: ServiceSettings, gateway: Gateway) -> None:
    from blindsight.service import pages  # brings what the API alone does not need

    app.state.pages = pages.Pages(gateway, app.state.library, gateway.principals, settings)
    app.include_router(pages.router)


def _described(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        routes = [route for route in app.routes if isinstance(route, APIRoute) and route.path.startswith(PREFIX)]
        document = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=routes)
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for (method, path), roles in ACCESS.items():
            operation = document["paths"][path][method.lower()]
            operation |= {"security": [{"token": []}], "x-roles": sorted(roles)}
        app.openapi_schema = document
    return app.openapi_schema


logger = logging.getLogger(__name__)

Announce = Callable[[str, Token | None], None]  # told the address and, on the first run, the operator's token

_PATIENCE = 5  # seconds for requests in flight; whoever watches a live run would stay for ever
_THREADS = 8  # requests at work at once; more would only wait for each other, as one at a time writes to the log
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_service(
    settings: ServiceSettings, open_gateway: Callable[[], Gateway], announce: Announce, *, page: bool = True
) -> None:
    """Serve until stopped; return once everything is closed. Several processes share port, folder, database and rate
    limits. Each is the whole service but for the page; the first also does the jobs. One that ends is replaced.
    """
    check_certificate(settings)
    _allow_files()
    by_address, by_principal = (
        RateLimit(settings.requests_per_minute, shared=settings.processes > 1) for _ in range(2)
    )
    limits = by_address, by_principal
    with suppress(_StoppedError), _on_signals(_raise_stopped), ExitStack() as stack:
        listener = stack.enter_context(listening_socket(settings.host, settings.port, shared=settings.processes > 1))
        address = service_url(settings, listener)
        if settings.processes == 1:
            _serve(settings, open_gateway, limits, listener, lambda token: announce(address, token), page=page)
        else:
            _supervise(settings, open_gateway, limits, listener, lambda token: announce(address, token))


def _serve(
    settings: ServiceSettings,
    open_gateway: Callable[[], Gateway],
    limits: tuple[RateLimit, RateLimit],
    listener: socket.socket,
    announce: Callable[[Token | None], None],
    *,
    page: bool,
    works: bool = True,
) -> None:
    with ExitStack() as stack:
        gateway = open_gateway()
        stack.callback(gateway.close)
        stack.enter_context(threadpool_limits(1))  # requests are many; threads of each would wait for each other
        app = create_app(settings, gateway, page, limits)
        gateway.start(works=works)
        server = Server(app, settings, lambda: announce(first_token(gateway)))
        gc.collect()
        gc.freeze()  # what is here stays; to look through it again would stop all requests for a tenth of a second
        stack.callback(gc.unfreeze)
        with _on_signals(server.stop):  # also when it passes on at its end what stopped it
            server.run(sockets=[listener])


_PAUSE = 1.0  # seconds before a process that ended is replaced
_SLOW_END = 3 * _PATIENCE  # seconds after which processes are killed that were told to end


def _supervise(
    settings: ServiceSettings,
    open_gateway: Callable[[], Gateway],
    limits: tuple[RateLimit, RateLimit],
    listener: socket.socket,
    announce: Callable[[Token | None], None],
) -> None:
    """Keep processes going until somebody stops this one; they are forked before anything is opened."""
    running: dict[int, int] = {}  # number of a process by its id
    announced = False

    def begin(number: int) -> None:
        nonlocal announced
        tell = announce if number == 0 and not announced else (lambda token: None)
        announced |= number == 0
        pid = os.fork()
        if pid:
            running[pid] = number
            return
        status = 1
        try:
            os.setpgid(0, 0)  # Ctrl-C is the parent's to pass on
            with suppress(_StoppedError):
                mine = listener if number == 0 else sharing_socket(listener)
                _serve(settings, open_gateway, limits, mine, tell, page=False, works=number == 0)
                status = 0
        except BlindsightError as error:
            sys.stderr.write(f"{error}\n")
        finally:
            sys.stdout.flush()
            os._exit(status)

    try:
        for number in range(settings.processes):
            begin(number)
        while True:
            pid, status = os.waitpid(-1, 0)
            number = running.pop(pid)
            if status and os.waitstatus_to_exitcode(status) == 1:
                raise ServiceError(f"process {number} of the service could not go on; its words are above.")
            logger.warning("process %d of the service ended (%d) and is replaced", number, status)
            time.sleep(_PAUSE)
            begin(number)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + _SLOW_END
        while running:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            running.pop(pid, None)
            if not pid and time.monotonic() > end:
                for late in running:
                    os.kill(late, signal.SIGKILL)
            if not pid:
                time.sleep(0.02)


def first_token(gateway: Gateway) -> Token | None:
    """Return the token of the first operator, made by this call; None if there is an operator already."""
    with gateway.principals.database.session():
        token = gateway.principals.first_run()
        if token is not None:
            made = gateway.principals.list()[0]
            gateway.audit.append(MACHINE, "create principal", told_of(made))
    return token


def sharing_socket(listener: socket.socket) -> socket.socket:
    """Return one more socket at the address of one that allows it; connections are spread over both."""
    one = socket.socket(listener.family, listener.type, listener.proto)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(listener.getsockname())
    return one


def listening_socket(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket at the address; connections are refused until the service answers."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"the host {host!r} is no address of this machine: {error.strerror or error}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ServiceError(
            f"the service cannot listen on {host} port {port}: {error.strerror or error}. Stop what is there, or "
            "choose another --port; 0 takes a free one."
        ) from None
    return listener


def service_url(settings: ServiceSettings, listener: socket.socket) -> str:
    host = settings.host.strip("[]")
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.encrypted else 'http'}://{shown}:{listener.getsockname()[1]}"


def check_certificate(settings: ServiceSettings) -> None:
    """Refuse a certificate and key that cannot be used, before anything is opened."""
    if settings.certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.certificate, settings.key, password="")
    except (OSError, ValueError):
        raise InputError(
            f"the certificate {settings.certificate} and the key {settings.key} cannot be used: they must be PEM files "
            "that belong together, and the key without a password."
        ) from None


class Server(uvicorn.Server):
    """Tells when it answers; what it would log is left to the audit log and to the answers themselves."""

    def __init__(self, app: Any, settings: ServiceSettings, started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
                access_log=False,
                log_config=None,  # else it closes the handlers of other libraries
                log_level="warning",
                server_header=False,
                lifespan="off",
                http=cast(Any, Connections(settings).protocol),
                ws="none",
                proxy_headers=settings.proxy is not None,
                forwarded_allow_ips=settings.proxy or "",
                timeout_graceful_shutdown=_PATIENCE,
            )
        )
        self._tell, self._handshake = started, settings.head_seconds

    def stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer on sockets, then tell so; a handshake takes no longer than the head of a request."""
        current_default_thread_limiter().total_tokens = _THREADS
        config, loop, state = self.config, asyncio.get_running_loop(), self.lifespan.state
        protocol: Any = config.http_protocol_class
        self.servers = [
            await loop.create_server(
                lambda: protocol(config=config, server_state=self.server_state, app_state=state),
                sock=one,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=self._handshake if config.ssl else None,
            )
            for one in sockets or ()
        ]
        self.started = True
        self._tell()


def _allow_files() -> None:
    """Let this process have as many files open, and so connections, as the system allows it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _StoppedError(BaseException):
    """Somebody stopped the service before it answered, or did not want to wait for its end."""


def _raise_stopped() -> None:
    raise _StoppedError


@contextmanager
def _on_signals(act: Callable[[], None]) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: act()) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
