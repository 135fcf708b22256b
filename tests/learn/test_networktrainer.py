"""A network's training is a plain torch loop, to the bit; it changes nothing that it should not."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from blindsight.errors import InputError  # noqa: E402
from blindsight.learn.modules import FlatParameters, head, small_cnn  # noqa: E402
from blindsight.learn.training import NetworkTrainer  # noqa: E402
from tests.learn.nets import Tied, as_tensor, plain_loop, seeded_module  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.usefixtures("one_thread")
PLAIN = {"sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop, "adam": torch.optim.Adam}


def stripes(rows, seed=0, side=8):
    """Byte photos with an upright, a lying or no stripe at a random place."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, rows)
    photos = rng.integers(0, 120, size=(rows, side, side, 3), dtype=np.uint8)
    for photo, kind in zip(photos, classes, strict=True):
        place = rng.integers(0, side)
        if kind < 2:
            photo[(place, slice(None)) if kind else (slice(None), place)] = 220
    return photos, classes


def convolutions():
    return seeded_module(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(4 * 36, 3)),
        )
    )


class Spying(nn.Module):
    """Remembers what it was trained on."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.seen = []

    def __deepcopy__(self, memo):
        return self  # so that the copy's memory can be looked into

    def forward(self, batch):
        if self.training:
            self.seen.append(batch)
        return self.inner(batch)


@pytest.mark.parametrize("name", PLAIN)
def test_calls_with_one_batch_each_are_a_plain_loop_bit_for_bit(name):
    photos, classes = stripes(96, side=16)
    module, rate = small_cnn(3, 16), 0.01
    trainer = NetworkTrainer(module, optimiser=name, learning_rate=rate)
    vector = trainer.initial()
    for start in range(0, 96, 32):  # the optimiser's memory must last over the calls
        vector = trainer.train(vector, photos[start : start + 32], classes[start : start + 32], start)
    plain_loop(
        module,
        PLAIN[name](module.parameters(), lr=rate),
        [(as_tensor(photos[s : s + 32]), classes[s : s + 32]) for s in range(0, 96, 32)],
    )
    np.testing.assert_array_equal(vector, FlatParameters(module).read())


@pytest.mark.parametrize("name", PLAIN)
def test_several_epochs_of_shuffled_batches_are_a_plain_loop_bit_for_bit(name):
    photos, classes = stripes(50)
    photos[:, 0, 0, 0] = np.arange(50)  # which photo it is
    module = Spying(small_cnn(3, 8))
    initial = FlatParameters(module).read()
    trained = NetworkTrainer(module, optimiser=name, learning_rate=0.02, epochs=3, batch=16).train(
        initial, photos, classes, 5
    )
    batches, module.seen = module.seen, []
    orders = [(batch[:, 0, 0, 0] * 255).round().int().numpy() for batch in batches]
    assert [len(order) for order in orders] == [13, 13, 12, 12] * 3
    epochs = [np.concatenate(orders[start : start + 4]) for start in (0, 4, 8)]
    assert all((np.sort(epoch) == np.arange(50)).all() for epoch in epochs)
    assert not (epochs[0] == epochs[1]).all()
    FlatParameters(module).write(initial)
    plain_loop(
        module,
        PLAIN[name](module.parameters(), lr=0.02),
        [(as_tensor(photos[order]), classes[order]) for order in orders],
    )
    np.testing.assert_array_equal(trained, FlatParameters(module).read())


def test_the_optimiser_remembers_between_calls_and_trainers_share_nothing():
    photos, classes = stripes(16)
    module = small_cnn(3, 8)
    one, two = (NetworkTrainer(module, optimiser="adam") for _ in range(2))
    vector = one.initial()
    first = one.train(vector, photos, classes, 0)
    assert (one.train(vector, photos, classes, 0) != first).any()
    np.testing.assert_array_equal(two.train(vector, photos, classes, 0), first)


def test_the_same_seed_gives_the_same_bits_and_leaves_the_global_generators_and_the_module_alone():
    photos, classes = stripes(40)
    module = convolutions()  # its dropout is random
    before = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(11)
    states = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002 - it must not move
    results = [NetworkTrainer(module).train(FlatParameters(module).read(), photos, classes, seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).any()
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


class Counting(nn.Module):
    """Counts its batches in a buffer."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 3)
        self.register_buffer("batches", torch.tensor(0.0))

    def forward(self, batch):
        if self.training:
            self.batches += 1
        return self.inner(batch) + self.batches * torch.eye(3)[0]


def test_buffers_stay_as_the_initial_model_has_them():
    photos, classes = stripes(60)
    module = convolutions()
    module[1].running_mean += 0.3  # public statistics of some initial training
    module[1].running_var *= 2
    trainer = NetworkTrainer(module, learning_rate=0.1, batch=20)
    trained = trainer.train(trainer.initial(), photos, classes, 0)
    kept = dict(module.named_buffers())
    assert all(torch.equal(value, kept[name]) for name, value in trainer._module.named_buffers())
    affine = slice(3 * 4 * 9 + 4, 3 * 4 * 9 + 12)  # weight and bias of the BatchNorm behind the convolution's
    assert (trained[affine] != trainer.initial()[affine]).any()
    # What it learned belongs to the initial statistics: one's own module with these parameters gives the same scores.
    FlatParameters(module).write(trained)
    with torch.no_grad():
        expected = module.eval()(as_tensor(photos)).numpy()
    np.testing.assert_allclose(trainer.scores(trained, photos), expected, atol=1e-5)


