"""A network of several members: what a round does, what is proven, what is refused, and that it learns."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from blindsight.audit.onerun import one_run_bound, surest_guesses  # noqa: E402
from blindsight.data.dataset import Dataset  # noqa: E402
from blindsight.dp.accounting import gaussian_epsilon  # noqa: E402
from blindsight.dp.ledger import Ledger  # noqa: E402
from blindsight.errors import BudgetExceededError, InputError, PrivacyError, UnknownNameError  # noqa: E402
from blindsight.learn.accounting import SwampedWarning, usual_rounds  # noqa: E402
from blindsight.learn.modules import FlatParameters, module_from  # noqa: E402
from blindsight.learn.network import FederatedNetwork, NetworkLearner, NetworkModel  # noqa: E402
from blindsight.learn.training import Batch, NetworkTrainer  # noqa: E402
from blindsight.papers.selective.days import Photos, Setting  # noqa: E402
from blindsight.papers.selective.methods import SelectiveMethod  # noqa: E402
from blindsight.papers.selective.noise import Sharing  # noqa: E402
from blindsight.rng import seeded_bytes  # noqa: E402
from blindsight.rounds import Memory, Privacy, RoundSum, Sums  # noqa: E402
from blindsight.rounds.member import member_seed  # noqa: E402
from blindsight.sums import noise as noise_module  # noqa: E402
from blindsight.sums.dphe import DpheOptions  # noqa: E402
from tests.learn.nets import seeded_module  # noqa: E402

X, y = load_digits(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(X))
X, y = (X[ORDER] / 16).astype(np.float32), y[ORDER]
PUBLIC, TEST = (X[:100], y[:100]), (X[100:400], y[100:400])
RECORD = Privacy(epsilon=8.0, delta=1e-5, unit="record")
MEMBER = Privacy(epsilon=8.0, delta=1e-5, unit="member", clip=1.0)

pytestmark = pytest.mark.usefixtures("one_thread")


def net(hidden=16):
    return seeded_module(lambda: nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10)))


def parts(members, rows=960):
    """Return what the members have, rows 400 to 400 + rows in equal parts."""
    size = rows // members
    return {f"m{k}": (X[400 + k * size :][:size], y[400 + k * size :][:size]) for k in range(members)}


PARTS = parts(3)


def fitted(data=None, *, hidden=16, fit=None, **options):
    learner = FederatedNetwork(net(hidden), **({"privacy": None, "sums": "plain"} | options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SwampedWarning)
        return learner.fit(PARTS if data is None else data, **{"public": PUBLIC} | (fit or {}))


def parameters(learner):
    return FlatParameters(learner.model_.module).read()


@pytest.fixture(scope="module")
def plain():
    return fitted(fit={"validation": TEST, "record": True}, rounds=6)


# --- that it learns ---


def sequential(members, share):
    """Return the accuracy of PPDL's parameter server, which adds uploads up one after the other, in 25 passes."""
    photos = {name: Photos(*data) for name, data in parts(members).items()}
    make = lambda record_noise: NetworkTrainer(net(), epochs=5, decay=0.01)  # noqa: E731
    trainer = NetworkTrainer(net())
    initial = trainer.initial()
    for seed in range(10):
        initial = trainer.train(initial, *PUBLIC, seed)
    run = SelectiveMethod("all", Sharing(share, residual=True)).begin(
        Setting(tuple(photos), initial, make, min(32, 960 // members), 1e-5, 0)
    )
    for _ in range(5):
        run.day(photos)
    return float((trainer.scores(run.parameters, TEST[0]).argmax(axis=1) == TEST[1]).mean())


@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("members", [3, 10, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 30))])
def test_however_many_members_there_are_it_learns_as_well_as_one_after_the_other(members, share):
    """Changes that are made side by side are averaged: their sum would grow with the number of members."""
    learned = fitted(parts(members), sums=Sums(scheme="plain", share=share))
    assert len(learned.history_) == usual_rounds(share)
    assert learned.score(*TEST) >= sequential(members, share) - 0.02


@pytest.mark.parametrize("members", [3, 10])
def test_with_a_proof_it_is_better_than_the_public_model(members):
    learned = fitted(parts(members), privacy=RECORD, public_epochs=3, fit={"validation": TEST})
    assert learned.history_[-1].score > learned.public_score_ + 0.1


# --- a round ---


