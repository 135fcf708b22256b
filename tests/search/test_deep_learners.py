"""The deep learners: what they learn, that it is repeatable, and that what they leave behind stands alone."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone

torch = pytest.importorskip("torch")

from blindsight.errors import CorruptFileError, InputError, MissingExtraError, UnknownNameError  # noqa: E402
from blindsight.metrics import query_average_precision  # noqa: E402
from blindsight.search.codes import hamming, pack, unpack  # noqa: E402
from blindsight.search.deep import ADSH, DPSH, DSH, HashNet, training  # noqa: E402
from blindsight.search.deep.perceptron import frozen, perceptron, standardiser  # noqa: E402
from blindsight.search.function import LinearHash  # noqa: E402
from blindsight.search.functionfile import load_function, load_network_hash, save_function  # noqa: E402
from blindsight.search.layers import LayeredHash  # noqa: E402
from blindsight.search.network import NetworkHash  # noqa: E402

LEARNERS = [DPSH, DSH, HashNet, ADSH]
every_learner = pytest.mark.parametrize("learner", LEARNERS)


def corners(rows, seed=0):
    """Four classes in eight dimensions that no plane separates: each is two opposite corners of a square, in noise."""
    rng = np.random.default_rng(seed)
    classes, sign = rng.integers(0, 4, rows), rng.choice([-1, 1], rows)
    X = rng.normal(0, 0.5, size=(rows, 8))
    X[np.arange(rows), classes] += 2 * sign
    return X.astype(np.float32), classes


def stripes(rows, seed=0):
    """Byte images of 8 x 8 pixels with an upright or a lying stripe at a random place."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, rows)
    images = rng.integers(0, 60, size=(rows, 8, 8, 3), dtype=np.uint8)
    for image, lying in zip(images, classes, strict=True):
        place = rng.integers(0, 8)
        image[(place, slice(None)) if lying else (slice(None), place)] = 220
    return images, classes


def convolutions(outputs=12):
    nn = torch.nn
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Linear(8, outputs),
        )


def mean_precision(function, X, y, queries, wanted):
    return query_average_precision(hamming(function(queries), function(X)), wanted[:, None] == y).mean()


@every_learner
def test_codes_tell_classes_apart_that_random_planes_do_not(learner):
    X, y = corners(600)
    queries, wanted = corners(80, seed=1)
    planes = LinearHash(X.mean(axis=0), np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32))
    assert mean_precision(planes, X, y, queries, wanted) < 0.45
    learned = learner(12, hidden=(64,), epochs=20, batch=64, learning_rate=5e-3).fit(X, y).function_
    assert isinstance(learned, LayeredHash)
    assert mean_precision(learned, X, y, queries, wanted) > 0.8


