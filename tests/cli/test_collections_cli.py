"""The papers on the command line: what they are, what to run, and their collections."""

import shlex

import click
import pytest

from blindsight.cli import app
from blindsight.papers.collections import FETCHABLE


def test_five_documents_are_listed_with_commands_that_can_be_given(blindsight):
    documents = blindsight("papers", "list", "--json").document["documents"]
    assert [one["name"] for one in documents] == ["DPHE", "DPHE, supplement", "PPDL", "Private hashing", "SensorSift"]
    shown = blindsight("papers", "list").out
    for document in documents:
        assert document["name"] in shown
        assert document["run"]
        for line in document["run"]:
            assert line in shown
            command, words = app, shlex.split(line)[1:]
            while isinstance(command, click.Group):
                command = command.commands[words.pop(0)]
            command.make_context(line, words)  # parses every option, or raises


def test_fetch_names_the_publisher_where_nothing_can_be_downloaded(blindsight, tmp_path, monkeypatch):
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path))
    assert FETCHABLE["orl"].homepage in blindsight("papers", "fetch", "orl", code=1).err
    assert "Did you mean 'cifar10'?" in blindsight("papers", "fetch", "cifar-10", code=2).err


@pytest.mark.parametrize("name", FETCHABLE)
def test_every_command_knows_the_collections_of_the_papers(blindsight, name, tmp_path, monkeypatch):
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path))
    for words in (["data", "info", name], ["search", "build", name, "--epsilon", 4, "--public-share", 0.5]):
        assert f"blindsight papers fetch {name}" in blindsight(*words, "--json", code=1).document["error"]