def tiny(**options):
    """Return the learner of a run of three members, and their data."""
    made = FederatedNetwork(net(4), **({"privacy": None, "rounds": 2} | options))
    loaders = {name: (lambda pair=pair: pair) for name, pair in PARTS.items()}
    task, _, readers, held_out, _ = made.prepare(loaders, PUBLIC, TEST, source=seeded_bytes(1))
    return NetworkLearner(task, held_out), {name: read() for name, read in readers.items()}


def test_a_round_moves_the_model_by_the_mean_change_with_momentum():
    learned = fitted(hidden=4, rounds=2, server_momentum=0.5, fit={"record": True})
    weights, velocity = learned.initial_.astype(np.float64), 0.0
    trainer, seed = NetworkTrainer(net(4), learning_rate=0.1, batch=20), int(np.random.default_rng(0).integers(2**63))
    held = np.zeros((3, weights.size))
    for number in (1, 2):
        changes = []
        for place, data in enumerate(PARTS.values()):
            start = (weights + held[place]).astype(np.float32)
            after = trainer.train(start, *data, member_seed(seed, number, place))
            changes.append(held[place] + (after.astype(np.float64) - start))
            held[place] = changes[-1] - np.rint(changes[-1] * 2**24) / 2**24  # what the fixed point left
        velocity = 0.5 * velocity + np.mean(changes, axis=0)
        weights = weights + velocity
    np.testing.assert_allclose(parameters(learned), weights, atol=1e-6)
    assert np.abs(parameters(learned) - learned.initial_).max() > 0.01


def test_what_has_no_turn_is_kept_and_trained_on_until_it_is_sent():
    learner, data = tiny(sums=Sums(scheme="plain", share=0.25))
    shared, held = learner.first(0), np.zeros(learner.size)
    held[::3] = 0.05
    update = learner.update(data["m0"], shared, Memory(held), 3)
    moved = shared.copy()
    moved[0] += held
    same = learner.update(data["m0"], moved, Memory(), 3)
    np.testing.assert_allclose(update.sent, held + same.sent, atol=1e-6)
    assert not update.memory.held.any()  # all of it is in what is sent: the rounds carry over what had no turn


def test_a_number_that_was_not_opened_does_not_move():
    learner, _ = tiny()
    shared = np.stack([learner.first(0)[0], np.full(learner.size, 0.5)])
    total = np.zeros(learner.size, dtype=np.int64)
    total[3] = 2**24
    values = total / 2**24
    moved = learner.combine(shared, RoundSum(round=1, contributors=("a", "b"), total=total, values=values))
    assert moved[0, 3] == shared[0, 3] + 0.9 * 0.5 + 0.5
    np.testing.assert_array_equal(np.delete(moved[0], 3), np.delete(shared[0], 3))
    np.testing.assert_allclose(np.delete(moved[1], 3), 0.45)


EXACT = DpheOptions(sparsity=0.0, minimum_per_position=1, key_bits=1024, insecure=True)
SCHEMES = {"masks": None, "bfv": None, "dphe": EXACT, "block-dphe": EXACT}


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_every_scheme_gives_the_same_model_bit_for_bit(share):
    few = {name: (pictures[:20], labels[:20]) for name, (pictures, labels) in PARTS.items()}
    found = {}
    for scheme, options in ({"plain": None} | SCHEMES).items():
        if scheme == "bfv":
            pytest.importorskip("tenseal")
        sums = Sums(scheme=scheme, share=share, options=options)
        learned = fitted(few, hidden=2, sums=sums, rounds=3)
        found[scheme] = parameters(learned).tobytes()
    assert len(set(found.values())) == 1


def test_a_run_that_was_interrupted_ends_like_one_that_was_not(tmp_path):
    options = {"hidden": 4, "sums": Sums(scheme="plain", share=0.3)}
    whole = fitted(rounds=4, **options)
    fitted(rounds=2, fit={"checkpoint": tmp_path}, **options)
    resumed = fitted(rounds=4, fit={"checkpoint": tmp_path}, **options)
    assert parameters(resumed).tobytes() == parameters(whole).tobytes()
    assert [report.round for report in resumed.history_] == [1, 2, 3, 4]
    with pytest.raises(InputError, match="another run"):
        fitted(parts(4), rounds=4, fit={"checkpoint": tmp_path}, **options)


