"""Deep hashing: losses on the shared test vectors, networks of one's own, and functions that stand without torch."""

import json
import sys
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from blindsight.errors import CorruptFileError, DataError, InputError, MissingExtraError, UnknownNameError  # noqa: E402
from blindsight.metrics import query_average_precision  # noqa: E402
from blindsight.papers.hashing import deep  # noqa: E402
from blindsight.papers.hashing.deep import (  # noqa: E402
    ADSH,
    DPSH,
    DSH,
    HashNet,
    adsh_codes,
    adsh_loss,
    dpsh_loss,
    dsh_loss,
    hashnet_loss,
)
from blindsight.papers.hashing.learners import LayeredHash, NetworkHash, load_network_hash  # noqa: E402
from blindsight.papers.perceptron import mean_and_scale, perceptron, plain_layers  # noqa: E402
from blindsight.search.codes import hamming, pack, unpack  # noqa: E402
from blindsight.search.function import LinearHash, load_function, save_function  # noqa: E402

VECTORS = json.loads((Path(__file__).parent / "vectors" / "hash-losses.json").read_text())
EXPECTED, ALPHA, GAMMA = VECTORS["expected"], VECTORS["alpha"], VECTORS["adsh_gamma"]
ROWS, LABELS = torch.tensor(VECTORS["ind"]), torch.tensor(VECTORS["labels"])


def tensors(dtype):
    outputs, bank, codes = (torch.tensor(VECTORS[name], dtype=dtype) for name in ("u", "bank", "adsh_V0"))
    return outputs, bank, codes, (LABELS[ROWS][:, None] == LABELS).to(dtype)


