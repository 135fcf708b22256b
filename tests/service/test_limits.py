"""Too many requests get 429, too large bodies 413, and every answer tells browsers what they must not do."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse, StreamingResponse
from hypothesis import given
from hypothesis import strategies as st
from smallservice import serving

from blindsight.errors import InputError
from blindsight.service import limits
from blindsight.service.limits import Limits, RateLimit, add_limits, retry_after
from blindsight.service.settings import ServiceSettings

MOST = 1_000


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def read() -> list[int]:
    """How many bytes of each request reached the app."""
    return []


@pytest.fixture
def app(tmp_path: Path, read: list[int]) -> FastAPI:
    app = FastAPI()

    @app.post("/json")
    async def json_body(body: dict[str, str]) -> dict[str, int]:
        read.append(len(body))
        return {"fields": len(body)}

    @app.post("/raw")
    async def raw(request: Request) -> dict[str, int]:
        read.append(0)
        async for chunk in request.stream():
            read[-1] += len(chunk)
        return {"bytes": read[-1]}

    @app.post("/early")
    async def early(request: Request) -> StreamingResponse:
        return StreamingResponse(request.stream())

    @app.get("/static/page.css")
    def style() -> PlainTextResponse:
        return PlainTextResponse("", headers={"cache-control": "max-age=60"})

    @app.get("/v1/thing")
    def thing() -> PlainTextResponse:
        return PlainTextResponse("", headers={"Cache-Control": "public", "X-Frame-Options": "ALLOWALL"})

    @app.get("/broken")
    def broken() -> None:
        raise HTTPException(418)

    add_limits(app, ServiceSettings(tmp_path, body_bytes=MOST))
    return app


class Client:
    """Asks an app directly, as if from `address`; chunks of a body are sent without telling their length."""

    def __init__(self, app: FastAPI, *, address: str = "192.0.2.7", scheme: str = "http") -> None:
        self._transport = httpx.ASGITransport(app, client=(address, 1))
        self._base = f"{scheme}://service"

    def get(self, path: str) -> httpx.Response:
        return asyncio.run(self._ask("GET", path, b""))

    def post(self, path: str, body: bytes | list[bytes] = b"") -> httpx.Response:
        return asyncio.run(self._ask("POST", path, body))

    async def _ask(self, method: str, path: str, body: bytes | list[bytes]) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport, base_url=self._base) as client:
            return await client.request(method, path, content=body if isinstance(body, bytes) else chunked(body))


async def chunked(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.fixture
def client(app: FastAPI) -> Client:
    return Client(app)


def test_bucket_gives_its_burst_then_its_rate(clock: Clock) -> None:
    limit = RateLimit(60, burst=3, clock=clock)
    assert [limit.take("a") for _ in range(4)] == [0, 0, 0, 1]
    assert limit.take("b") == 0  # others are not touched
    clock.now += 0.5
    assert limit.take("a") == 0.5  # being refused costs nothing
    clock.now += 0.5
    assert limit.take("a") == 0
    clock.now += 1_000
    assert [limit.take("a") for _ in range(4)] == [0, 0, 0, 1]  # never more than the burst
    slow = RateLimit(7, burst=1, clock=clock)
    slow.take("a")
    clock.now += int(retry_after(slow.take("a")))  # waiting as told is enough
    assert slow.take("a") == 0


@given(st.lists(st.floats(0, 5), max_size=60), st.floats(1, 600), st.floats(1, 20))
def test_no_pattern_of_requests_gets_more_than_its_share(waits: list[float], rate: float, burst: float) -> None:
    clock = Clock()
    limit = RateLimit(rate, burst=burst, clock=clock)
    passed = 0
    for wait in waits:
        clock.now += wait
        pause = limit.take("a")
        passed += not pause
        assert pause <= 60 / rate + 1e-9
    assert passed <= burst + sum(waits) * rate / 60 + 1e-6


def test_callers_are_forgotten_oldest_first(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ADDRESSES", RateLimit._WAYS)
    limit = RateLimit(60, burst=1, clock=clock)
    for number in range(RateLimit._WAYS):
        limit.take("ab"[number] if number < 2 else str(number))
        clock.now += 0.01
    assert limit.take("a") > 0  # seen again, so "b" is now the oldest
    limit.take("another")
    assert limit.take("a") > 0
    assert limit.take("b") == 0


def test_threads_share_a_bucket(clock: Clock) -> None:
    limit = RateLimit(60, burst=50, clock=clock)
    with ThreadPoolExecutor(4) as pool:
        pauses = list(pool.map(limit.take, ["a"] * 200))
    assert pauses.count(0) == 50


def test_processes_share_a_bucket(clock: Clock) -> None:
    limit = RateLimit(60, burst=50, clock=clock, shared=True)
    for _ in range(2):
        other = get_context("fork").Process(target=limit.take, args=("a", 20))
        other.start()
        other.join()
    assert [limit.take("a", 10), limit.take("a")] == [0, 1]


def test_wrong_rates_are_refused() -> None:
    for rate, burst in ((0, None), (-1, None), (float("nan"), None), (60, 0.5), (60, float("inf"))):
        with pytest.raises(InputError, match="burst"):
            RateLimit(rate, burst=burst)


def test_address_that_asks_too_fast_gets_429(tmp_path: Path) -> None:
    app = FastAPI()
    add_limits(app, ServiceSettings(tmp_path, requests_per_minute=1))  # one at once, the next a minute later
    assert Client(app).get("/").status_code == 404
    refused = Client(app).get("/")
    assert refused.status_code == 429
    seconds = int(refused.headers["retry-after"])
    assert 1 <= seconds <= 60
    assert list(refused.json()) == ["error"]
    assert refused.headers["x-content-type-options"] == "nosniff"
    assert Client(app, address="192.0.2.8").get("/").status_code == 404


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
    ],
)
def test_addresses_count_by_who_can_have_them(one: str, other: str, same: bool, clock: Clock, tmp_path: Path) -> None:
    app = FastAPI()
    add_limits(app, ServiceSettings(tmp_path), RateLimit(1, burst=1, clock=clock))
    assert Client(app, address=one).get("/").status_code == 404
    assert Client(app, address=other).get("/").status_code == (429 if same else 404)


@pytest.mark.parametrize("path", ["/json", "/raw"])
def test_a_body_that_is_too_large_is_refused_unread_or_where_it_grows_too_large(
    client: Client, read: list[int], path: str
) -> None:
    for content, most_read in ((b"x" * (MOST + 1), -1), ([b"x" * 100] * 50, MOST)):
        answer = client.post(path, content)
        assert answer.status_code == 413
        assert str(MOST) in answer.json()["error"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert all(count <= most_read for count in read)


def test_body_of_exactly_the_limit_passes(client: Client) -> None:
    assert client.post("/raw", b"x" * MOST).json() == {"bytes": MOST}
    assert client.post("/raw", [b"x" * (MOST // 2)] * 2).json() == {"bytes": MOST}
    assert client.post("/raw").json() == {"bytes": 0}


@pytest.fixture
def server(app: FastAPI) -> Iterator[str]:
    """The address of a real server."""
    with serving(app) as address:
        yield address


def ask(address: str, head: str, *chunks: bytes) -> bytes:
    """Send a request and return the answer, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=120) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode())
        for chunk in chunks:
            connection.sendall(chunk)
        answer = b""
        while received := connection.recv(4096):
            answer += received
    return answer