def test_what_the_server_sees_is_recorded_and_is_all_there_is_to_the_model(plain):
    weights, velocity = plain.initial_.astype(np.float64), 0.0
    for model, mean in zip(plain.seen_.models, plain.seen_.means, strict=True):
        np.testing.assert_array_equal(model, weights)
        velocity = 0.9 * velocity + mean
        weights = np.where(mean != 0, weights + velocity, weights)
    np.testing.assert_allclose(parameters(plain), weights, atol=1e-7)
    assert len(plain.seen_.means) == len(plain.history_) == 6
    assert fitted(rounds=1).seen_ is None


def test_scores_are_those_of_the_model_after_each_round(plain):
    assert [report.round for report in plain.history_] == [1, 2, 3, 4, 5, 6]
    recalls = [float((plain.predict(TEST[0][TEST[1] == digit]) == digit).mean()) for digit in range(10)]
    assert plain.history_[-1].score == pytest.approx(np.mean(recalls))
    assert plain.public_score_ < plain.history_[-1].score


# --- what is proven ---


def test_without_privacy_the_statement_proves_nothing_of_the_pictures():
    for scheme in ("plain", "masks"):
        told = fitted(hidden=2, sums=scheme, rounds=1).statement_
        assert told.epsilon is None
        assert any("no noise" in line for line in told.not_protected)


@pytest.mark.parametrize("privacy", [RECORD, MEMBER], ids=["record", "member"])
@pytest.mark.parametrize("scheme", ["plain", "masks"])
def test_epsilon_is_named_once_and_is_what_is_proven(privacy, scheme):
    learned = fitted(hidden=2, privacy=privacy, sums=scheme, rounds=3)
    told = learned.statement_
    assert told.unit == ("record" if privacy.unit == "record" else "person")
    assert (told.guarantee, told.delta) == ("differential privacy", 1e-5)
    assert 0.99 * 8 < told.epsilon <= 8
    assert (learned.noise_.rounds, learned.noise_.unit) == (3, privacy.unit)