def test_what_training_writes_into_other_buffers_is_put_back():
    X = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    module = seeded_module(Counting)
    trainer = NetworkTrainer(module, batch=5)
    trainer.train(trainer.initial(), X, np.arange(20) % 3, 0)
    with torch.no_grad():
        expected = module.eval()(torch.tensor(X)).numpy()
    np.testing.assert_allclose(trainer.scores(trainer.initial(), X), expected, atol=1e-5)


def test_tied_weights_move_together_and_frozen_or_unused_ones_do_not_move():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 5)).astype(np.float32), rng.integers(0, 3, 30)
    module = seeded_module(Tied)
    trainer = NetworkTrainer(module, learning_rate=0.5)
    trained = trainer.train(trainer.initial(), X, y, 0)
    frozen = module.frozen.weight.detach().clone()
    plain_loop(module, torch.optim.SGD(module.parameters(), lr=0.5), [(torch.tensor(X), y)])
    np.testing.assert_array_equal(trained, FlatParameters(module).read())
    assert torch.equal(module.frozen.weight, frozen)
    assert trainer.layout.names[0] == "unused"
    np.testing.assert_array_equal(trained[:2], 1)


@pytest.mark.parametrize("name", PLAIN)
def test_it_learns_to_tell_photos_apart(name):
    photos, classes = stripes(240)
    fresh, truth = stripes(200, seed=1)
    trainer = NetworkTrainer(small_cnn(3, 8), optimiser=name, epochs=6)
    before = (trainer.scores(trainer.initial(), fresh).argmax(axis=1) == truth).mean()
    trained = trainer.train(trainer.initial(), photos, classes, 0)
    after = (trainer.scores(trained, fresh).argmax(axis=1) == truth).mean()
    assert before < 0.6
    assert after > 0.9


def test_scores_do_not_depend_on_the_other_photos_or_on_what_was_before():
    photos, classes = stripes(300)
    trainer = NetworkTrainer(convolutions())
    scores = trainer.scores(trainer.initial(), photos)
    assert scores.shape == (300, 3)
    trainer.train(trainer.initial(), photos[:32], classes[:32], 0)
    np.testing.assert_array_equal(trainer.scores(trainer.initial(), photos), scores)
    np.testing.assert_allclose(trainer.scores(trainer.initial(), photos[7:8]), scores[7:8], atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": np.zeros((0, 8, 8, 3), np.uint8), "labels": np.zeros(0, int)}, "shape"),
        ({"inputs": np.zeros((4, 9, 9, 3), np.uint8)}, r"\(9, 9, 3\)"),
        ({"inputs": np.full((4, 8, 8, 3), np.nan)}, "NaN"),
        ({"inputs": np.array(["a", "b", "c", "d"])}, "numbers"),
        ({"parameters": np.zeros(7, np.float32)}, "same version"),
    ],
)
def test_wrong_data_is_refused_and_loses_nothing(change, words):
    photos, classes = stripes(4)
    one, two = (NetworkTrainer(convolutions(), optimiser="adam") for _ in range(2))
    right = {"parameters": one.initial(), "inputs": photos, "labels": classes, "seed": 0}
    for trainer in (one, two):
        trainer.train(**right)
    with pytest.raises(InputError, match=words):
        one.train(**right | change)
    np.testing.assert_array_equal(one.train(**right), two.train(**right))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (lambda: nn.Linear(4, 3), r"\(1, 3, 8, 8\)"),
        (lambda: nn.Conv2d(3, 4, 3), r"\(1, 4, 6, 6\)"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 1)), r"\(1, 1\)"),
        (lambda: nn.LSTM(8, 4), "cannot take|scores"),
    ],
)
def test_a_network_that_does_not_fit_the_photos_is_refused(module, words):
    trainer = NetworkTrainer(seeded_module(module))
    for call in (
        lambda: trainer.scores(trainer.initial(), stripes(4)[0]),
        lambda: trainer.train(trainer.initial(), *stripes(4), 0),
    ):
        with pytest.raises(InputError, match=words):
            call()


class Steep(nn.Module):
    """Has gradients beyond float32 where its inputs are huge, though its outputs are 0 for zero weights."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 3, bias=False)

    def forward(self, batch):
        return self.linear(batch) * 10


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(("weights", "inputs"), [(3e38, 1.0), (0.0, 3e38)])  # an infinite loss, infinite gradients
def test_training_that_diverges_says_so_and_does_not_spoil_the_next(name, weights, inputs):
    X, y = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32), np.arange(20) % 3
    trainer, fresh = (NetworkTrainer(seeded_module(Steep), optimiser=name, learning_rate=0.01) for _ in range(2))
    with pytest.raises(InputError, match=r"diverged.*0\.01"):
        trainer.train(np.full(15, weights, np.float32), np.full_like(X, inputs), np.zeros(20, int), 0)
    start = fresh.initial()
    np.testing.assert_array_equal(trainer.train(start, X, y, 0), fresh.train(start, X, y, 0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimiser": "lion"}, "adam, rmsprop, sgd"),
        ({"device": "tpu"}, "'tpu'"),
        ({"device": "cuda:99"}, "'cuda:99'"),
    ],
)
def test_training_that_cannot_be_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        NetworkTrainer(head(3, 2), **options)


@pytest.mark.parametrize("optimiser", PLAIN)
def test_a_reset_trainer_trains_as_a_new_one(optimiser):
    """What an optimiser remembers, and how far the rate has decayed, is of one member; another begins anew."""
    photos, labels = stripes(12)

    def trained(trainer):
        return trainer.train(trainer.initial(), photos, labels, 1).tobytes()

    used = NetworkTrainer(convolutions(), optimiser=optimiser, decay=0.5, batch=4)
    first, second = trained(used), trained(used)
    used.reset()
    assert first != second
    assert trained(used) == first
