"""Attacks on the service that worked once, each with what stops it."""

import errno
import importlib
import socket
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI, Request
from smallservice import (
    FEATURES,
    GENDER,
    KEY,
    SMILE,
    TLS,
    Cast,
    asked,
    enrolled,
    frames,
    granted,
    linear,
    open_service,
    serving,
    work,
)
from sqlalchemy import event

from blindsight.data.images import decode
from blindsight.errors import CorruptFileError, InputError
from blindsight.service.api import create_app
from blindsight.service.gateway import MOST_WAITING
from blindsight.service.limits import HEAD_BYTES, RateLimit, add_limits, cost_of
from blindsight.service.pages.rendering import Sessions
from blindsight.service.proposals import sift_from_json
from blindsight.service.settings import ServiceSettings


def test_texts_among_the_numbers_of_a_sift_are_not_padded_to_the_longest():
    document = linear({2: 1.0}) | {"mean": ["a" * 100_000, *["b"] * 500]}
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"'mean'.*numbers"):
            sift_from_json(document, pipeline="cells 1", dimension=FEATURES)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000  # 200 MB as an array
    finally:
        tracemalloc.stop()


# --- connections ---


def connect(address):
    return socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=60)


def answered(connection, sent=b""):
    """Send, and return all that comes back until the other side closes."""
    with suppress(OSError):
        connection.sendall(sent)
    answer = b""
    with suppress(ConnectionResetError):
        while received := connection.recv(4096):
            answer += received
    return answer


HELLO = b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
PARSERS = {"h11": "h11_impl.H11Protocol", "httptools": "httptools_impl.HttpToolsProtocol"}


@pytest.fixture(params=[(parser, loop) for parser in PARSERS for loop in ("asyncio", "uvloop")], ids="-".join)
def served(request, tmp_path, monkeypatch):
    """What serves a small app by each parser on each event loop, as far as they are installed."""
    parser, loop = request.param
    for optional in {parser, loop} - {"h11", "asyncio"}:
        pytest.importorskip(optional)
    module, _, name = PARSERS[parser].partition(".")
    protocol = getattr(importlib.import_module(f"uvicorn.protocols.http.{module}"), name)
    monkeypatch.setattr("uvicorn.protocols.http.auto.AutoHTTPProtocol", protocol)
    app = FastAPI()

    @app.get("/hello")
    async def hello(request: Request):
        return {"from": request.client.host}

    @app.post("/frames")
    async def frames(request: Request):
        return {"bytes": len(await request.body())}

    with ExitStack() as stack:

        def serve(**settings):
            chosen = ServiceSettings(tmp_path, **settings)
            if not app.user_middleware:
                add_limits(app, chosen)
            return stack.enter_context(serving(app, chosen, loop=loop))

        yield serve


def test_silent_connections_shut_nobody_out(served):
    address = served(connections_per_address=8, head_seconds=60)
    silent = [connect(address) for _ in range(20)]
    try:
        with connect(address) as one:
            assert b"200 OK" in answered(one, HELLO)
        assert answered(silent[0]) == b""  # it made room
    finally:
        for one in silent:
            one.close()
    few = served(connections=8, head_seconds=60)
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connect(few))
        assert b"200 OK" in answered(stack.enter_context(connect(few)), HELLO)


def test_a_request_under_way_is_not_what_makes_room(served):
    address = served(connections_per_address=3, head_seconds=60)
    with ExitStack() as stack:
        busy = stack.enter_context(connect(address))
        busy.sendall(b"POST /frames HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\n12")
        assert b"200" in answered(stack.enter_context(connect(address)), HELLO)
        for _ in range(9):
            stack.enter_context(connect(address))
        assert b"200" in answered(stack.enter_context(connect(address)), HELLO)
        assert b'{"bytes":5}' in answered(busy, b"345")


def test_heads_and_bodies_have_a_deadline(served):
    address = served(head_seconds=0.2)
    for sent in (b"", b"GET /hello HTTP/1.1\r\nX-Slow: "):
        with connect(address) as slow:
            assert b" 408 " in answered(slow, sent)
    with connect(address) as slow:
        answer = answered(slow, b"POST /frames HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1")
    assert answer.startswith(b"HTTP/1.1 408")
    with connect(address) as again:  # the second head of a connection, too
        again.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 408 " in again.recv(4096) + answered(again, b"GET /hel")