ODD = {
    "not finite": lambda pictures, labels: (np.where(np.arange(len(labels)) == 3, np.nan, pictures.T).T, labels),
    "huge": lambda pictures, labels: (np.where(np.arange(len(labels)) == 3, 3e38, pictures.T).T, labels),
    "an unknown class": lambda pictures, labels: (pictures, np.where(np.arange(len(labels)) == 3, 77, labels)),
    "text": lambda pictures, labels: (pictures, [*labels[:3].tolist(), "?", *labels[4:].tolist()]),
    "a list": lambda pictures, labels: (pictures, [*labels[:3].tolist(), [1, 2], *labels[4:].tolist()]),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("privacy", [replace(RECORD, clip=0.5), MEMBER], ids=["record", "member"])
def test_an_odd_record_counts_as_zero_and_never_as_an_error(privacy, odd):
    made = FederatedNetwork(net(4), privacy=privacy, rounds=2)
    pair = ODD[odd](*PARTS["m0"])
    loaders = {"m0": lambda: pair} | {name: (lambda data=data: data) for name, data in PARTS.items() if name != "m0"}
    task, _, readers, _, _ = made.prepare(loaders, PUBLIC, None, source=seeded_bytes(1))
    learner, batch = NetworkLearner(task, None), readers["m0"]()
    assert np.isfinite(learner.update(batch, learner.first(0), Memory(), 1).sent).all()
    if privacy.unit == "record":
        without = Batch(np.delete(batch.inputs, 3, axis=0), np.delete(batch.labels, 3))
        with_it, out = (sum(learner.clipped_sums(learner.first(0), one)) for one in (batch, without))
        limit = 0.5 if odd == "huge" else 1e-9
        assert np.linalg.norm(with_it - out) <= limit


def test_one_record_moves_the_sum_by_no_more_than_the_clip():
    learner, data = tiny(privacy=replace(RECORD, clip=0.01))
    shared = learner.first(0)
    whole = sum(learner.clipped_sums(shared, data["m0"]))
    for row in (0, 7):
        rest = Batch(np.delete(data["m0"].inputs, row, axis=0), np.delete(data["m0"].labels, row))
        apart = np.linalg.norm(whole - sum(learner.clipped_sums(shared, rest)))
        assert 0.0099 < apart <= 0.01


def test_the_change_of_a_member_is_cut_and_one_that_diverges_is_zero(monkeypatch):
    learner, data = tiny(privacy=replace(MEMBER, clip=0.01))
    sent = []
    monkeypatch.setattr(type(learner.noise), "contribution", lambda plan, parts, source: sent.append(parts) or parts[0])
    learner.update(data["m0"], learner.first(0), Memory(), 1)
    assert 0.0099 < np.linalg.norm(sent[0]) <= 0.01
    broken = Batch(np.full_like(data["m0"].inputs, 3e38), data["m0"].labels)
    learner.update(broken, learner.first(0), Memory(), 1)
    assert not sent[1].any()


CANARIES = 1000


def canaries(epsilon, seed, share):
    """Return the bound on epsilon by records that each have an input of their own, in or out by a coin.

    With shares of noise less than they should be (`share` below 1) the bound must be above what is stated.
    """
    rng = np.random.default_rng(seed)
    coins = rng.random(CANARIES) < 0.5
    inputs, labels = np.eye(CANARIES, dtype=np.float32), np.where(coins, 0, 9)  # 9 is no class: counts as zero
    members = {name: (inputs[k::3], labels[k::3].tolist()) for k, name in enumerate("abc")}
    module = seeded_module(lambda: nn.Linear(CANARIES, 2))
    privacy = Privacy(epsilon=epsilon, delta=1e-12, unit="record", clip=0.1, drop_outs=0, colluders=0)
    learner = FederatedNetwork(module, privacy=privacy, sums="plain", rounds=4, classes=[0, 1], random_state=seed)
    with pytest.MonkeyPatch.context() as patch:
        drawn = noise_module.discrete_gaussian
        patch.setattr(noise_module, "discrete_gaussian", lambda *given: np.rint(share * drawn(*given)).astype(np.int64))
        warnings.simplefilter("ignore", SwampedWarning)
        learner.fit(members, record=True, source=seeded_bytes(seed))
    total = np.sum(learner.seen_.means, axis=0)[: 2 * CANARIES].reshape(2, CANARIES)
    scores = total[0] - total[1]  # the first class becomes likelier for inputs of canaries that are in
    guesses = surest_guesses(scores - np.median(scores), 200)
    return one_run_bound(coins, guesses, delta=1e-12, confidence=1 - 1e-6)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_canaries_do_not_refute_the_epsilon_that_is_stated(epsilon):
    """False alarms: 1e-6."""
    assert canaries(epsilon, 1, 1.0).lower <= epsilon


def test_canaries_refute_it_where_members_add_too_little_noise():
    assert canaries(1.0, 1, 0.05).lower > 1.0


@pytest.mark.parametrize("privacy", [RECORD, MEMBER], ids=["record", "member"])
def test_a_ledger_is_charged_before_and_refuses_what_is_beyond_it(privacy):
    ledger, unit = Ledger(), "record" if privacy.unit == "record" else "person"
    ledger.set_budget("digits", epsilon=8.0, delta=1e-5, unit=unit, neighbours="add/remove")
    paid = {"ledger": ledger, "scope": "digits"}
    fitted(hidden=2, privacy=privacy, rounds=2, fit=paid)
    with pytest.raises(BudgetExceededError):
        fitted(hidden=2, privacy=privacy, rounds=2, fit=paid)


def test_noise_that_swamps_the_steps_is_warned_of():
    swamped = FederatedNetwork(net(), privacy=Privacy(epsilon=0.01, delta=1e-5, unit="record"), sums="plain", rounds=1)
    with pytest.warns(SwampedWarning, match=r"epsilon=0\.01"):
        swamped.fit(PARTS, public=PUBLIC)


def test_rate_follows_from_the_noise():
    dimension = sum(one.numel() for one in net().parameters())
    for epsilon in (0.5, 8.0):
        plan = fitted(privacy=replace(RECORD, epsilon=epsilon), rounds=2).plan_
        assert plan.noise_ratio == pytest.approx(plan.noise_multiplier * np.sqrt(dimension) / 960)
        assert plan.learning_rate == pytest.approx(0.2 / np.sqrt(1 + plan.noise_ratio**2))
        assert plan.batch_size is None


# --- one member ---


def test_one_member_alone_is_fitted_like_any_estimator():
    learned = FederatedNetwork(net(), privacy=None).fit(X[400:900], y[400:900])
    assert learned.score(*TEST) > 0.8
    assert (learned.statement_.guarantee, learned.noise_) == ("none", None)
    assert len(learned.history_) == 20


def test_one_member_alone_trains_with_a_proof():
    ledger, data = Ledger(), (X[400:1400], y[400:1400])
    learned = FederatedNetwork(net(), privacy=RECORD).fit(*data, public=PUBLIC, ledger=ledger, scope="mine")
    told = learned.statement_
    assert (told.unit, told.guarantee, told.status) == ("record", "differential privacy", "proven")
    assert told.epsilon == pytest.approx(8.0, rel=1e-6)
    assert told.epsilon == pytest.approx(gaussian_epsilon(learned.plan_.noise_multiplier / np.sqrt(20), 1e-5), rel=1e-6)
    assert ledger.spent("mine", "record", delta=1e-5).epsilon <= 8
    assert learned.score(*TEST) > 0.7
    void = FederatedNetwork(net(2), privacy=RECORD, rounds=1).fit(*data, public=PUBLIC, source=seeded_bytes(1))
    assert void.statement_.void


@pytest.mark.parametrize("members", [[PARTS["m0"]], [PARTS["m0"], PARTS["m1"]]], ids=["one in a list", "two"])
def test_two_are_refused(members):
    with pytest.raises(InputError, match=f"got {len(members)}"):
        fitted(members)


# --- pictures, classes, models ---


def test_the_callers_module_is_left_alone_and_the_contract_of_estimators_holds(plain):
    before = net().state_dict()
    assert all(torch.equal(plain.module.state_dict()[name], value) for name, value in before.items())
    again = clone(plain)
    assert again.get_params()["rounds"] == 6
    assert not hasattr(again, "model_")
    assert repr(again).startswith("FederatedNetwork(")
    private = FederatedNetwork(net(), privacy=RECORD).set_params(privacy__epsilon=2.0)
    assert private.privacy == replace(RECORD, epsilon=2.0)
    odds = plain.predict_proba(TEST[0])
    assert odds.shape == (300, 10)
    np.testing.assert_allclose(odds.sum(axis=1), 1)
    assert (plain.classes_[odds.argmax(axis=1)] == plain.predict(TEST[0])).all()


def test_a_saved_model_answers_alike_and_another_module_is_refused(plain, tmp_path):
    plain.save(tmp_path / "network.npz")
    read = NetworkModel.load(tmp_path / "network.npz", seeded_module(net, seed=9))
    assert (read.predict(TEST[0]) == plain.predict(TEST[0])).all()
    assert read.statement == plain.statement_
    with pytest.raises(InputError, match="another module"):
        NetworkModel.load(tmp_path / "network.npz", nn.Linear(64, 10))
    with pytest.raises(InputError, match="Give the module"):
        NetworkModel.load(tmp_path / "network.npz")


def test_datasets_are_matched_by_the_names_of_their_classes():
    def dataset(rows, names):
        numbered = np.array([names.index(str(digit)) for digit in y[rows]])
        return Dataset("d", "none", "here", features=X[rows], labels=numbered, label_names=tuple(names))

    names = [str(digit) for digit in range(10)]
    members = [dataset(np.arange(a, a + 300), names[::-1]) for a in (400, 700, 1000)]
    test = dataset(np.arange(100, 400), names)
    learned = fitted(members, fit={"public": dataset(np.arange(100), names), "validation": test})
    assert learned.classes_.tolist() == names
    assert learned.score(test) > 0.8
    swapped = fitted(members, classes=names[::-1], rounds=1, fit={"public": None})
    assert swapped.classes_.tolist() == names[::-1]


def test_pictures_of_several_sizes_are_brought_to_one():
    rng = np.random.default_rng(0)
    sides = (16, 20, 24)
    members = [(rng.integers(0, 256, (12, side, side, 3), dtype=np.uint8), np.arange(12) % 2) for side in sides]
    module = seeded_module(lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2)))
    learned = FederatedNetwork(module, privacy=None, sums="plain", size=8, rounds=1).fit(members)
    assert learned.predict(members[2][0]).shape == (12,)
    assert learned.model_.side == 8


