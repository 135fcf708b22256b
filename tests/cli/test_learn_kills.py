"""Killed at any moment of any write, `learn classifier --resume` ends as one that was not, bit for bit."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from blindsight.errors import BlindsightError
from blindsight.learn.model import LinearModel, load_model

QUICK = ["-n", 100, "--components", 5, "--owners", 3, "--rounds", 2]
WRITTEN = ["run.json", *["state.npz", "history.json"] * 2]


@pytest.fixture
def disks(tmp_path, monkeypatch):
    """Keep what a process that is killed leaves in a folder: before a file is opened, before and after it is moved."""
    out, kept, moved, creates, move = tmp_path / "out", [], [], os.open, Path.replace

    def keep():
        kept.append(tmp_path / f"disk-{len(kept)}")
        if out.exists():
            shutil.copytree(out, kept[-1])

    def create(path, flags, *others, **named):
        if flags & os.O_EXCL and Path(path).is_relative_to(out):
            keep()
        return creates(path, flags, *others, **named)

    def replace(path, target):
        if not Path(target).is_relative_to(out):
            return move(path, target)
        keep()
        found = move(path, target)
        moved.append(Path(target))
        keep()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", create)
        patched.setattr(Path, "replace", replace)
        yield out, kept, moved, patched.undo


def facts(folder):
    """Return all that a run has found, without how long its messages took and were, which are random."""
    history = json.loads((folder / "history.json").read_text())
    rounds = [{name: value for name, value in one.items() if name not in ("seconds", "sent")} for one in history]
    return rounds, json.loads((folder / "statement.json").read_text()), json.loads((folder / "run.json").read_text())


def test_a_run_killed_at_any_write_ends_with_the_same_model(disks, blindsight):
    out, kept, moved, undo = disks
    asked = ["learn", "classifier", *QUICK, "--resume", "--out"]
    blindsight(*asked, out)
    undo()
    assert [path.name for path in moved if path.parent in (out, out / "checkpoint")][: len(WRITTEN)] == WRITTEN
    assert moved[-1] == out / "report.html"
    expected, model = facts(out), LinearModel.load(out / "model.npz")
    finished = [folder for folder in kept if (folder / "model.npz").exists()]
    assert 3 * len(moved) > len(kept) > len(moved)
    assert 0 < len(finished) < len(kept)
    for folder in kept:
        if folder in finished:  # whoever finds a model finds what is proven of it, and how pictures become features
            assert facts(folder) == expected
            assert (load_model(folder).model.weights == model.weights).all()
        else:
            with pytest.raises(BlindsightError):
                load_model(folder)
        blindsight(*asked, folder)
        assert np.array_equal(LinearModel.load(folder / "model.npz").weights, model.weights)
        assert facts(folder) == expected
        assert {path.name for path in folder.iterdir()} == {path.name for path in out.iterdir()}


def test_a_killed_run_with_a_proven_epsilon_says_why_it_does_not_resume(tmp_path, blindsight):
    proven = ["--epsilon", 8, "--delta", 1e-3, "--unit", "record", "--out", tmp_path / "out"]
    said = blindsight("learn", "classifier", *QUICK, *proven, "--resume", code=2)
    assert "--resume" in said.err
    assert not (tmp_path / "out").exists()


def test_a_new_run_killed_at_any_write_leaves_no_model_that_another_run_learned(disks, blindsight):
    out, kept, _, undo = disks
    asked = ["learn", "classifier", *QUICK, "--out", out]
    blindsight(*asked)
    before, earlier = facts(out), len(kept)
    blindsight(*asked, "--seed", 1)
    undo()
    finished = [folder for folder in kept[earlier:] if (folder / "model.npz").exists()]
    assert 0 < len(finished) < len(kept) - earlier
    assert all(facts(folder) in (before, facts(out)) for folder in finished)
