"""A network against adversaries: what attackers read before is gone after, and it is plain arrays."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from blindsight.errors import InputError, MissingExtraError
from blindsight.metrics import balanced_accuracy
from blindsight.papers.sensorsift.adversarial import AdversarialSift, _discrepancy
from blindsight.sift.sift import LayeredSift, Layers, Quantiser, load_sift, save_sift

SMALL = {"hidden": 16, "steps": 120, "batch": 128, "learning_rate": 1e-2}


def faces(n, seed=0):
    """Return features, four for each of two attributes that go together."""
    generator = np.random.default_rng(seed)
    public = generator.integers(2, size=n)
    private = np.where(generator.random(n) < 0.75, public, 1 - public)
    signal = np.repeat(2.0 * np.stack([public, private], axis=1) - 1, 4, axis=1)
    X = signal + generator.normal(scale=1.5, size=(n, 8))
    return X.astype(np.float32), public.astype(np.int8), private.astype(np.int8)


def read(train, labels, test, truth):
    """Return the balanced accuracy of nearest neighbours."""
    return balanced_accuracy(truth, KNeighborsClassifier(25).fit(train, labels).predict(test))


def test_what_is_read_without_privacy_is_hidden_with_it():
    pytest.importorskip("torch")
    X, public, private = faces(2000)
    fresh, told, hidden = faces(2000, seed=1)
    open_sift, sift = (AdversarialSift(2, privacy, **SMALL).fit(X, public, private).sift_ for privacy in (0.0, 3.0))
    before, after = (read(one.apply(X), private, one.apply(fresh), hidden) for one in (open_sift, sift))
    # An accuracy has a deviation of .011 here: both lie five or more of them from their limits.
    assert before > 0.68
    assert after < 0.63
    assert read(sift.apply(X), public, sift.apply(fresh), told) > 0.68


def test_the_frozen_network_is_what_torch_computes_with_unit_outputs():
    torch = pytest.importorskip("torch")
    X, public, private = faces(300)
    layers = AdversarialSift(3, **SMALL | {"steps": 5}).fit(X, public, private).sift_.layers
    values = (torch.tensor(X) - torch.tensor(layers.mean)) / torch.tensor(layers.scale)
    first, last = (torch.nn.Linear(*weight.shape) for weight in layers.weights)
    for module, weight, bias in zip((first, last), layers.weights, layers.biases, strict=True):
        module.load_state_dict({"weight": torch.tensor(weight.T), "bias": torch.tensor(bias)})
    expected = last(torch.relu(first(values))).detach().numpy()
    released = layers.apply(X)
    np.testing.assert_allclose(released, expected, atol=1e-4)
    np.testing.assert_allclose(released.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(released.std(axis=0), 1, atol=1e-3)


def test_training_repeats_itself_and_leaves_torch_alone():
    torch = pytest.importorskip("torch")
    X, public, private = faces(200)
    private[:20] = -1  # unknown
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    one, two, other = (
        AdversarialSift(2, random_state=seed, **SMALL | {"steps": 10}).fit(X, public, private).sift_
        for seed in (0, 0, 1)
    )
    assert torch.equal(torch.random.get_rng_state(), state)
    assert one.digest == two.digest != other.digest


def test_discrepancy_is_that_of_the_definition_and_rows_of_unknown_label_add_nothing():
    torch = pytest.importorskip("torch")
    outputs, labels = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32), np.arange(12)[:, None] % 3 == 0

    def kernel(a, b):
        square = np.mean((a[:, None] - b[None]) ** 2, axis=2)
        return np.mean([np.exp(-square / (2 * width)) for width in (0.1, 0.5, 2.0)], axis=0).mean()

    yes, no = outputs[labels[:, 0]], outputs[~labels[:, 0]]
    expected = kernel(yes, yes) + kernel(no, no) - 2 * kernel(yes, no)
    found = _discrepancy(torch.tensor(outputs), torch.tensor(labels.astype(np.float32)))
    assert float(found) == pytest.approx(expected, rel=1e-4)
    more = np.r_[outputs, 5 + outputs[:4]], np.r_[labels.astype(np.float32), np.full((4, 1), -1, np.float32)]
    assert float(_discrepancy(*map(torch.tensor, more))) == pytest.approx(expected, rel=1e-4)


def test_a_layered_sift_is_saved_and_applied_without_torch(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    weights = (generator.normal(size=(4, 3)), generator.normal(size=(3, 2)))
    layered = LayeredSift(Layers(np.zeros(4), np.ones(4), weights, (np.zeros(3), np.ones(2))), pipeline="pixels")
    X = generator.normal(size=(50, 4))
    whole = replace(layered, quantiser=Quantiser.uniform([-1, -1], [1, 1], bits=2))
    monkeypatch.setitem(sys.modules, "torch", None)
    for number, sift in enumerate((layered, whole)):
        save_sift(sift, tmp_path / f"{number}.npz")
        loaded = load_sift(tmp_path / f"{number}.npz")
        assert isinstance(loaded, LayeredSift)
        assert (loaded.digest, loaded.levels) == (sift.digest, sift.levels)
        assert loaded.apply(X).tolist() == sift.apply(X).tolist()
    assert whole.alphabet == 16
    assert whole.apply(X).dtype == np.int64
    assert whole.digest != layered.digest
    with pytest.raises(InputError, match="3 outputs"):
        replace(layered, quantiser=Quantiser.uniform([0] * 3, [1] * 3))


def test_bad_data_and_settings_are_named(monkeypatch):
    pytest.importorskip("torch")
    X, public, private = faces(50)
    spoiled = np.where(X[3, 1] == X, np.nan, X)
    for rows, hidden, named in ((X, np.zeros(50), "private attribute 0"), (np.ones_like(X), private, "varies")):
        with pytest.raises(InputError, match=named):
            AdversarialSift().fit(rows, public, hidden)
    with pytest.raises(InputError, match="NaN"):
        AdversarialSift().fit(spoiled, public, private)
    with pytest.raises(InputError, match="nothing"):
        AdversarialSift(**SMALL | {"learning_rate": 1e12}).fit(X, public, private)
    for wrong in ({"n_components": 0}, {"privacy": np.inf}, {"batch": 1}, {"learning_rate": 0.0}):
        with pytest.raises(InputError, match="at least 1"):
            AdversarialSift(**wrong).fit(X, public, private)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="deep"):
        AdversarialSift().fit(X, public, private)
