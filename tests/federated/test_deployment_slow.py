"""A federation of real processes over TLS: who is admitted, who is refused, and who comes back after a kill."""

import re
from importlib import import_module

import pytest

from apps.federated.deployment.loopback import Loopback, NodeSpec
from blindsight.errors import InputError, ServiceError
from blindsight.federated.invite import make_node_key

pytestmark = pytest.mark.slow
pytest.importorskip("flwr")

PYPROJECT = """
[project]
name = "hello"
version = "1.0.0"
description = "Every node says its name."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "blindsight"

[tool.flwr.app.components]
serverapp = "hello.server:app"
clientapp = "hello.client:app"

[tool.flwr.app.config]
greeting = "hello"
nodes = 2
"""

SERVER = """
import time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    heard = set()
    while len(heard) < context.run_config["nodes"]:
        heard |= ask(grid, context.run_config["greeting"], [node for node in grid.get_node_ids() if node not in heard])

def ask(grid, greeting, nodes):
    content = RecordDict({"word": ConfigRecord({"greeting": greeting})})
    waiting = set(grid.push_messages([Message(content, node, "query", ttl=20.0) for node in nodes]))
    heard = set()
    while waiting:
        for reply in grid.pull_messages(waiting):
            waiting.discard(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                heard.add(reply.metadata.src_node_id)
                print("ANSWER", reply.content["word"]["name"], flush=True)
        time.sleep(0.2)
    return heard
"""

CLIENT = """
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.query()
def hello(message, context):
    words = f"{message.content['word']['greeting']} from {context.node_config['name']}"
    return Message(RecordDict({"word": ConfigRecord({"name": words})}), reply_to=message)
"""


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation")
    package = folder / "app" / "hello"
    package.mkdir(parents=True)
    (folder / "app" / "pyproject.toml").write_text(PYPROJECT)
    for name, text in {"__init__": "", "server": SERVER, "client": CLIENT}.items():
        (package / f"{name}.py").write_text(text)
    nodes = [NodeSpec(name, {"name": name}) for name in ("ada", "ben")]
    with Loopback(folder / "app", nodes, folder / "loopback") as loopback:
        yield loopback


def answers(federation, run_id):
    return set(re.findall("ANSWER (.*)", federation.log(run_id)))


def another_node(federation, like, key):
    """Return a node that is started as the node `like` is, on a port of its own and with `key`."""
    spec = NodeSpec(f"{like}-too", {"name": like})
    home = federation.folder / "nodes" / spec.name
    home.mkdir(parents=True, exist_ok=True)
    (home / "node.key").write_bytes(key.read_bytes())
    (home / "node.key").chmod(0o600)
    return federation.supernode(spec)


def refusal(service):
    service.start()
    try:
        with pytest.raises(ServiceError, match="stopped"):
            service.wait_until(lambda: "SuperNode ID:" in service.output(), timeout=240)
        return service.output()
    finally:
        service.stop()


def test_every_node_answers(federation):
    run = federation.run({"greeting": "good day"})
    assert federation.wait(run, 240) == "finished:completed"
    assert answers(federation, run) == {"good day from ada", "good day from ben"}
    assert federation._operator().online() == set(federation.node_ids.values())


def test_a_node_with_a_key_nobody_registered_is_refused(federation, tmp_path):
    make_node_key(tmp_path / "stranger.key")
    assert "Failed to activate SuperNode" in refusal(another_node(federation, "ada", tmp_path / "stranger.key"))


def test_a_second_node_with_the_same_key_is_refused_and_the_first_keeps_running(federation):
    key = federation.folder / "nodes" / "ben" / "node.key"
    assert "Failed to activate SuperNode" in refusal(another_node(federation, "ben", key))
    with pytest.raises(InputError, match="ben is running already"):
        federation.start("ben")


def test_a_stranger_cannot_take_over_the_servers_side(federation):
    task = import_module("flwr.proto.runtime_pb2").AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
    client = import_module("flwr.supercore.runtime").RuntimeHttpClient.from_server_address(
        f"127.0.0.1:{federation.port}", False, federation.certificates.authority.read_bytes(), []
    )
    with client, pytest.raises(import_module("httpx").HTTPStatusError, match="401"):
        client.AcquireTask(task)


def test_a_run_outlives_the_superlink_and_a_killed_node_comes_back_under_its_old_id(federation):
    run = federation.run()
    federation.kill("ada")
    federation.kill_superlink()
    federation.restart_superlink()
    federation.start("ada")
    assert federation.node_id("ada") == federation.node_ids["ada"]
    assert federation.wait(run, 240) == "finished:completed"
    assert {"hello from ada", "hello from ben"} <= answers(federation, run)