@every_learner
def test_the_same_seed_gives_the_same_codes_and_leaves_the_global_generators_alone(learner):
    X, y = corners(100)
    torch.manual_seed(11)
    states = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002 - it must not move
    digests = [learner(8, hidden=(16,), epochs=2, random_state=s).fit(X, y).function_.digest for s in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002


@pytest.mark.parametrize("hidden", [(), (16,), (16, 9)])
def test_a_frozen_perceptron_scores_as_its_network_does(hidden):
    X, _ = corners(200)
    X = np.c_[X, np.full(200, 3)].astype(np.float32)  # a constant feature
    mean, scale = standardiser(X)
    with torch.random.fork_rng(devices=[]):
        network = perceptron((9, *hidden, 10))
    function = frozen(network, mean, scale)
    with torch.inference_mode():
        scores = network(torch.tensor((X - mean) / scale)).numpy()
    np.testing.assert_allclose(function.scores(X), scores, atol=1e-5)
    clear = np.abs(scores) > 1e-5
    np.testing.assert_array_equal(unpack(function(X), 10)[clear], scores[clear] >= 0)


def test_a_saved_perceptron_hashes_without_torch(tmp_path):
    X, y = corners(100)
    learner = DSH(12, hidden=(16,), epochs=2).fit(X, y)
    save_function(learner.function_, tmp_path / "function")
    np.save(tmp_path / "X.npy", X)
    program = (
        "import numpy, pathlib, sys\n"
        "from blindsight.search.functionfile import load_function\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "codes = load_function(folder / 'function')(numpy.load(folder / 'X.npy'))\n"
        "numpy.save(folder / 'codes.npy', codes)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "codes.npy"), learner.transform(X))


def test_a_layered_function_is_what_its_arrays_say():
    weights = np.float32([[1, -1], [1, 1]]), np.float32([[1], [2]])
    biases = np.float32([0.5, 0]), np.float32([-1])
    mean, scale, x = np.float32([1, 1]), np.float32([2, 1]), np.float32([[3, 0], [1, 5]])
    standard = (x - mean) / scale
    for activation, function in [("relu", lambda v: np.maximum(v, 0)), ("tanh", np.tanh)]:
        found = LayeredHash(mean, scale, weights, biases, activation)
        expected = function(standard @ weights[0] + biases[0]) @ weights[1] + biases[1]
        np.testing.assert_allclose(found.scores(x), expected, rtol=1e-6)
    with pytest.raises(UnknownNameError, match="relu"):
        LayeredHash(mean, scale, weights, biases, "rely")
    for parts in [
        (mean, scale[:1], weights, biases),
        (mean, -scale, weights, biases),
        (mean, scale, weights[::-1], biases[::-1]),
        (mean, scale, weights, biases[:1]),
        (mean, scale, (), ()),
        (mean, scale, weights, (biases[0], np.float32([np.nan]))),
    ]:
        with pytest.raises(InputError):
            LayeredHash(*parts)


def test_adsh_learns_the_codes_of_its_database():
    X, y = corners(300)
    learner = ADSH(12, hidden=(64,), drawn=100, batch=50, learning_rate=5e-3).fit(X, y)
    queries, wanted = corners(60, seed=1)
    distances = hamming(learner.transform(queries), learner.codes_)
    assert learner.codes_.shape == (300, 2)
    assert query_average_precision(distances, wanted[:, None] == y).mean() > 0.8


@every_learner
def test_a_network_of_ones_own_learns_from_images(learner):
    images, y = stripes(120)
    queries, wanted = stripes(30, seed=1)
    network = convolutions()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    learned = learner(12, epochs=12, batch=30, learning_rate=0.02, network=network).fit(images, y).function_
    assert isinstance(learned, NetworkHash)
    assert mean_precision(learned, images, y, queries, wanted) > 0.9
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("outputs", [12, 7])  # with and without a head of ours
def test_the_weights_of_a_network_are_saved_and_loaded_into_a_module_built_anew(outputs, tmp_path):
    images, y = stripes(40)
    function = HashNet(12, epochs=2, network=convolutions(outputs)).fit(images, y).function_
    path = tmp_path / "network"
    save_function(function, path)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    found = load_network_hash(path, convolutions(outputs))
    assert torch.equal(torch.get_rng_state(), state)
    assert found.digest == function.digest
    assert (found.bits, found.dimension, found.shape) == (12, 192, (8, 8, 3))
    np.testing.assert_array_equal(found(images), function(images))
    with pytest.raises(InputError, match="load_network_hash"):
        load_function(path)
    with pytest.raises(InputError, match="weights do not fit this module"):
        load_network_hash(path, torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, outputs)))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptFileError):
        load_network_hash(path, convolutions(outputs))


def test_load_network_hash_sends_other_functions_to_load_function(tmp_path):
    save_function(LinearHash(np.zeros(2, "f4"), np.ones((2, 3), "f4")), tmp_path / "linear")
    with pytest.raises(InputError, match="Read it with load_function"):
        load_network_hash(tmp_path / "linear", convolutions())


def test_images_reach_the_module_colours_first_and_all_else_as_it_is():
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, batch):
            seen.append(batch)
            return batch.flatten(1)[:, :4]

    def function(shape):
        return NetworkHash(Spy(), shape, 4)

    images, _ = stripes(3)
    codes = function((8, 8, 3))(images)
    np.testing.assert_allclose(seen[-1].numpy(), images.transpose(0, 3, 1, 2) / 255, rtol=1e-6)
    np.testing.assert_array_equal(codes, pack(np.ones((3, 4))))
    function((8, 8, 3))(images / 100)
    np.testing.assert_allclose(seen[-1].numpy(), images.transpose(0, 3, 1, 2) / 100, rtol=1e-6)
    function((3, 8, 5))(images.transpose(0, 3, 1, 2)[..., :5].astype(float))
    np.testing.assert_array_equal(seen[-1].numpy(), images.transpose(0, 3, 1, 2)[..., :5])


