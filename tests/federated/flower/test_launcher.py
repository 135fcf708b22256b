"""The launcher: forks that are warm and clean, waiting, the pinned app, and what a stranger at the SuperLink gets."""

import asyncio
import hashlib
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import httpx
import pytest
from flwr.proto import fleet_pb2, message_pb2, node_pb2, runtime_pb2
from starlette.middleware import Middleware

from blindsight.errors import PrivacyError
from blindsight.federated.flower import launcher

HERE, ELSEWHERE = ("127.0.0.1", 50_000), ("203.0.113.9", 50_000)

FORKED = """
import importlib, os, sys, time
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import ExecutionSpec
from blindsight.federated.flower import launcher
launcher._PROGRAMS["flwr-clientapp"] = ("someapp", "main")
executor = launcher.ForkingExecutor()
spec = ExecutionSpec(
    task_type=TaskType.CLIENT_APP, runtime_api_address="127.0.0.1:9", token="t", insecure=True,
    root_certificates_path=None, runtime_dependency_install=False, parent_pid=None, suppress_output=False,
    task_id=1, fab_hash=None)
assert "wave" not in sys.modules
executor.launch(spec)
os.waitpid(-1, 0)
executor.reconcile()
assert "wave" in sys.modules and "someapp" not in sys.modules
"""


@pytest.mark.slow  # a Python that imports Flower
def test_a_task_runs_in_a_fork_and_leaves_its_imports_but_not_its_app(tmp_path):
    (tmp_path / "someapp.py").write_text("import sys, wave\ndef main(): print(*sys.argv, flush=True)\n")
    env = {"FLWR_HOME": str(tmp_path), "PYTHONPATH": ":".join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:5] == ["flwr-clientapp", "--runtime-api-address", "127.0.0.1:9", "--token", "t"]


def test_a_node_asks_often_in_a_run_seldom_after_it_and_wakes_its_executor_once(monkeypatch):
    told, slept, now = [], [], [0.0]
    monkeypatch.setattr(launcher.os, "write", lambda _, data: told.append(data))
    monkeypatch.setattr(launcher.time, "sleep", slept.append)
    monkeypatch.setattr(launcher.time, "monotonic", lambda: now[0])
    polling = launcher._Polling(0)
    polling.wait(0.5)
    polling.wait(0.5)
    polling.wait(3)
    now[0] = 60.0
    polling.wait(3)
    request = httpx.Request("POST", f"https://superlink{launcher._PULL}")
    polling.intercept(
        SimpleNamespace(request=request), lambda _: httpx.Response(200, headers={"preference-applied": "wait"})
    )
    polling.wait(3)
    assert request.headers["prefer"] == launcher._PREFERENCE
    assert told == [b"!"]
    assert slept == [launcher.REPLY_SECONDS] * 2 + [launcher.BUSY_SECONDS, launcher.IDLE_SECONDS, 0]


PULL = fleet_pb2.PullMessagesRequest(node=node_pb2.Node(node_id=7)).SerializeToString()


class Relay:
    """A SuperLink of one route: messages for a node, handed out once."""

    def __init__(self):
        self.messages, self.asked = [], 0

    async def __call__(self, scope, receive, send):
        body = (await receive())["body"]
        if scope["path"] == launcher._PULL:
            self.asked += 1
            answer, status = b"".join(self.messages), 200 if body == PULL else 401
            self.messages = []
        else:
            answer, status = b"", 200
            self.messages.append(b"message")
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": answer})


def asked(scene):
    """Play a scene with a relay behind `LongPolling`, and what sends a request to it: path, body, receive."""

    async def play():
        relay = Relay()
        holding = launcher.LongPolling(relay)

        async def ask(path, body, then=asyncio.Future):
            parts, sent = [{"type": "http.request", "body": body}], []

            async def receive():
                return parts.pop() if parts else await then()

            async def send(part):
                sent.append(part)

            headers = [(b"prefer", launcher._PREFERENCE.encode())]
            await holding({"type": "http", "path": path, "headers": headers}, receive, send)
            return (sent[0]["status"], sent[1]["body"]) if sent else None

        await scene(relay, ask)
        assert not holding._waiting

    asyncio.run(play())