def changed(**others):
    """Return what the members have, with that of some of them replaced."""
    return PARTS | others


@pytest.mark.parametrize(
    ("options", "call", "words"),
    [
        ({"privacy": 8.0}, {}, "privacy"),
        ({"privacy": RECORD}, {}, "clip"),
        ({"privacy": replace(RECORD, clip=1.0), "batch_size": 32}, {}, "batch_size"),
        ({"privacy": replace(RECORD, clip=1.0), "local_epochs": 2}, {}, "local_epochs"),
        ({"privacy": replace(RECORD, clip=1.0), "optimiser": "adam"}, {}, "optimiser"),
        ({"privacy": replace(RECORD, clip=1.0), "sums": Sums(scheme="plain", share=0.5)}, {}, "share"),
        ({"privacy": MEMBER, "sums": Sums(scheme="plain", share=0.5)}, {}, "share"),
        ({"privacy": MEMBER}, {"members": X[400:500], "y": y[400:500]}, "'member'"),
        ({"rounds": 0}, {}, "rounds"),
        ({"batch_size": 0}, {}, "batch_size"),
        ({"batch_size": 2.5}, {}, "batch_size"),
        ({"local_epochs": 0}, {}, "local_epochs"),
        ({"server_momentum": 1.0}, {}, "server_momentum"),
        ({"server_momentum": "all"}, {}, "server_momentum"),
        ({"learning_rate": 0.0}, {}, "learning_rate"),
        ({"optimiser": "newton"}, {}, "'newton'"),
        ({"sums": "rot13"}, {}, "'rot13'"),
        ({"classes": range(10, 20)}, {}, "unknown classes"),
        ({"classes": [0, 1, 2]}, {}, "unknown classes|10 scores"),
        ({"classes": [0]}, {}, "two or more"),
        ({}, {"public": (X[:5], np.zeros(5, int))}, "two or more"),
        ({}, {"members": changed(m1=(np.full((8, 64), np.nan, np.float32), y[:8]))}, "m1: .*NaN"),
        ({}, {"members": changed(m1=(X[:8, :60], y[:8]))}, "m1: .*60"),
        ({}, {"members": changed(m1=(X[:8], y[:7]))}, "m1: .*class for each of 8"),
        ({}, {"members": changed(m1=(X[:0], y[:0]))}, "m1: "),
        ({}, {"members": [X[:5]] * 3}, "pair"),
        ({}, {"members": {}}, "3 members"),
        ({}, {"members": 3}, "members"),
        ({}, {"ledger": Ledger(), "scope": "digits"}, "ledger"),
        ({"privacy": replace(RECORD, clip=1.0)}, {"ledger": Ledger()}, "scope"),
        ({}, {"record": True, "checkpoint": "here"}, "record"),
        ({}, {"members": X[400:500], "y": y[400:500], "checkpoint": "here"}, "checkpoint"),
    ],
)
def test_bad_input_is_refused_before_work_begins(options, call, words, monkeypatch):
    monkeypatch.setattr(NetworkTrainer, "train", lambda *_: pytest.fail("something was trained"))
    monkeypatch.setattr(Ledger, "spend", lambda *_, **__: pytest.fail("something was paid for"))
    learner = FederatedNetwork(net(), **({"privacy": None, "sums": "plain"} | options))
    with pytest.raises((InputError, UnknownNameError), match=words):
        learner.fit(**{"members": PARTS} | call)


