"""What a home says about its runs: all kinds are read, none is changed by it, and one that is forgotten is gone."""

import shutil

import numpy as np
import pytest
from blindsight.federated.home import Home

from blindsight.errors import InputError, UnknownNameError
from blindsight.federated import keptruns
from blindsight.federated.keptruns import forget_run, kept_runs
from blindsight.federated.sharing.joining import OwnTerms, SharingDesk, SharingLesson
from blindsight.federated.sums.opening import find_run, label_run
from blindsight.learn.aggregation import SCHEMES
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.model import Standardiser
from blindsight.learn.selective import ParameterServer, SelectiveTerms
from blindsight.learn.softmaxtrainer import SoftmaxTrainer
from tests.federated.village import DIMENSION, USERS, Village, make_home


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lesson(run):
    shape = {"standardiser": Standardiser(np.zeros(4), np.ones(4)), "classes": 3, "learning_rate": 0.1}
    layout = SoftmaxTrainer(**shape).layout
    return SharingLesson(SelectiveTerms.of(layout, run=run, participants=("ann", "bob"), batch=16), **shape)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_party_knows_its_runs_and_looking_changes_nothing(tmp_path, scheme):
    village = Village(tmp_path)
    server = village.open(scheme)
    village.draw(1)
    server.play(1, ())
    before = contents(tmp_path)
    stands = {"ann": "set up", AGGREGATOR: "round 1", KEY_GENERATOR: "opened"}
    for party in stands if scheme != "plain" else ("ann", AGGREGATOR):
        (run,) = kept_runs(village.homes[party])
        assert (run.name, run.scheme, run.users) == (server.terms.run, scheme, USERS)
        assert (run.weights, run.stands) == (DIMENSION, stands[party])
        decrypts = party == KEY_GENERATOR and scheme != "masks"
        assert len(run.record) == decrypts
        assert all("ann, bob, cem, dan" in sentence for sentence in run.record)
    assert contents(tmp_path) == before
    if scheme == "block-dphe":  # a key generator that was killed before it made keys is not given any
        (run.folder / "generator").unlink()
        (again,) = kept_runs(village.homes[KEY_GENERATOR])
        assert again.record == ()
        assert not (run.folder / "generator").exists()


def test_selective_sharing_is_a_run_too(tmp_path):
    user, server = make_home(tmp_path, "ann"), make_home(tmp_path, AGGREGATOR)
    SharingDesk(user, OwnTerms(share=0.1)).join(lesson("r1").to_bytes())
    terms = lesson("r1").terms
    parameters = ParameterServer(terms, lesson("r1").trainer().initial(), folder=server.run("sharing digits"))
    (busy,) = kept_runs(server)
    assert "another server works in" in busy.stands
    parameters.close()
    for home, stands in ((user, "joined"), (server, "0 uploads or more")):
        (run,) = kept_runs(home)
        assert (run.name, run.scheme, run.users, run.weights) == ("r1", "sharing", ("ann", "bob"), terms.dimension)
        assert run.stands == stands
        forget_run(home, "r1")
        assert kept_runs(home) == []


def test_a_forgotten_run_is_gone_and_the_others_are_not(tmp_path):
    village = Village(tmp_path)
    first, second = village.open("masks").run, village.open("masks").run
    home = village.homes[AGGREGATOR]
    for label, run in (("one", first), ("two", second)):
        label_run(home, label, run, seed=7)
    kept = contents(second.folder)
    run, files = forget_run(home, first.terms.run)
    assert (run.name, run.folder) == (first.terms.run, first.folder)
    assert files > 0
    assert [path.name for path in (home.path / "runs").iterdir()] == [second.folder.name]
    assert contents(second.folder) == kept
    assert find_run(home, "one", seed=7) is None
    assert find_run(home, "two", seed=7) is not None
    with pytest.raises(UnknownNameError, match="unknown run"):
        forget_run(home, first.terms.run)


def test_an_interrupted_farewell_leaves_nothing_to_go_on_with(tmp_path, monkeypatch):
    village = Village(tmp_path)
    server, home = village.open("masks"), village.homes["ann"]
    village.draw(1)
    server.play(1, ())
    name = server.terms.run

    def killed(folder):
        (folder / "user").unlink()  # what it did is forgotten, that it takes part is not
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(keptruns.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            forget_run(home, name)
    assert not home.folder(name).exists()
    assert [run.name for run in kept_runs(home)] == [name]
    forget_run(home, name)
    assert list((home.path / "runs").iterdir()) == []


def test_what_cannot_be_read_is_listed_with_its_reason_and_can_be_forgotten(tmp_path):
    home = make_home(tmp_path, "ann")
    empty, damaged = home.run("empty"), home.run("damaged")
    (damaged / "joined").write_bytes(b"garbage")
    (damaged / "joined").chmod(0o600)
    stands = {run.name: run.stands for run in kept_runs(home)}
    assert stands[empty.name] == "never begun"
    assert "does not hold what was saved there" in stands[damaged.name]
    for folder in (empty, damaged):
        forget_run(home, folder.name)
    assert kept_runs(home) == []


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path):
    home = make_home(tmp_path, "ann")
    SharingDesk(home, OwnTerms(share=0.1)).join(lesson("r1").to_bytes())
    (run,) = kept_runs(home)
    shutil.copytree(run.folder, home.folder("copy"))
    with pytest.raises(InputError, match=r"2 runs.*'r1'"):
        forget_run(home, "r1")
    forget_run(home, home.folder("copy").name)
    assert kept_runs(home) == [run]


def test_a_home_without_runs_and_a_name_that_a_terminal_would_obey(tmp_path):
    home = make_home(tmp_path, "ann")
    assert kept_runs(Home(home.path)) == []
    with pytest.raises(UnknownNameError):
        forget_run(home, "../ann")
    assert (tmp_path / "ann").exists()
    SharingDesk(home, OwnTerms(share=0.1)).join(lesson("\x1b[2J").to_bytes())
    (run,) = kept_runs(home)
    assert run.name == run.folder.name
