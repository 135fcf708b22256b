"""What runs on one machine to be looked at: parties as in a real federation, and nothing goes in the clear."""

import tomllib
from pathlib import Path

import pytest

from apps.federated import demo, example
from blindsight.federated.flower.node import desk_of
from blindsight.federated.members import Members
from blindsight.federated.sums.generatordesk import GeneratorDesk
from blindsight.federated.sums.userdesk import UserDesk


def settings_of(version):
    return set(
        tomllib.loads((example.EXAMPLE / version / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    )


def test_the_example_with_encryption_gives_every_party_a_home_and_a_desk(tmp_path):
    nodes, server = example.parties("after", tmp_path)
    desks = [desk_of(node.node_config) for node in nodes]
    assert [type(desk) for desk in desks] == [UserDesk] * len(example.OWNERS) + [GeneratorDesk]
    members = Members.read(Path(str(server["members"])))
    for desk in desks:
        members.check(desk.home.identity.public)
    assert members.users == tuple(sorted(example.OWNERS))
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