@pytest.mark.parametrize(("dtype", "precision"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_the_losses_have_the_published_values(dtype, precision):
    outputs, bank, codes, similar = tensors(dtype)
    targets = 2 * similar - 1
    swept = adsh_codes(codes, outputs.tanh(), ROWS, targets.T @ outputs.tanh(), GAMMA)
    found = {
        "dpsh": dpsh_loss(outputs, bank, similar, ALPHA),
        "dsh": dsh_loss(outputs, bank, similar, ALPHA),
        "hashnet": hashnet_loss(outputs, outputs, similar[:, ROWS], ALPHA, beta=1.0),
        "adsh_obj": adsh_loss(outputs, codes, codes[ROWS], targets, GAMMA),
        "adsh_obj_after_V": adsh_loss(outputs, swept, swept[ROWS], targets, GAMMA),
    }
    for name, value in found.items():
        assert value.item() == pytest.approx(EXPECTED[name], rel=precision), name
    assert codes.tolist() == VECTORS["adsh_V0"]  # the codes given are left alone


def test_gradients_are_those_of_finite_differences():
    outputs, bank, codes, similar = tensors(torch.float64)
    for loss in (
        lambda u: dpsh_loss(u, bank, similar, ALPHA),
        lambda u: dsh_loss(u, bank, similar, ALPHA),
        lambda u: hashnet_loss(u, u, similar[:, ROWS], ALPHA, beta=3.0),
        lambda u: adsh_loss(u, codes, codes[ROWS], 2 * similar - 1, GAMMA),
    ):
        assert torch.autograd.gradcheck(loss, (outputs.requires_grad_(),))
    outputs, similar = torch.full((2, 4), 1e4, requires_grad=True), torch.eye(2)  # huge ones are finite
    loss = dpsh_loss(outputs, outputs.detach(), similar, 0.1) + hashnet_loss(outputs, outputs, similar, 1.0, 7.0)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(outputs.grad).all()


def test_hashnet_weighs_rare_similar_pairs_as_much_as_all_others_together():
    """Outputs of zero give every pair ln 2: the weighted mean is 2 ln 2, however rare similar pairs are."""
    outputs = torch.zeros(10, 4)
    for similar in (torch.eye(10), (torch.arange(10) < 5).float()[:, None].expand(10, 10)):
        assert hashnet_loss(outputs, outputs, similar, 1.0, 1.0).item() == pytest.approx(2 * np.log(2), rel=1e-5)
    alone = hashnet_loss(outputs, outputs, torch.zeros(10, 10), 1.0, 1.0)  # no similar pair: nothing to divide by
    assert alone.item() == pytest.approx(np.log(2), rel=1e-5)


def test_each_column_of_adsh_is_the_best_of_all_and_the_loss_never_rises():
    rng = np.random.default_rng(0)
    smooth = torch.tensor(np.tanh(rng.normal(size=(4, 3))))
    rows, targets = torch.tensor([0, 2, 3, 5]), torch.tensor(rng.choice([-1.0, 1.0], size=(4, 6)))
    codes = torch.tensor(rng.choice([-1.0, 1.0], size=(6, 3)))

    def loss(candidate):
        return adsh_loss(smooth.atanh(), candidate, candidate[rows], targets, 2.0).item()

    expected, columns = codes, torch.tensor(list(product([-1.0, 1.0], repeat=6)), dtype=torch.float64)
    for bit in range(3):
        tried = [torch.cat([expected[:, :bit], c[:, None], expected[:, bit + 1 :]], dim=1) for c in columns]
        expected = min(tried, key=loss)
    swept = adsh_codes(codes, smooth, rows, targets.T @ smooth, 2.0)
    assert torch.equal(swept, expected)
    losses = [loss(codes), loss(swept)]
    for _ in range(3):
        swept = adsh_codes(swept, smooth, rows, targets.T @ smooth, 2.0)
        losses.append(loss(swept))
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(losses))
    assert losses[1] < losses[0]


# --- perceptrons ---


def blobs(rows, seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, rows)
    return (rng.normal(size=(rows, 8)) + 3 * np.eye(8)[classes]).astype(np.float32), classes


def mean_precision(function, X, y, queries, wanted):
    return query_average_precision(hamming(function(queries), function(X)), wanted[:, None] == y).mean()


@pytest.mark.parametrize("hidden", [(), (16, 9)])
def test_a_frozen_perceptron_scores_as_its_network_does(hidden):
    X = np.c_[blobs(200)[0], np.full(200, 3)].astype(np.float32)  # a constant feature
    mean, scale = mean_and_scale(X)
    with torch.random.fork_rng(devices=[]):
        network = perceptron((9, *hidden, 10))
    function = LayeredHash(mean, scale, *map(tuple, plain_layers(network)))
    with torch.inference_mode():
        scores = network(torch.tensor((X - mean) / scale)).numpy()
    np.testing.assert_allclose(function.scores(X), scores, atol=1e-4)
    clear = np.abs(scores) > 1e-4
    np.testing.assert_array_equal(unpack(function(X), 10)[clear], scores[clear] >= 0)


def test_a_layered_function_is_what_its_arrays_say():
    weights = np.float32([[1, -1], [1, 1]]), np.float32([[1], [2]])
    biases = np.float32([0.5, 0]), np.float32([-1])
    mean, scale, x = np.float32([1, 1]), np.float32([2, 1]), np.float32([[3, 0], [1, 5]])
    for activation, function in [("relu", lambda v: np.maximum(v, 0)), ("tanh", np.tanh)]:
        found = LayeredHash(mean, scale, weights, biases, activation)
        expected = function((x - mean) / scale @ weights[0] + biases[0]) @ weights[1] + biases[1]
        np.testing.assert_allclose(found.scores(x), expected, rtol=1e-5)
    with pytest.raises(UnknownNameError, match="relu"):
        LayeredHash(mean, scale, weights, biases, "rely")


def test_a_saved_perceptron_hashes_without_torch(tmp_path, monkeypatch):
    X, y = blobs(100)
    learner = DSH(12, hidden=(16,), epochs=2).fit(X, y)
    save_function(learner.function_, tmp_path / "function")
    codes = learner.transform(X)
    monkeypatch.setitem(sys.modules, "torch", None)
    np.testing.assert_array_equal(load_function(tmp_path / "function")(X), codes)


def test_adsh_learns_the_codes_of_its_database_and_large_banks_are_sampled(monkeypatch):
    X, y = blobs(300)
    queries, wanted = blobs(60, seed=1)
    learner = ADSH(12, hidden=(64,), drawn=100, batch=50, epochs=8, learning_rate=5e-3).fit(X, y)
    distances = hamming(learner.transform(queries), learner.codes_)
    assert learner.codes_.shape == (300, 2)
    assert query_average_precision(distances, wanted[:, None] == y).mean() > 0.8
    monkeypatch.setattr(deep, "_COMPARED", 100)
    learned = DSH(12, hidden=(64,), epochs=10, batch=50, learning_rate=5e-3).fit(X, y).function_
    assert mean_precision(learned, X, y, queries, wanted) > 0.8


def test_every_bit_starts_balanced():
    X, _ = blobs(500)
    with torch.random.fork_rng(devices=[]):
        layers = perceptron((8, 16, 10))
    inputs = torch.tensor(X + 5)
    deep.balance(layers, inputs)
    outputs = layers(inputs).detach().numpy()
    np.testing.assert_allclose(outputs.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(outputs.std(axis=0), 1, rtol=1e-3)
    deep.balance(layers, torch.ones(5, 8))  # nothing varies: nothing to divide by
    assert np.isfinite(layers[-1].weight.detach().numpy()).all()


def test_progress_is_told_after_every_epoch():
    calls = []
    DPSH(6, hidden=(4,), epochs=3, progress=lambda *told: calls.append(told)).fit(*blobs(50))
    assert [told[1:] for told in calls] == [(done, 3) for done in (1, 2, 3)]


# --- networks of one's own ---


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
        head = nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, outputs)
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *head)