@pytest.mark.parametrize("endless", [b"X: 12345678\r\n", b"1234567890"], ids=["headers", "one header"])
def test_heads_have_a_size(served, endless):
    address = served()
    head = b"GET /hello HTTP/1.1\r\nHost: x\r\nY: 1" + (b"" if endless.isdigit() else b"\r\n")
    for times, taken in ((HEAD_BYTES // 100, True), (HEAD_BYTES // 5, False)):
        with connect(address) as large:
            rest = b"\r\nConnection: close\r\n\r\n" if endless.isdigit() else b"Connection: close\r\n\r\n"
            assert answered(large, head + times * endless + rest).startswith(b"HTTP/1.1 200") == taken
    sent = 0
    with connect(address) as large, suppress(OSError):
        large.sendall(head)
        while sent < 50_000_000:  # nobody reads them
            sent += large.send(endless * 1000)
    assert sent < 50_000_000
    with connect(address) as one:
        assert b"200 OK" in answered(one, HELLO)


# --- large bodies ---


@pytest.fixture
def knocking(tmp_path):
    """A service on a socket with people in it, and what they send."""
    gateway = open_service(tmp_path / "service", requests_per_minute=1e6)
    cast = Cast(gateway)
    cast.tokens = {one.name: str(gateway.rotate_token(one)) for one in gateway.principals.list()}
    _, cast.tokens["Bob"] = enrolled(gateway, cast.operator, "Bob", "owner")
    with ExitStack() as stack:
        stack.callback(gateway.close)
        home = stack.enter_context(serving(create_app(gateway.settings, gateway), gateway.settings))

        def call(name, method, path, **sent):
            headers = {"Authorization": f"Bearer {cast.tokens[name]}"} | sent.pop("headers", {})
            return httpx.request(method, home + path, headers=headers, timeout=60, trust_env=False, verify=TLS, **sent)

        yield gateway, cast, call


def test_one_owners_uploads_hold_up_nobody_else(knocking, monkeypatch):
    gateway, _, call = knocking
    begun, go_on = threading.Semaphore(0), threading.Event()

    def held(content, **how):
        begun.release()
        assert go_on.wait(60)
        return decode(content, **how)

    monkeypatch.setattr("blindsight.service.frames.decode", held)
    with ThreadPoolExecutor(12) as pool:
        try:
            sent = [pool.submit(call, "Ann", "POST", "/v1/people/Ann/frames", content=one) for one in frames(10)]
            assert begun.acquire(timeout=60)
            assert call("Bob", "GET", "/v1/me").json()["name"] == "Bob"
            other = pool.submit(call, "Bob", "POST", "/v1/people/Bob/frames", content=frames(1)[0])
            assert begun.acquire(timeout=60)  # his turn, before the rest of hers
        finally:
            go_on.set()
        assert {one.result().status_code for one in [*sent, other]} == {201}
    assert len(gateway.frames.ids("Ann")) == 13


def test_bodies_of_many_small_things_are_refused_before_they_are_made(knocking):
    _, _, call = knocking
    for inside in ("[" + ",".join(["[]"] * 200_000) + "]", "[" + ",".join(['"ab"'] * 20_000) + "]"):
        body = f'{{"person": "Ann", "sift": {{"mean": {inside}}}}}'
        answer = call("X", "POST", "/v1/proposals", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, list(answer.json())) == (413, ["error"])
    for path, body in (
        ("/v1/releases", {"person": "a" * 200_000}),
        ("/v1/grants/1/revocation", {"reason": "a" * 200_000}),
    ):
        assert call("X", "POST", path, json=body).status_code in (403, 413)
    page = call("X", "POST", "/login", data={"token": "a" * 200_000})  # anybody may send that
    assert page.status_code == 413


def test_large_bodies_count_as_several_requests():
    limit = RateLimit(60, burst=10, clock=lambda: 0.0)
    assert cost_of([]) == 1
    assert cost_of([(b"content-length", b"2000000")]) == 9
    assert [limit.take("a", 9), limit.take("a", 9)] == [0.0, 8.0]
    assert RateLimit(60, burst=1, clock=lambda: 0.0).take("a", 9) == 0.0  # but never more than anybody has


def test_more_memory_than_there_is_is_a_refusal(knocking, monkeypatch):
    gateway, _, call = knocking

    def greedy(*_, **__):
        raise MemoryError

    monkeypatch.setattr(gateway.jobs, "find", greedy)
    assert call("X", "POST", "/v1/proposals", json={"person": "Ann"}).status_code == 413


def test_only_the_named_proxy_says_who_is_behind_it(served):
    forged = HELLO.replace(b"Connection", b"X-Forwarded-For: 192.0.2.9\r\nConnection")
    for settings, shown in (
        ({}, b"127.0.0.1"),
        ({"proxy": "192.0.2.1"}, b"127.0.0.1"),
        ({"proxy": "127.0.0.1"}, b"192.0.2.9"),
    ):
        with connect(served(**settings)) as one:
            assert b'{"from":"%s"}' % shown in answered(one, forged)


# --- what answers, times and traces tell ---


def entries(gateway, action):
    return [entry.details for entry in gateway.audit.entries(limit=1000) if entry.action == action]


def test_apps_do_not_learn_whether_a_person_exists(knocking):
    gateway, _, call = knocking
    seen = []
    for person in ("Ann", "Bob", "nobody"):  # Bob has not said what he hides
        asked = call("X", "POST", "/v1/proposals", json={"person": person, "sift": SMILE})
        assert asked.status_code == 202, asked.text
        work(gateway)
        told = call("X", "GET", f"/v1/proposals/{asked.json()['id']}")
        got = call("X", "POST", "/v1/releases", json={"person": person, "latest": 1})
        apart = {"job", "person"}
        seen.append(
            (asked.status_code, {k: v for k, v in told.json().items() if k not in apart}, got.status_code, got.json())
        )
    assert seen[0][:2] == (202, seen[0][1] | {"verdict": "denied", "state": "done"})
    assert seen[0] == seen[1] == seen[2]


def test_the_size_of_the_log_tells_apps_nothing(tmp_path):
    gateway = open_service(tmp_path / "service", verdict_seconds=3600)
    cast = Cast(gateway)
    gateway.jobs._clock = lambda: datetime(2030, 1, 1, 12, 1, tzinfo=UTC)
    app, other = cast.apps["X"], cast.apps["Y"]
    seen, grown = gateway.log_head(app).size, set()
    for person, sift in (
        ("Ann", GENDER),
        ("Ann", GENDER),
        ("Ann", SMILE),
        ("Ann", None),
        ("Zoe", SMILE),
        ("Zoe", None),
    ):
        gateway.propose(app, person, sift, frames=2 if sift is GENDER else 1)
        queued = gateway.audit.head().size
        work(gateway)
        grown.add(gateway.audit.head().size - queued)
        app = enrolled(gateway, cast.operator, f"app {queued}", "app")[0]
        gateway.register_app(app, ["gender"])
    gateway.register_app(app, ["smiling"])  # which Ann hides: nothing is tried
    gateway.propose(app, "Ann")
    queued = gateway.audit.head().size
    work(gateway)
    grown.add(gateway.audit.head().size - queued)
    assert grown == {2}
    assert gateway.log_head(cast.apps["X"]).size == gateway.log_head(other).size == seen
    with pytest.raises(InputError, match="sizes"):
        gateway.log_proof(other, 0, seen + 1)
    granted(gateway, cast, GENDER, frames=2)
    gateway.release(cast.apps["X"], "Ann", latest=1)
    assert gateway.log_head(cast.apps["X"]).size == gateway.audit.head().size  # its own receipt says as much
    assert gateway.log_head(other).size == seen
    gateway.jobs._clock = lambda: datetime(2030, 1, 1, 13, 0, tzinfo=UTC)
    assert gateway.log_head(other).size == gateway.audit.head().size
    assert len(gateway.log_proof(other, seen, None)[2]) > 0
    gateway.close()


def test_what_is_refused_untried_takes_as_long_as_the_last_verification(tmp_path, monkeypatch):
    gateway = open_service(tmp_path / "service")
    cast, slept = Cast(gateway), []
    monkeypatch.setattr("blindsight.service.proposals.sleep", slept.append)
    times = iter([0.0, 50.0, 100.0, 101.0, 151.0])
    monkeypatch.setattr("blindsight.service.proposals.monotonic", lambda: next(times))
    asked(gateway, cast, GENDER)
    gateway.propose(cast.apps["X"], "Zoe", GENDER)
    work(gateway)
    assert slept == [1.0]
    gateway.close()


def test_the_time_of_a_verdict_does_not_tell_it(tmp_path):
    gateway = open_service(tmp_path / "service", verdict_seconds=3600)
    cast = Cast(gateway)
    app = cast.apps["X"]
    jobs = [asked(gateway, cast, sift) for sift in (GENDER, SMILE)]
    ended = [gateway.jobs.get(job) for job in jobs]
    assert [one.state for one in ended] == ["done", "done"]
    for job in jobs:
        assert gateway.proposal(cast.ann, job).verdict is not None
        assert (gateway.proposal(app, job).verdict, gateway.job(app, job).state) == (None, "running")
        assert gateway.cancel(app, job).state == "running"
    later = max(one.submitted for one in ended) + timedelta(hours=1)
    gateway.jobs._clock = lambda: later
    assert [gateway.proposal(app, job).verdict for job in jobs] == ["accept", "denied"]
    assert [gateway.job(app, job).state for job in jobs] == ["done", "done"]
    gateway.close()


def test_untold_verdicts_fill_the_queue_as_unfinished_ones_do(tmp_path):
    gateway = open_service(tmp_path / "service", verdict_seconds=3600)
    cast = Cast(gateway)
    for _ in range(MOST_WAITING):
        asked(gateway, cast, SMILE)
    with pytest.raises(InputError, match="waiting"):
        asked(gateway, cast, SMILE)
    gateway.close()


def test_errors_of_jobs_name_no_files(knocking):
    gateway, cast, call = knocking
    secret = "/secret/place"

    def broken(*_, **__):
        raise CorruptFileError(f"{secret} is damaged.")

    gateway.platform.propose = broken
    job = asked(gateway, cast, GENDER)
    for name in ("Ann", "operator", "X"):
        answer = call(name, "GET", f"/v1/jobs/{job}")
        assert answer.status_code == 200
        assert secret not in answer.text
    assert gateway.jobs.get(job).state == "failed"


def test_names_that_look_alike_are_one_name(knocking):
    gateway, cast, call = knocking
    for name in ("Ann", "ann", "\u0410nn", "\uff21nn", "\u0391nn"):
        answer = call("operator", "POST", "/v1/principals", json={"name": name, "role": "app"})
        assert answer.status_code == 409
        with pytest.raises(InputError, match="taken"):
            gateway.principals.create(name, "app")
    with pytest.raises(InputError, match="NFC"):
        gateway.principals.create("Zoe\u0308", "owner")
    made = call("operator", "POST", "/v1/principals", json={"name": "Zoe\u0308", "role": "owner"})
    assert made.json()["principal"]["name"] == "Zo\u00eb"
    code = {"code": made.json()["code"], "public_key": KEY.public.hex()}
    cast.tokens["Zo\u00eb"] = call("operator", "POST", "/v1/enrolment", json=code).json()["token"]
    assert call("Zo\u00eb", "GET", "/v1/people/Zoe\u0308").json()["person"] == "Zo\u00eb"


def test_failed_logins_and_what_operators_read_are_in_the_log(knocking):
    gateway, cast, call = knocking
    cast.tokens["stranger"] = "blindsight_" + "a" * 43
    for _ in range(5):
        assert call("stranger", "GET", "/v1/me").status_code == 401
    assert entries(gateway, "refuse login") == [{"address": "127.0.0.1"}]  # one entry a minute, or the log would fill
    for _ in range(3):
        call("operator", "GET", "/v1/people/Ann")
    call("operator", "GET", "/v1/me")
    call("Ann", "GET", "/v1/people/Ann")
    assert entries(gateway, "read") == [{"path": "/v1/people/Ann"}]


def test_logging_out_ends_a_session_and_its_cookie_is_no_token(knocking):
    gateway, cast, _ = knocking
    now = [0.0]
    sessions = Sessions(gateway.principals, clock=lambda: now[0])
    token = cast.tokens["Ann"]
    first, second = sessions.begin(token), sessions.begin(token)
    assert first != second
    assert token not in (first, second)
    assert sessions.who(first).name == "Ann"
    sessions.end(first)
    assert (sessions.who(first), sessions.who(None), sessions.who(token)) == (None, None, None)
    assert sessions.begin("blindsight_" + "a" * 43) is None
    now[0] = 86_400.0
    assert sessions.who(second) is None
    third = sessions.begin(token)
    gateway.rotate_token(cast.ann)
    assert sessions.who(third) is None


# --- a full disk ---


def test_a_full_disk_is_told_and_nothing_is_wedged_after_it(knocking):
    gateway, cast, call = knocking
    number = granted(gateway, cast, GENDER)
    engine = gateway.principals.database.engine

    def full(connection, record):
        connection.execute("PRAGMA max_page_count=1").close()  # SQLite keeps what there is, and takes nothing more

    event.listen(engine, "connect", full)
    engine.dispose()
    failed = set()
    for _ in range(200):  # until the last free page is used
        failed.add(call("X", "POST", "/v1/releases", json={"person": "Ann", "latest": 1}).status_code)
        if 503 in failed:
            break
    assert 503 in failed
    event.remove(engine, "connect", full)
    engine.dispose()
    revoked = call("Ann", "POST", f"/v1/grants/{number}/revocation", json={"reason": "enough"})
    assert (revoked.status_code, revoked.json()["standing"]) == (200, "revoked")
    assert gateway.audit.verify().ok


def test_ready_tells_the_truth(knocking, monkeypatch):
    gateway, _, call = knocking
    assert call("X", "GET", "/v1/ready").status_code == 200

    def fails(*_):
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fails)
        answer = call("X", "GET", "/v1/ready")
        assert (answer.status_code, str(gateway.settings.folder) in answer.text) == (503, False)
    assert call("X", "GET", "/v1/ready").status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(gateway.jobs._database, "reading", lambda: fails())
        assert call("X", "GET", "/v1/health").status_code == 200  # it answers, though it can do nothing
        assert call("X", "GET", "/v1/ready").status_code >= 500