def test_noise_and_checkpoints_do_not_go_together(tmp_path):
    with pytest.raises((InputError, PrivacyError), match="checkpoint"):
        fitted(hidden=2, privacy=RECORD, rounds=1, fit={"checkpoint": tmp_path})


def test_loaders_are_called_in_every_round():
    calls = []

    def load(name):
        calls.append(name)
        return PARTS[name]

    fitted({name: partial(load, name) for name in PARTS}, hidden=2, rounds=3)
    assert len(calls) == 3 * (3 + 1)  # once to check them


NETS = """from torch import nn

def Net(classes):
    return nn.Linear(4, classes)

def fixed():
    return nn.Linear(4, 2)

def two(classes, width):
    return nn.Linear(width, classes)

def number(classes):
    return 7
"""


def test_a_module_is_made_by_ones_own_file(tmp_path):
    (tmp_path / "net.py").write_text(NETS)
    assert module_from(f"{tmp_path}/net.py:Net", 7).out_features == 7
    first, same = (module_from(f"{tmp_path}/net.py:Net", 7, random_state=3) for _ in range(2))
    assert torch.equal(first.weight, same.weight)
    assert module_from(f"{tmp_path}/net.py:fixed", 7).out_features == 2


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (NETS, ":Nut", "'Nut'.*Net"),
        (NETS, "", "without a name"),
        (None, ":Net", "there is no file"),
        ("class Net(:\n", ":Net", "line 1"),
        ("import no_such_library", ":Net", "no_such_library"),
        (NETS, ":two", "width"),
        (NETS, ":number", r"torch\.nn\.Module; got int"),
    ],
)
def test_a_file_that_makes_no_module_gets_a_sentence(code, name, words, tmp_path):
    if code is not None:
        (tmp_path / "net.py").write_text(code)
    with pytest.raises(InputError, match=words):
        module_from(f"{tmp_path}/net.py{name}", 7)
