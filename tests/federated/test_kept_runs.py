"""What a key store says about its runs: all kinds are read, none is changed by it, one that is forgotten is gone."""

import shutil

import pytest

from blindsight.errors import InputError, UnknownNameError
from blindsight.federated import runs
from blindsight.federated.runs import delete_run, list_runs
from blindsight.federated.server import load_run
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.federated.parties import DIMENSION, MEMBERS, Parties, make_store, model


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_party_knows_its_runs_and_looking_changes_nothing(tmp_path, scheme):
    parties = Parties(tmp_path)
    server = parties.open(scheme)
    parties.draw(1)
    server.round(1, model(1))
    before = contents(tmp_path)
    stands = {"ann": "set up", AGGREGATOR: "round 1", KEY_GENERATOR: "opened"}
    for party in stands if scheme != "plain" else ("ann", AGGREGATOR):
        (run,) = list_runs(parties.stores[party])
        assert (run.name, run.scheme, run.members) == (server.terms.run, scheme, MEMBERS)
        assert (run.weights, run.stands) == (DIMENSION, stands[party])
        decrypts = party == KEY_GENERATOR and scheme != "masks"
        assert len(run.record) == decrypts
        assert all("ann, bob, cem, dan" in sentence for sentence in run.record)
    assert contents(tmp_path) == before


def joined(folder, run):
    """Return the key store of ann, who has agreed to the terms of a run of this name."""
    parties = Parties(folder)
    terms = parties.make_terms("plain")(run, MEMBERS)
    parties.member("ann").handle("enrol", (terms.to_bytes(), b""))
    return parties.stores["ann"]


def test_a_forgotten_run_is_gone_and_the_others_are_not(tmp_path):
    parties = Parties(tmp_path)
    first, second = parties.open("masks").run, parties.open("masks").run
    store = parties.stores[AGGREGATOR]
    for label, run in (("one", first), ("two", second)):
        run.label(label, seed=7)
    kept = contents(second.folder)
    run, files = delete_run(store, first.terms.run)
    assert (run.name, run.folder) == (first.terms.run, first.folder)
    assert files > 0
    assert [path.name for path in (store.path / "runs").iterdir()] == [second.folder.name]
    assert contents(second.folder) == kept
    assert load_run(store, "one", seed=7) is None
    assert load_run(store, "two", seed=7) is not None
    with pytest.raises(UnknownNameError, match="unknown run"):
        delete_run(store, first.terms.run)


def test_an_interrupted_farewell_leaves_nothing_to_go_on_with(tmp_path, monkeypatch):
    parties = Parties(tmp_path)
    server, store = parties.open("masks"), parties.stores["ann"]
    parties.draw(1)
    server.round(1, model(1))
    name = server.terms.run

    def killed(folder):
        (folder / "member").unlink()  # what it did is forgotten, that it takes part is not
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(runs.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            delete_run(store, name)
    assert not store.folder(name).exists()
    assert [run.name for run in list_runs(store)] == [name]
    delete_run(store, name)
    assert list((store.path / "runs").iterdir()) == []


def test_what_cannot_be_read_is_listed_with_its_reason_and_can_be_forgotten(tmp_path):
    store = make_store(tmp_path, "ann")
    empty, damaged = store.run("empty"), store.run("damaged")
    (damaged / "joined").write_bytes(b"garbage")
    (damaged / "joined").chmod(0o600)
    stands = {run.name: run.stands for run in list_runs(store)}
    assert stands[empty.name] == "never begun"
    assert "does not hold what was saved there" in stands[damaged.name]
    for folder in (empty, damaged):
        delete_run(store, folder.name)
    assert list_runs(store) == []


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path):
    store = joined(tmp_path, "r1")
    (run,) = list_runs(store)
    shutil.copytree(run.folder, store.folder("copy"))
    with pytest.raises(InputError, match=r"2 runs.*'r1'"):
        delete_run(store, "r1")
    delete_run(store, store.folder("copy").name)
    assert list_runs(store) == [run]


def test_a_home_without_runs_and_a_name_that_a_terminal_would_obey(tmp_path):
    assert list_runs(make_store(tmp_path / "new", "ann")) == []
    store = joined(tmp_path, "\x1b[2J")
    with pytest.raises(UnknownNameError):
        delete_run(store, "../ann")
    assert (tmp_path / "ann").exists()
    (run,) = list_runs(store)
    assert run.name == run.folder.name
