"""The example for other people's Flower apps runs, before and after, and only the lines it says differ."""

import difflib
import functools
import importlib
import sys
import tomllib
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from tests.federated.flower.federation import GENERATOR, PATIENCE, Federation
from tests.federated.flower.localgrid import LocalGrid, LocalNode

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_encrypted"
OWNERS = ("ann", "bob", "cem", "dan", "eve")
ROUNDS = 3


@pytest.fixture
def load(monkeypatch):
    """Import an app as Flower does, afresh."""

    def load(version):
        with monkeypatch.context() as patched:
            patched.syspath_prepend(str(EXAMPLE / version))
            names = ("digits", "digits.task", "digits.client_app", "digits.server_app")
            for name in names:
                sys.modules.pop(name, None)
            importlib.invalidate_caches()
            try:
                return [importlib.import_module(name) for name in names[2:]]
            finally:
                for name in names:
                    sys.modules.pop(name, None)

    return load


def settings(version):
    return tomllib.loads((EXAMPLE / version / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def last_accuracy(capsys, rounds):
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == rounds + 1
    return float(lines[-1].split(": ")[1].split("%")[0])


def run_before(load):
    client, server = load("before")
    grid = LocalGrid({place: LocalNode(client.app, {"partition-id": place}) for place in range(5)})
    server.app(grid, Context(1, 0, {}, RecordDict(), settings("before") | {"rounds": ROUNDS}))


def run_after(load, tmp_path, rounds, **quick):
    client, server = load("after")
    federation = Federation(tmp_path, lambda name: None, OWNERS)
    for place, node in federation.grid.nodes.items():
        node.app = client.app
        if place != GENERATOR:
            node.config["partition-id"] = place - 1
    server.EncryptedFedAvg = functools.partial(server.EncryptedFedAvg, **quick)
    home = str(federation.stores["aggregator"].path)
    config = settings("after") | {"home": home, "members-file": str(federation.members_file), "rounds": rounds}
    server.app(federation.grid, Context(1, 0, {}, RecordDict(), config))


def test_the_encrypted_app_learns_as_well_as_the_plain_one(load, tmp_path, capsys):
    run_before(load)
    before = last_accuracy(capsys, ROUNDS)
    run_after(load, tmp_path, ROUNDS, patience=PATIENCE)
    after = last_accuracy(capsys, ROUNDS)
    assert before > 75
    assert abs(after - before) <= 1


@pytest.mark.slow
def test_the_encrypted_app_runs_as_it_is(load, tmp_path, capsys):
    run_after(load, tmp_path, 20)
    assert last_accuracy(capsys, 20) > 91


def changed_lines(file):
    before, after = ((EXAMPLE / version / file).read_text().splitlines() for version in ("before", "after"))
    return [line for line in difflib.ndiff(before, after) if line[0] in "+-"]


def test_two_lines_of_code_and_their_imports_differ():
    assert changed_lines("digits/client_app.py") == [
        "+ from blindsight.federated.flower import encrypted_updates",
        "- app = ClientApp()",
        "+ app = ClientApp(mods=[encrypted_updates])",
    ]
    assert changed_lines("digits/server_app.py") == [
        "- from flwr.serverapp.strategy import FedAvg",
        "+ from blindsight.federated.flower import EncryptedFedAvg",
        "-     strategy = FedAvg(min_available_nodes=5)",
        "+     config = context.run_config",
        '+     strategy = EncryptedFedAvg(home=config["home"], members_file=config["members-file"], members=5)',
    ]
    for file in ("digits/task.py", "digits/__init__.py"):
        assert changed_lines(file) == []


def test_the_readme_shows_these_lines():
    text = (EXAMPLE / "README.md").read_text()
    for file in ("digits/client_app.py", "digits/server_app.py"):
        for line in changed_lines(file):
            assert f"{line[0]}{line[2:].strip()}" in text.replace("    ", "")
