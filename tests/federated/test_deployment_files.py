"""Files for several machines and demonstrations on one name what there is, and nothing goes in the clear."""

import importlib
import json
import re
import shlex
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from apps.federated import demo, example
from blindsight.cli import federation
from blindsight.federated.commands import QUIET
from blindsight.federated.flower import launcher
from blindsight.federated.flower.mod import node_of
from blindsight.federated.identity import Members
from blindsight.federated.node import KeyGeneratorNode, MemberNode

pytest.importorskip("flwr")

FILES = Path(__file__).resolve().parents[2] / "apps" / "federated"
UNITS = sorted((FILES / "systemd").glob("*.service"))
PARSERS = {
    "superlink": ("flwr.superlink.cli.flower_superlink", "_parse_args_run_superlink"),
    "superexec": ("flwr.supercore.cli.flower_superexec", "_parse_args"),
    "supernode": ("flwr.supernode.cli.flower_supernode", "_parse_args_run_supernode"),
}

Unit = dict[str, dict[str, list[str]]]


def read_unit(path):
    """Return the values of a unit by section and key, in order, as systemd reads them; other lines raise."""
    found = defaultdict(lambda: defaultdict(list))
    section = ""
    for line in re.sub(r"\\\n\s*", " ", path.read_text()).splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = heading[1]
        elif line and not line.startswith(("#", ";")):
            key, equals, value = line.partition("=")
            assert section, line
            assert equals, line
            assert re.fullmatch(r"[A-Z][A-Za-z]+", key), line
            found[section][key].append(value)
    return found


def command(path):
    """Return the one program of a unit and its words."""
    (line,) = read_unit(path)["Service"]["ExecStart"]
    python, option, module, program, *words = shlex.split(line)
    assert (Path(python).name, option, module) == ("python", "-m", launcher.__name__)
    return program, words


def test_every_party_has_a_unit():
    assert sorted(command(unit)[0] for unit in UNITS) == sorted(PARSERS)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_is_whole(path):
    unit = read_unit(path)
    assert set(unit) == {"Unit", "Service", "Install"}
    service = unit["Service"]
    (state,) = service["StateDirectory"]
    assert service["WorkingDirectory"] == [f"/var/lib/{state}"]
    assert service["StateDirectoryMode"] == ["0700"]
    assert service["User"] == [state]
    variables = dict(word.split("=", 1) for line in service["Environment"] for word in shlex.split(line))
    assert variables.pop("FLWR_HOME") == f"/var/lib/{state}/flower"
    assert {"FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK"} <= set(variables)
    assert variables.items() <= QUIET.items()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_calls_a_program_of_flower_with_options_it_has(path):
    program, words = command(path)
    module, builder = PARSERS[program]
    parser = getattr(importlib.import_module(module), builder)()
    known = set(re.findall(r"(?<!\S)--[a-z][a-z-]+", parser.format_help()))  # whole: argparse would take beginnings
    assert {word for word in words if word.startswith("--")} <= known
    parser.parse_args(words)  # exits where a value or a required option is missing


def test_the_proxy_lets_nodes_reach_what_they_ask_for_and_nothing_else():
    router = importlib.import_module("flwr.superlink.routers.fleet.router").router
    assert {method for route in router.routes for method in route.methods} == {"POST"}
    text = re.sub(r"#.*", "", (FILES / "proxy" / "nginx.conf").read_text())
    assert text.count("{") == text.count("}")
    assert re.findall(r"location (\S+) \{\s*(\S[^;{]*)", text) == [
        (f"{router.prefix}/", "limit_except POST "),
        ("/", "return 404"),
    ]
    assert re.findall(r"proxy_pass (\S+);", text) == [f"https://superlink{router.prefix}/"]


def options_of(name):
    """Return the options that a command of `blindsight federation` has."""
    group = federation.app
    return {option for parameter in group.commands[name].params for option in parameter.opts}


def test_containers_run_as_nobody_in_particular_with_commands_there_are():
    lines = re.sub(r"\\\n\s*", " ", (FILES / "container" / "Containerfile").read_text()).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert {step for step, _ in steps} <= {"FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "VOLUME", "ENTRYPOINT"}
    assert steps[0][0] == "FROM"
    found = dict(steps)
    assert found["USER"] == "10001"  # a number, which every host can read
    assert json.loads(found["ENTRYPOINT"]) == ["blindsight", "federation"]
    for _, words in (step for step in steps if step[0] == "COPY"):
        assert all((FILES.parents[1] / source).exists() for source in words.split()[:-1])
    assert set(found["ENV"].split()) <= {f"{key}={value}" for key, value in QUIET.items()}
    document = yaml.safe_load((FILES / "container" / "compose.yaml").read_text())
    assert set(document) == {"services", "volumes"}
    for name, service in document["services"].items():
        command, *words = service["command"]
        assert {word for word in words if word.startswith("--")} <= options_of(command)
        assert service["profiles"] == [name]
        assert service["cap_drop"] == ["ALL"]
        assert f"{name}:{found['VOLUME']}" in service["volumes"]
        assert name in document["volumes"]


def settings_of(version):
    return set(
        tomllib.loads((example.EXAMPLE / version / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    )


def test_the_example_with_encryption_gives_every_party_a_key_store_and_a_handler(tmp_path):
    nodes, server = example.parties("after", tmp_path)
    handlers = [node_of(node.node_config) for node in nodes]
    assert [type(handler) for handler in handlers] == [MemberNode] * len(example.OWNERS) + [KeyGeneratorNode]
    members = Members.read(Path(str(server["members-file"])))
    for handler in handlers:
        members.check(handler.store.identity.public)
    assert members.names == tuple(sorted(example.OWNERS))
    assert [node.node_config.get("partition-id") for node in nodes] == [0, 1, 2, 3, 4, None]
    assert set(server) <= settings_of("after")  # Flower refuses a setting that an app does not have


def test_the_example_without_encryption_needs_no_home(tmp_path):
    nodes, server = example.parties("before", tmp_path)
    assert [dict(node.node_config) for node in nodes] == [{"partition-id": place} for place in range(5)]
    assert server == {}
    assert list(tmp_path.iterdir()) == []


def test_the_demonstration_has_no_scheme_in_the_clear(capsys):
    assert demo._options(["--scheme", "bfv"]).scheme == "bfv"
    with pytest.raises(SystemExit):
        demo._options(["--scheme", "plain"])
    assert "invalid choice: 'plain'" in capsys.readouterr().err
