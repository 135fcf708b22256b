"""A service that runs: its address taken before any work is done, announced once it answers, stopped without a loss.

*The guarantee.* SIGTERM or Ctrl-C ends it in order: no request is taken any more, those in flight get a few seconds,
the job at work stops at its next step and goes on after the next start, and the process ends with exit code 0. A second
Ctrl-C does not wait. What a kill cuts off instead is what `gateway` says about kills.
"""

import asyncio
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, cast

import uvicorn
from anyio.to_thread import current_default_thread_limiter

from blindsight.errors import InputError, ServiceError
from blindsight.service.api import create_app
from blindsight.service.demo import Showcase
from blindsight.service.gateway import Gateway
from blindsight.service.limits import Connections
from blindsight.service.log import MACHINE
from blindsight.service.principals import Token
from blindsight.service.settings import ServiceSettings

Announce = Callable[[str, Token | None], None]
"""Told where the service is and, on the very first run, the operator's token."""

_PATIENCE = 5  # seconds for requests in flight; whoever watches a live run would stay for ever
_THREADS = 8  # requests at work at once; more would only wait for each other, as one at a time writes to the log
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_service(
    settings: ServiceSettings, open_gateway: Callable[[], Gateway], announce: Announce, *, page: bool = True
) -> None:
    """Serve until somebody stops it; return once everything is closed."""
    check_certificate(settings)
    _allow_files()
    with suppress(_StoppedError), _on_signals(_raise_stopped), ExitStack() as stack:
        listener = stack.enter_context(listening_socket(settings.host, settings.port))
        gateway = open_gateway()
        stack.callback(gateway.close)
        showcase = Showcase(settings.folder / "showcase") if page else None
        if showcase is not None:
            stack.callback(showcase.close)
        app = create_app(settings, gateway, showcase)
        gateway.start()
        if showcase is not None:
            showcase.start()
        address = service_url(settings, listener)
        server = Server(app, settings, lambda: announce(address, first_token(gateway)))
        with _on_signals(server.stop):  # also when it passes on at its end what stopped it
            server.run(sockets=[listener])


def first_token(gateway: Gateway) -> Token | None:
    """Return the token of the first operator, made by this very call; None if there is an operator already."""
    token = gateway.principals.first_run()
    if token is not None:
        made = gateway.principals.list()[0]
        gateway.audit.append(MACHINE, "create principal", {"principal": made.id, "name": made.name, "role": made.role})
    return token


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket at the address; whoever connects is refused until the service answers."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"the host {host!r} is no address of this machine: {error.strerror or error}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ServiceError(
            f"the service cannot listen on {host} port {port}: {error.strerror or error}. Stop what is there, or "
            "choose another --port; 0 takes a free one."
        ) from None
    return listener


def service_url(settings: ServiceSettings, listener: socket.socket) -> str:
    """Return the address at which a browser finds the service."""
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
        """Take no more requests, and end."""
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
    """Act when somebody stops the process while a block runs."""
    before = {number: signal.signal(number, lambda *_: act()) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
