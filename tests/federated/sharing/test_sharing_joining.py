"""Joining selective sharing: nobody takes part who did not say so, and no server gets more than an owner allows."""

import numpy as np
import pytest

from blindsight.crypto.wire import decode, encode
from blindsight.data.features import Standardiser
from blindsight.dp.ledger import Ledger
from blindsight.errors import BlindsightError, InputError, MessageError, PrivacyError, StorageError
from blindsight.federated.identity import KeyStore
from blindsight.federated.node import MemberHandler
from blindsight.federated.sharing import (
    Instruction,
    OwnTerms,
    Report,
    SharingHandler,
    SharingServer,
    SharingTask,
    sharing_statement_of,
)
from blindsight.selective import ParameterServer, SelectiveTerms
from blindsight.selective.codec import SparseUpdate, encode_sparse
from blindsight.selective.terms import Answer
from blindsight.selective.trainers import SoftmaxTrainer
from blindsight.statement import PrivacyStatement
from blindsight.sums import HIDING_SCHEMES
from tests.federated.parties import make_store

FEATURES, CLASSES, BATCH = 6, 3, 16
NOISY = {"share": 0.5, "noise": "record", "epsilon": 4.0, "delta": 1e-5, "clip": 1.0}
PIN = "SHA256:" + 43 * "A"


class Run:
    """A run with one participant, as its server sees it."""

    def __init__(self, name, **settings):
        shape = {
            "standardiser": Standardiser(np.zeros(FEATURES), np.ones(FEATURES)),
            "classes": CLASSES,
            "learning_rate": 0.3,
        }
        terms = {"run": name, "participants": ("ann",), "batch": BATCH} | settings
        self.task = SharingTask(SelectiveTerms.of(SoftmaxTrainer(**shape).layout, **terms), **shape)
        self.parameters = ParameterServer(self.task.terms, self.task.trainer().initial())
        self.server = SharingServer(self.parameters, ("ann",))

    def play(self, home, config, photos, exchanges):
        """Let ann take part, each time as a new process; return whether its budget is spent."""
        handler(home, config).join(self.task.to_bytes())
        for _ in range(exchanges):
            taken = self.server.take("ann", handler(home, config).exchange(self.server.instruction("ann"), *photos))
        return taken.spent


def handler(home, config):
    return SharingHandler.of(MemberHandler(KeyStore(home), PIN, schemes=("bfv", "sharing")), config)


@pytest.fixture
def home(tmp_path):
    return make_store(tmp_path, "ann").path


@pytest.fixture
def photos():
    rng = np.random.default_rng(3)
    return rng.normal(size=(5 * BATCH, FEATURES)), rng.integers(CLASSES, size=5 * BATCH)


def test_a_member_must_say_that_it_shares_and_how_much(home):
    with pytest.raises(PrivacyError, match="sharing"):
        SharingHandler.of(MemberHandler(KeyStore(home), PIN), {"share": 0.1})
    assert "sharing" not in HIDING_SCHEMES
    with pytest.raises(InputError, match="how much"):
        handler(home, {})


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"least-batch": 0}, "got 0"),
        ({"least-batch": 1.5}, "whole number"),
        ({"noise": 3}, "'3'"),
        ({"epsilon": 1.0}, "nothing else has them"),
        ({"noise": "record", "epsilon": 1.0, "clip": 1.0}, "delta"),
    ],
)
def test_half_a_promise_is_refused(wrong, sentence):
    with pytest.raises(InputError, match=sentence):
        OwnTerms.of({"share": 0.1, **wrong})


def test_uploads_about_a_few_photos_are_refused(home, photos):
    small, run = Run("small", batch=BATCH - 1), Run("run")
    with pytest.raises(PrivacyError, match=r"16.* 15"):
        handler(home, {"share": 0.5}).join(small.task.to_bytes())
    with pytest.raises(MessageError, match="does not take part"):
        handler(home, {"share": 0.5}).exchange(small.server.instruction("ann"), *photos)
    handler(home, {"share": 0.5}).join(run.task.to_bytes())
    with pytest.raises(PrivacyError, match="17 photos or more"):  # it has joined, and its owner asks for more since
        handler(home, {"share": 0.5, "least-batch": 17}).exchange(run.server.instruction("ann"), *photos)
    small.play(home, {"share": 0.5, "least-batch": 15}, photos, 2)
    assert small.parameters.version == 1