def test_real_server_does_not_wait_for_a_body_it_refuses_and_breaks_off_an_answer_that_began(server: str) -> None:
    announced = ask(server, "POST /raw HTTP/1.1\nHost: x\nContent-Length: 1000000000\n\n")
    assert announced.startswith(b"HTTP/1.1 413")
    chunk = b"258\r\n" + b"x" * 600 + b"\r\n"
    endless = ask(server, "POST /raw HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n", chunk, chunk)
    assert endless.startswith(b"HTTP/1.1 413")
    assert b"content-security-policy" in endless
    answer = ask(server, "POST /early HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n", chunk, chunk)
    assert not answer.endswith(b"0\r\n\r\n")  # no whole answer
    assert answer.count(b"x" * 600) <= 1


def test_lengths_that_are_no_number_are_counted(tmp_path: Path) -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"x" * (MOST + 1), "more_body": False}

    sent = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    async def app(scope, receive, send) -> None:
        await receive()

    scope = {"type": "http", "scheme": "http", "path": "/", "headers": [(b"content-length", b"many")]}
    asyncio.run(Limits(app, ServiceSettings(tmp_path, body_bytes=MOST), RateLimit(60))(scope, receive, send))
    assert sent[0]["status"] == 413


def test_failures_of_the_app_stay_failures(app: FastAPI) -> None:
    @app.get("/defect")
    def defect() -> None:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        Client(app).get("/defect")


@pytest.mark.parametrize("path", ["/v1/thing", "/static/page.css", "/broken", "/nowhere"])
def test_every_answer_carries_the_headers(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers.get_list("x-frame-options") == ["DENY"]  # also where the app says otherwise
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    kept = ["max-age=60"] if path.startswith("/static/") else ["no-store"]
    assert headers.get_list("cache-control") == kept
    assert "strict-transport-security" not in headers


def test_browsers_that_came_by_tls_come_back_by_tls(app: FastAPI) -> None:
    answer = Client(app, scheme="https").get("/v1/thing")
    assert "max-age=" in answer.headers["strict-transport-security"]
