"""One's own module as an estimator: what is proven is what was asked for, and a saved model answers alike."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from blindsight.crypto.wire import decode  # noqa: E402
from blindsight.data.dataset import Dataset  # noqa: E402
from blindsight.dp.ledger import Ledger  # noqa: E402
from blindsight.errors import BudgetExceededError, InputError  # noqa: E402
from blindsight.selective import NetworkModel, SelectiveClassifier  # noqa: E402
from blindsight.selective.codec import decode_sparse  # noqa: E402
from blindsight.selective.estimator import LOCAL_STEPS, SwampedWarning  # noqa: E402
from blindsight.selective.networks import module_from  # noqa: E402
from blindsight.selective.terms import Request, Upload  # noqa: E402
from blindsight.selective.trainers import NetworkTrainer  # noqa: E402
from tests.selective.nets import seeded_module  # noqa: E402

X, y = load_digits(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(X))
X, y = (X[ORDER] / 16).astype(np.float32), y[ORDER]
PUBLIC, TEST = (X[:100], y[:100]), (X[100:400], y[100:400])
PARTS = {name: (X[a : a + 320], y[a : a + 320]) for name, a in (("ann", 400), ("bob", 720), ("cem", 1040))}
RECORD = {"epsilon": 8.0, "delta": 1e-5, "unit": "record"}
PARTICIPANT = {"epsilon": 8.0, "delta": 1e-5, "unit": "participant"}

pytestmark = pytest.mark.usefixtures("one_thread")


def net():
    return seeded_module(lambda: nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)))


def fitted(data=None, **options):
    learner = SelectiveClassifier(net(), **({"epsilon": None} | options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SwampedWarning)
        return learner.fit(data or PARTS, public=PUBLIC, test=TEST)


@pytest.fixture(scope="module")
def plain():
    return fitted(passes=2)


def test_without_noise_sharing_a_tenth_learns_and_nothing_is_proven(plain):
    assert plain.score_ > plain.public_score_ + 0.4
    assert plain.score(*TEST) == pytest.approx(plain.score_)
    assert plain.statement_.guarantee == "none"
    assert plain.uploads_ == 2 * 3 * 10
    assert plain.plan_.local_steps == LOCAL_STEPS


def test_the_callers_module_is_left_alone_and_the_contract_of_estimators_holds(plain):
    before = {name: value.clone() for name, value in net().state_dict().items()}
    assert all(torch.equal(plain.module.state_dict()[name], value) for name, value in before.items())
    again = clone(plain)
    assert again.get_params()["passes"] == 2
    assert not hasattr(again, "model_")
    assert repr(again).startswith("SelectiveClassifier(")
    assert again.set_params(share=0.5).share == 0.5


@pytest.mark.parametrize("options", [RECORD, PARTICIPANT, PARTICIPANT | {"scheme": "masks"}], ids=str)
def test_epsilon_is_said_once_and_is_what_is_proven(options):
    learner = fitted(**options)
    told = learner.statement_
    assert told.unit == ("record" if options["unit"] == "record" else "person")
    assert 0.99 * 8 < told.epsilon <= 8
    assert told.delta == 1e-5
    assert learner.uploads_ > 0


def test_rate_and_batch_follow_from_epsilon():
    """B = s sqrt(d) where there are pictures enough; the rate is divided by sqrt(1 + d s^2 / B^2)."""
    dimension = sum(parameter.numel() for parameter in net().parameters())
    for epsilon in (2.0, 200.0):
        plan = fitted(**RECORD | {"epsilon": epsilon}, local_steps=1).plan_
        best = plan.noise_multiplier * np.sqrt(dimension)
        assert plan.batch_size == pytest.approx(np.clip(best, 32, 320 // 4), abs=1)
        assert plan.noise_ratio == pytest.approx(best / plan.batch_size)
        assert plan.learning_rate == pytest.approx(0.05 / np.sqrt(1 + plan.noise_ratio**2))


def test_noise_that_swamps_the_steps_is_warned_of_with_what_to_choose():
    swamped = SelectiveClassifier(net(), **RECORD | {"epsilon": 0.1}, clip=1.0, local_steps=1)
    with pytest.warns(SwampedWarning, match=r"epsilon=0\.1"):
        swamped.fit(PARTS)
    bold = SelectiveClassifier(
        net(), **RECORD | {"epsilon": 2.0}, clip=1.0, batch_size=32, learning_rate=0.5, local_steps=2
    )
    with pytest.warns(SwampedWarning, match=r"learning_rate of 0\.5"):
        bold.fit(PARTS)


def test_a_saved_model_answers_alike_and_another_module_is_refused(plain, tmp_path):
    plain.model_.save(tmp_path / "network.npz")
    read = NetworkModel.load(tmp_path / "network.npz", seeded_module(net, seed=9))
    assert (read.predict(TEST[0]) == plain.predict(TEST[0])).all()
    assert read.statement == plain.statement_
    with pytest.raises(InputError, match="another module"):
        NetworkModel.load(tmp_path / "network.npz", nn.Linear(64, 10))
    with pytest.raises(InputError, match="Give the module"):
        NetworkModel.load(tmp_path / "network.npz")


def test_what_the_server_received_is_recorded_and_changes_nothing(plain):
    messages = []
    again = SelectiveClassifier(net(), epsilon=None, passes=2).fit(PARTS, public=PUBLIC, record=messages.append)
    received = [decode(message, Upload, Request) for message in messages]
    assert sum(isinstance(message, Upload) for message in received) == again.uploads_ == plain.uploads_
    same = again.predict(TEST[0]) == plain.predict(TEST[0])  # up to rounding, which may change what is sent
    assert np.mean(same) >= 0.98
    total = again.initial_.astype(np.float64)
    for message in received:
        if isinstance(message, Upload):
            total += decode_sparse(message.body, total.size, max_values=total.size).dense()
    learned = torch.cat([value.flatten() for value in again.model_.module.parameters()]).detach().numpy()
    np.testing.assert_allclose(total, learned, atol=1e-4)


def test_a_ledger_is_charged_before_and_refuses_what_is_beyond_it():
    for options, unit in ((RECORD, "record"), (PARTICIPANT, "person")):
        ledger = Ledger()
        ledger.set_budget("digits", epsilon=8.0, delta=1e-5, unit=unit, neighbours="add/remove")
        learner = SelectiveClassifier(net(), **options, clip=1.0, batch_size=80)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SwampedWarning)
            learner.fit(PARTS, ledger=ledger, scope="digits")
            with pytest.raises(BudgetExceededError):
                clone(learner).fit(PARTS, ledger=ledger, scope="digits")


def test_datasets_are_matched_by_the_names_of_their_classes():
    def dataset(rows, names):
        numbered = np.array([names.index(str(digit)) for digit in y[rows]])
        return Dataset("d", "none", "here", features=X[rows], labels=numbered, label_names=tuple(names))

    names = [str(digit) for digit in range(10)]
    owners = [dataset(np.arange(a, a + 320), names[::-1]) for a in (400, 720)]
    learner = SelectiveClassifier(net(), epsilon=None, passes=2)
    learner.fit(owners, public=dataset(np.arange(100), names), test=dataset(np.arange(100, 400), names))
    assert learner.classes_.tolist() == names
    assert learner.score_ > 0.6


def test_one_participant_alone_is_fitted_like_any_estimator():
    assert SelectiveClassifier(net(), epsilon=None, passes=3).fit(X[400:900], y[400:900]).score(*TEST) > 0.6


def changed(**parts):
    """Return what the participants bring, with that of some of them replaced."""
    return PARTS | parts


@pytest.mark.parametrize(
    ("options", "call", "words"),
    [
        ({"epsilon": 1.0}, {}, "belong together"),
        (RECORD | {"epsilon": None}, {}, "belong together"),
        (RECORD | {"delta": None}, {}, "belong together"),
        (RECORD | {"epsilon": -1.0}, {}, "epsilon"),
        (RECORD | {"delta": 2.0}, {}, "delta"),
        (RECORD | {"passes": 2}, {}, "local_steps"),
        (RECORD, {}, "clip"),
        (RECORD | {"clip": 0.0}, {}, "clip"),
        (RECORD | {"clip": 1.0, "batch_size": 321}, {}, "321"),
        (RECORD | {"unit": "person"}, {}, "'person'"),
        ({"batch_size": 0}, {}, "batch_size"),
        ({"batch_size": 2.5}, {}, "batch_size"),
        ({"local_steps": 0}, {}, "local_steps"),
        ({"decay": -1.0}, {}, "decay"),
        ({"learning_rate": 0.0}, {}, "learning_rate"),
        ({"optimiser": "newton"}, {}, "'newton'"),
        ({"share": 0.0}, {}, "share"),
        ({"share": 2.0}, {}, "share"),
        ({"select": "threshold"}, {}, "threshold"),
        ({"scheme": "rot13"}, {}, "'rot13'"),
        ({"scheme": "masks"}, {"participants": [PARTS["ann"], PARTS["bob"]]}, "3 participants"),
        ({"classes": range(10, 20)}, {}, "not known"),
        ({"classes": [0, 1, 2]}, {}, "10 scores.*3 classes"),
        ({"classes": [0]}, {}, "two classes"),
        ({}, {"public": (X[:5], np.zeros(5, int))}, "two classes"),
        ({}, {"participants": changed(bob=(np.full((8, 64), np.nan, np.float32), y[:8]))}, "bob: .*NaN"),
        ({}, {"participants": changed(bob=(X[:8, :60], y[:8]))}, "bob: .*60"),
        ({}, {"participants": changed(bob=(X[:8], y[:7]))}, "bob: .*class for each of 8"),
        ({}, {"participants": changed(bob=(X[:0], y[:0]))}, "bob: "),
        ({}, {"participants": [X[:5]]}, "participant"),
        ({}, {"participants": {}}, "participant"),
        ({}, {"participants": 3}, "participant"),
        ({}, {"ledger": Ledger(), "scope": "digits"}, "ledger"),
        (RECORD | {"clip": 1.0}, {"ledger": Ledger()}, "scope"),
    ],
)
def test_bad_input_gets_a_sentence_before_work_begins(options, call, words, monkeypatch):
    monkeypatch.setattr(NetworkTrainer, "train", lambda *_: pytest.fail("something was trained"))
    monkeypatch.setattr(Ledger, "spend", lambda *_, **__: pytest.fail("something was paid for"))
    learner = SelectiveClassifier(net(), **({"epsilon": None} | options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SwampedWarning)
        with pytest.raises(InputError, match=words):
            learner.fit(**{"participants": PARTS} | call)


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