def test_all_batches_of_a_run_cost_a_photo_once_and_another_run_is_refused(home, photos):
    first, second = Run("first"), Run("second")
    assert not first.play(home, NOISY, photos, 5)
    assert first.parameters.version == 4
    assert second.play(home, NOISY, photos, 3)
    assert second.parameters.version == 0
    ledger = Ledger(home / "ledger.jsonl", readonly=True)
    assert len(ledger.spends("photos of ann", "record")) == 1
    assert ledger.spent("photos of ann", "record", delta=1e-5).epsilon <= 4.0
    assert [row.scope for row in ledger.table(delta=1e-5)] == ["photos of ann"]
    first.play(home, NOISY, photos, 1)
    assert first.parameters.version == 5  # the run that was paid for goes on


def test_a_budget_is_not_raised_by_another_setting(home, photos):
    Run("first").play(home, NOISY, photos, 3)
    with pytest.raises(PrivacyError, match="raised"):
        Run("second").play(home, {**NOISY, "epsilon": 8.0}, photos, 1)


def test_classes_and_features_of_another_run_cost_nothing(home, photos):
    features, classes = photos
    with pytest.raises(MessageError, match="same features"):
        Run("first").play(home, NOISY, (features[:, 1:], classes), 1)
    with pytest.raises(InputError, match="tells 3 classes apart"):
        Run("first").play(home, {"share": 0.5}, (features, classes + 1), 1)
    assert not (home / "ledger.jsonl").exists()


def hand_out(handler, run, photos, weights):
    """Return what a server sees that hands out these weights: the kind of error, or how long the upload is."""
    digest, body = run.task.terms.digest, SparseUpdate(weights.size, np.arange(weights.size), weights)
    handler.join(run.task.to_bytes())
    handler.exchange(run.server.instruction("ann"), *photos)
    answer = encode(Answer(digest, "ann", 0, 0, b"", encode_sparse(body)))
    try:
        report = handler.exchange(encode(Instruction(digest, "ann", b"", -1, answer)), *photos)
    except BlindsightError as error:
        return type(error), str(error)
    return len(decode(report, Report).upload)


@pytest.mark.parametrize("weight", [3e38, 2.0**20])
@pytest.mark.parametrize(("photo", "label"), [(1.2, 0), (1e36, 0), (0.0, CLASSES)])
def test_a_data_dependent_failure_of_selective_sharing(tmp_path, photos, weight, photo, label):
    """Weights near the end of float32, or a class too few, made training fail exactly if a photo was there."""
    weights = np.zeros((FEATURES + 1) * CLASSES, dtype=np.float32)
    weights[2] = weight
    changed = tuple(part.copy() for part in photos)
    changed[0][7, 2], changed[1][7] = photo, label
    config = NOISY | {"share": 1.0}
    seen, spends = [], []
    for name, collection in (("without", photos), ("with", changed)):
        home = make_store(tmp_path / name, "ann").path
        seen.append(hand_out(handler(home, config), Run("run"), collection, weights))
        path = home / "ledger.jsonl"
        spends.append(len(Ledger(path, readonly=True).spends("photos of ann", "record")) if path.exists() else 0)
    assert seen[0] == seen[1]
    assert spends == ([0, 0] if weight > 2**20 else [1, 1])


def test_a_run_has_one_task_and_a_home_that_can_be_read(home):
    run, ann = Run("run"), handler(home, {"share": 0.1})
    ann.join(run.task.to_bytes())
    other = SharingTask(run.task.terms, run.task.standardiser, CLASSES, learning_rate=0.4)
    with pytest.raises(MessageError, match="another task"):
        ann.join(other.to_bytes())
    (task,) = home.glob("runs/*/task")
    task.unlink()
    task.mkdir()
    with pytest.raises(StorageError, match="cannot read"):
        ann.join(run.task.to_bytes())


def test_the_server_states_that_it_reads_uploads_and_knows_of_no_noise():
    statement = sharing_statement_of(Run("run", max_values=7).task.terms, uploads=5)
    assert (statement.guarantee, statement.status) == ("none", "unproven")
    assert "up to 7 of 21 values" in statement.mechanism
    assert "not known to the server" in statement.mechanism
    assert statement.who_sees["server"].startswith("every upload of every participant")
    assert any("all 5 uploads" in line for line in statement.not_protected)
    assert PrivacyStatement.from_json(statement.to_json()) == statement