def test_every_bit_starts_balanced():
    X, _ = corners(500)
    with torch.random.fork_rng(devices=[]):
        layers = perceptron((8, 16, 10))
    inputs = torch.tensor(X + 5)
    training.balance(layers, inputs)
    outputs = layers(inputs).detach().numpy()
    np.testing.assert_allclose(outputs.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(outputs.std(axis=0), 1, rtol=1e-4)
    training.balance(layers, torch.ones(5, 8))  # nothing varies: nothing to divide by
    assert np.isfinite(layers[-1].weight.detach().numpy()).all()


def test_a_bank_larger_than_what_a_batch_is_compared_with_is_sampled(monkeypatch):
    monkeypatch.setattr(training, "_COMPARED", 100)
    X, y = corners(600)
    queries, wanted = corners(80, seed=1)
    learned = DSH(12, hidden=(64,), epochs=20, batch=64, learning_rate=5e-3).fit(X, y).function_
    assert mean_precision(learned, X, y, queries, wanted) > 0.8


def test_progress_is_told_after_every_epoch_and_parameters_survive_cloning():
    X, y = corners(50)
    for learner in LEARNERS:
        calls = []
        made = learner(6, hidden=(4,), epochs=3, progress=lambda *told: calls.append(told))  # noqa: B023
        copied = clone(made)
        assert copied.get_params() == made.get_params()
        copied.fit(X, y)
        assert calls == [("training the network", done, 3) for done in (1, 2, 3)]


@pytest.mark.parametrize("parameters", [{"epochs": 0}, {"batch": 0}, {"hidden": (4, 0)}, {"learning_rate": 0.0}])
def test_wrong_parameters_get_a_sentence(parameters):
    with pytest.raises(InputError, match="must be at least 1 and learning_rate positive; got"):
        DPSH(4, **parameters).fit(*corners(20))


def test_wrong_data_gets_a_sentence():
    X, y = corners(20)
    images, kinds = stripes(20)
    with pytest.raises(InputError, match="HashNet learns from labels"):
        HashNet(4).fit(X)
    with pytest.raises(InputError, match="all 20 labels are 2"):
        HashNet(4, network=convolutions()).fit(images, np.full(20, 2))
    with pytest.raises(InputError, match="NaN"):
        DSH(4).fit(np.full_like(X, np.nan), y)
    with pytest.raises(InputError, match="NaN"):
        DSH(4, network=convolutions()).fit(np.full(images.shape, np.nan), kinds)
    with pytest.raises(InputError, match="one row or more"):
        DSH(4, network=convolutions()).fit(np.ones(20), kinds)
    with pytest.raises(InputError, match="at least 2 rows; got 1"):
        DSH(4, network=convolutions()).fit(images[:1], kinds[:1])
    with pytest.raises(InputError, match=r"numbers of shape \(n, d\)"):
        DSH(4).fit(images, kinds)
    with pytest.raises(InputError, match="drawn must be at least 1 row; got 0"):
        ADSH(4, drawn=0).fit(X, y)


def test_a_network_that_does_not_fit_gets_a_sentence():
    images, y = stripes(20)
    with pytest.raises(InputError, match=r"rows of features, \(2, d\); got \(2, 4, 6, 6\)"):
        DPSH(4, network=torch.nn.Conv2d(3, 4, 3)).fit(images, y)
    with pytest.raises(InputError, match=r"cannot take a batch of shape \(2, 3, 8, 8\)"):
        DPSH(4, network=torch.nn.Linear(5, 4)).fit(images, y)
    learned = DPSH(4, epochs=1, network=convolutions()).fit(images, y).function_
    with pytest.raises(InputError, match=r"shape \(8, 8, 3\); got \(7, 8, 3\)"):
        learned(images[:, :7])


def test_a_training_that_diverges_says_what_to_change():
    X, y = corners(50)
    with pytest.raises(InputError, match=r"diverged\. Use a learning_rate below 1e\+30"):
        DPSH(4, epochs=5, learning_rate=1e30).fit(X, y)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"blindsight-vision\[deep\]"):
        DPSH(4).fit(*corners(20))