@pytest.mark.parametrize("learner", [DPSH, DSH, HashNet, ADSH])
def test_a_network_of_ones_own_learns_from_images(learner):
    images, y = stripes(120)
    queries, wanted = stripes(30, seed=1)
    network = convolutions()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    epochs = 4 if learner is ADSH else 12
    learned = learner(12, epochs=epochs, batch=30, learning_rate=0.02, network=network).fit(images, y).function_
    assert isinstance(learned, NetworkHash)
    assert mean_precision(learned, images, y, queries, wanted) > 0.85
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("outputs", [12, 7])  # with and without a head of ours
def test_the_weights_of_a_network_are_saved_and_loaded_into_a_module_of_the_same_shape(outputs, tmp_path):
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
    with pytest.raises(DataError, match="load_network_hash"):
        load_function(path)
    with pytest.raises(InputError, match="fit"):
        load_network_hash(path, torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, outputs)))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptFileError):
        load_network_hash(path, convolutions(outputs))
    save_function(LinearHash(np.zeros(2, "f4"), np.ones((2, 3), "f4")), path)
    with pytest.raises(InputError, match="load_function"):
        load_network_hash(path, convolutions())


def test_images_reach_the_module_colours_first_and_all_else_as_it_is():
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, batch):
            seen.append(batch)
            return batch.flatten(1)[:, :4]

    images, _ = stripes(3)
    first = images.transpose(0, 3, 1, 2)
    function = NetworkHash(Spy(), (8, 8, 3), 4)
    np.testing.assert_array_equal(function(images), pack(np.ones((3, 4))))
    np.testing.assert_allclose(seen[-1].numpy(), first / 255, rtol=1e-6)
    function(images / 100)
    np.testing.assert_allclose(seen[-1].numpy(), first / 100, rtol=1e-6)
    NetworkHash(Spy(), (3, 8, 5), 4)(first[..., :5].astype(float))
    np.testing.assert_array_equal(seen[-1].numpy(), first[..., :5])


def test_networks_and_data_that_do_not_fit_are_refused(monkeypatch):
    images, y = stripes(20)
    for network, X, labels, named in [
        (convolutions(), images, np.full(20, 2), "20 labels are 2"),
        (convolutions(), np.full(images.shape, np.nan), y, "NaN"),
        (convolutions(), np.ones(20), y, "shape"),
        (convolutions(), images[:1], y[:1], "2 rows"),
        (torch.nn.Conv2d(3, 4, 3), images, y, r"\(2, 4, 6, 6\)"),
        (torch.nn.Linear(5, 4), images, y, r"\(2, 3, 8, 8\)"),
    ]:
        with pytest.raises(InputError, match=named):
            DSH(4, network=network).fit(X, labels)
    learned = DPSH(4, epochs=1, network=convolutions()).fit(images, y).function_
    with pytest.raises(InputError, match=r"\(7, 8, 3\)"):
        learned(images[:, :7])
    with pytest.raises(InputError, match="learning_rate"):  # it diverges
        DPSH(4, epochs=5, learning_rate=1e30).fit(*blobs(50))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="deep"):
        DPSH(4).fit(*blobs(20))
