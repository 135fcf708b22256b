"""A run that is killed goes on where it stopped and ends with the same model."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blindsight.errors import CorruptFileError, InputError
from blindsight.learn.classifier import FederatedClassifier
from blindsight.rounds import Sums
from blindsight.sums import DpheOptions

ROUNDS = 5


def pictures(seed, n=30):
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % 4
    return 1.5 * np.eye(4, 20)[labels] + generator.normal(size=(n, 20)), labels


def owners():
    return {name: pictures(seed) for seed, name in enumerate(("ann", "bob", "cem"), start=1)}


def fit(folder, scheme="plain", rounds=ROUNDS, random_state=0, **options):
    paillier = DpheOptions(key_bits=1024, insecure=True, minimum_per_position=1)
    sums = Sums(scheme=scheme, share=0.4, options=paillier if "dphe" in scheme else None)
    where = {"checkpoint": folder, "public": pictures(9, 12), "validation": pictures(10)}
    return FederatedClassifier(sums, rounds=rounds, random_state=random_state).fit(owners(), **where | options)


CHILD = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_federation_checkpoint as here

real, done = os.fsync, []

def fsync(descriptor):
    done.append(None)
    if len(done) == 7:  # each checkpoint syncs its file and its folder: this is the fourth file
        print("here", flush=True)
        sys.stdin.read()  # until it is killed
    real(descriptor)

os.fsync = fsync
here.fit(Path(sys.argv[2]))
"""


class KilledError(BaseException):
    """The process ends here."""


def end(*_):
    raise KilledError


def killed(folder, moment):
    """Begin a run that ends at a moment of round 4: before it, in the training, or in the middle of a write."""
    if moment == "writing":
        arguments = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(folder)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
            assert child.stdout.readline() == b"here\n"
            child.kill()
        return
    options = {
        "before": {"on_round": lambda report: report.round == 3 and end()},
        "training": {"progress": lambda what, done, total: (what, done) == ("round 4: training", 1) and end()},
    }
    with pytest.raises(KilledError):
        fit(folder, **options[moment])


@pytest.mark.parametrize("moment", ["before", "training", "writing"])
def test_a_killed_run_resumes_and_ends_with_the_same_model(tmp_path, moment):
    killed(tmp_path / "kept", moment)
    assert len(list((tmp_path / "kept").glob(".*.part"))) == (moment == "writing")
    played = []
    resumed = fit(tmp_path / "kept", on_round=lambda report: played.append(report.round))
    assert played == [4, 5]
    assert list((tmp_path / "kept").glob(".*.part")) == []
    whole = fit(None)
    assert (resumed.coef_ == whole.coef_).all()
    assert (resumed.intercept_ == whole.intercept_).all()
    assert [r.score for r in resumed.history_] == [r.score for r in whole.history_]
    assert resumed.public_score_ == whole.public_score_


def test_a_finished_run_can_be_prolonged_under_encryption_too(tmp_path):
    fit(tmp_path, "block-dphe", rounds=1)
    longer = fit(tmp_path, "block-dphe", rounds=2)
    assert (longer.coef_ == fit(None, rounds=2).coef_).all()
    again = fit(tmp_path, "block-dphe", rounds=2, on_round=lambda report: pytest.fail("nothing is left to do"))
    assert (again.coef_ == longer.coef_).all()


def test_without_a_seed_a_resumed_run_keeps_the_one_it_began_with(tmp_path):
    fit(tmp_path, rounds=2, random_state=None)
    state = (tmp_path / "state.npz").read_bytes()
    longer = fit(tmp_path, random_state=None)
    (tmp_path / "state.npz").write_bytes(state)
    assert (fit(tmp_path, random_state=None).coef_ == longer.coef_).all()


def test_a_checkpoint_is_for_its_owner_alone(tmp_path):
    fit(tmp_path / "kept", rounds=1)
    assert (tmp_path / "kept" / "state.npz").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("change", [{"random_state": 1}, {"scheme": "masks"}, {"public": pictures(8, 12)}])
def test_the_checkpoint_of_another_run_is_refused_and_left_alone(tmp_path, change):
    fit(tmp_path, rounds=1)
    before = (tmp_path / "state.npz").read_bytes()
    with pytest.raises(InputError, match="another run"):
        fit(tmp_path, **change)
    assert (tmp_path / "state.npz").read_bytes() == before


def test_a_damaged_checkpoint_is_refused(tmp_path):
    fit(tmp_path, rounds=1)
    path = tmp_path / "state.npz"
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptFileError):
            fit(tmp_path)