def pushed(node):
    message = message_pb2.Message(metadata=message_pb2.Metadata(dst_node_id=node))
    return runtime_pb2.PushAppMessagesRequest(messages_list=[message]).SerializeToString()


def test_a_node_that_waits_is_answered_when_there_is_a_message_for_it():
    async def scene(relay, ask):
        question = asyncio.ensure_future(ask(launcher._PULL, PULL))
        while not relay.asked:
            await asyncio.sleep(0)
        await ask(launcher._PUSH, pushed(8))  # for somebody else
        await asyncio.sleep(0)
        assert (relay.asked, question.done()) == (1, False)
        await ask(launcher._PUSH, pushed(7))
        assert await question == (200, b"messagemessage")
        assert await ask(launcher._PULL, b"garbage") == (401, b"")

    asked(scene)


def test_a_node_that_left_gets_no_message_and_one_that_waited_long_enough_an_empty_answer(monkeypatch):
    async def scene(relay, ask):
        gone = asyncio.Event()

        async def leave():
            await gone.wait()
            return {"type": "http.disconnect"}

        question = asyncio.ensure_future(ask(launcher._PULL, PULL, leave))
        while not relay.asked:
            await asyncio.sleep(0)
        gone.set()
        assert await question is None
        await ask(launcher._PUSH, pushed(7))
        assert relay.messages == [b"message"]
        relay.messages = []
        monkeypatch.setattr(launcher, "HELD_SECONDS", 0)
        assert await ask(launcher._PULL, PULL) == (200, b"")

    asked(scene)


def test_a_pinned_node_installs_no_other_app(monkeypatch):
    from flwr.superlink.runtime import run_serverapp  # noqa: F401
    from flwr.supernode.runtime import run_clientapp  # noqa: F401

    modules = [
        sys.modules[f"flwr.{name}"] for name in ("superlink.runtime.run_serverapp", "supernode.runtime.run_clientapp")
    ]
    for module in modules:
        monkeypatch.setattr(module, "install_from_fab", lambda fab, **_: fab)
    launcher.pin_app(hashlib.sha256(b"app").hexdigest())
    for module in modules:
        assert module.install_from_fab(b"app", skip_prompt=True) == b"app"
        with pytest.raises(PrivacyError, match=hashlib.sha256(b"other").hexdigest()):
            module.install_from_fab(b"other", skip_prompt=True)


@pytest.fixture(scope="module")
def superlink_app():
    """Flower's SuperLink with the launcher's middleware, node authentication and an executor's secret."""
    from flwr.superlink import extensions, main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extensions, "get_middleware", lambda: (Middleware(launcher.LoopbackOnly),))
        app = main.create_app()
    app.user_middleware = launcher.in_one_layer(app.user_middleware)
    assert len(app.user_middleware) == 2
    app.state.enable_supernode_auth, app.state.superexec_auth_secret = True, b"s" * 32
    return app


def statuses(app, client, requests):
    """Return what a program at this address gets for its requests (method, path)."""

    async def ask():
        transport = httpx.ASGITransport(app=app, client=client, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="https://superlink") as visitor:
            return [(await visitor.request(*request)).status_code for request in requests]

    return dict(zip(requests, asyncio.run(ask()), strict=True))


def test_a_stranger_who_reaches_the_superlink_can_start_nothing(superlink_app):
    routes = [
        (method.upper(), path)
        for path, methods in superlink_app.openapi()["paths"].items()
        for method in methods
        if path != "/health"
    ]
    answers = statuses(superlink_app, ELSEWHERE, [*routes, ("GET", "/docs"), ("GET", "/openapi.json")])
    control = {path: code for (_, path), code in answers.items() if path.startswith("/v1/control/")}
    assert "/v1/control/start-run" in control
    assert set(control.values()) == {403}
    assert not [request for request, code in answers.items() if code < 400]


def test_the_operator_on_the_machine_itself_is_heard(superlink_app):
    asked = [("POST", "/v1/control/list-runs"), ("GET", "/health")]
    assert statuses(superlink_app, HERE, asked)[asked[0]] != 403
    assert statuses(superlink_app, ("::ffff:127.0.0.1", 1), [("GET", "/docs")]) == {("GET", "/docs"): 200}
