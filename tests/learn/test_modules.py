"""Networks as vectors: what is in them, in which order, and that nothing else of a module is touched."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from blindsight.errors import InputError, MissingExtraError  # noqa: E402
from blindsight.learn.model import Standardiser  # noqa: E402
from blindsight.learn.modules import FlatParameters, head, layout_of, new_optimiser, small_cnn  # noqa: E402

nn = torch.nn


class Odd(nn.Module):
    """Nested, with tied, frozen, scalar and unused parameters, a BatchNorm and a weight stored channels last."""

    def __init__(self):
        super().__init__()
        self.body = nn.ModuleDict({"one": nn.Linear(4, 4), "norm": nn.BatchNorm1d(4), "frozen": nn.Linear(4, 4)})
        self.body["frozen"].requires_grad_(False)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.body["one"].weight
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.unused = nn.Parameter(torch.zeros(3))
        self.convolution = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)

    def forward(self, inputs):
        return self.tied(self.body["frozen"](self.body["norm"](self.body["one"](inputs)))) * self.temperature


NAMES = (
    *("temperature", "unused", "body.one.weight", "body.one.bias", "body.norm.weight", "body.norm.bias"),
    *("convolution.weight", "convolution.bias"),
)


@pytest.fixture
def odd():
    with torch.random.fork_rng(devices=[]):
        return Odd()


def test_a_layout_names_what_is_learned_once_and_leaves_out_what_is_frozen(odd):
    layout = layout_of(odd)
    assert layout.names == NAMES
    assert layout.shapes[0] == ()
    assert layout.shapes[6] == (3, 2, 3, 3)
    assert layout.dimension == 1 + 3 + 16 + 4 + 4 + 4 + 54 + 3


def test_the_vector_is_the_parameters_one_behind_the_other(odd):
    parameters = dict(odd.named_parameters())
    expected = np.concatenate([parameters[name].detach().numpy().ravel() for name in NAMES])
    vector = FlatParameters(odd).read()
    np.testing.assert_array_equal(vector, expected)
    vector += 1  # a copy
    np.testing.assert_array_equal(FlatParameters(odd).read(), expected)


@given(seed=st.integers(0, 2**32), frozen=st.booleans())
@settings(max_examples=20)
def test_what_was_written_is_read_and_all_else_stays(seed, frozen):
    with torch.random.fork_rng(devices=[]):
        module = Odd()
    vector = np.random.default_rng(seed).normal(size=89).astype(np.float32)
    vector.flags.writeable = not frozen
    kept = {name: value.clone() for name, value in module.state_dict().items() if "frozen" in name or "running" in name}
    FlatParameters(module).write(vector)
    np.testing.assert_array_equal(FlatParameters(module).read(), vector)
    assert module.temperature.item() == vector[0]
    np.testing.assert_array_equal(module.convolution.weight.detach().numpy().ravel(), vector[32:86])
    assert module.tied.weight is module.body["one"].weight
    assert len(kept) == 4
    assert all(torch.equal(module.state_dict()[name], value) for name, value in kept.items())


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        (np.zeros(88), r"89 .*\(88,\)"),
        (np.zeros((1, 89)), r"got \(1, 89\)"),
        (np.r_[np.zeros(88), np.nan], "NaN"),
        (np.r_[np.zeros(88), np.inf], "infinite"),
    ],
)
def test_a_vector_that_does_not_fit_changes_nothing(odd, vector, words):
    before = FlatParameters(odd).read()
    with pytest.raises(InputError, match=words):
        FlatParameters(odd).write(vector)
    np.testing.assert_array_equal(FlatParameters(odd).read(), before)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Flatten(), "no trainable parameters"),
        (nn.Linear(2, 2).requires_grad_(False), "no trainable parameters"),
        (nn.Linear(2, 2).double(), "'weight' is torch.float64"),
        (nn.LazyLinear(2), "'weight' is not known yet"),
        ("resnet", "str"),
    ],
)
def test_a_module_that_cannot_be_shared_is_refused(module, words):
    with pytest.raises(InputError, match=words):
        layout_of(module)


def test_the_same_seed_gives_the_same_network_and_leaves_torch_alone():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    for make in (lambda seed: small_cnn(4, 16, random_state=seed), lambda seed: head(9, 3, 5, random_state=seed)):
        one, two, other = (FlatParameters(make(seed)).read() for seed in (0, 0, 1))
        np.testing.assert_array_equal(one, two)
        assert (one != other).mean() > 0.5
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("side", "channels"), [(8, 1), (28, 3), (32, 3), (37, 4), ((8, 31), 3), ((40, 9), 1)])
def test_the_small_network_takes_photos_of_any_size(side, channels):
    network = small_cnn(5, side, channels)
    height, width = side if isinstance(side, tuple) else (side, side)
    assert network(torch.rand(2, channels, height, width)).shape == (2, 5)
    assert not any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in network.modules())


def test_photos_are_centred_inside_the_network():
    seen = small_cnn(2, 8)[0](torch.stack([torch.zeros(3, 8, 8), torch.ones(3, 8, 8)]))
    np.testing.assert_array_equal(seen[:, 0, 0, 0].numpy(), [-2, 2])


def test_a_head_standardises_by_public_numbers_that_are_no_parameters():
    public = np.random.default_rng(0).normal(5, 3, size=(50, 7)).astype(np.float32)
    standardiser = Standardiser.fit(public)
    network = head(7, 3, standardiser=standardiser)
    assert layout_of(network).dimension == 7 * 3 + 3
    np.testing.assert_allclose(
        network[0](torch.tensor(public)).numpy(), standardiser.apply(public), rtol=1e-5, atol=1e-6
    )
    assert {name for name, _ in network.named_buffers()} == {"0.mean", "0.scale"}
    assert head(7, 3, hidden=4)(torch.zeros(2, 7)).shape == (2, 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: small_cnn(1, 32), "two classes"),
        (lambda: small_cnn(3, 7), "7 x 7"),
        (lambda: small_cnn(3, (32, 7)), "32 x 7"),
        (lambda: small_cnn(3, 32, 0), "channel"),
        (lambda: head(5, 0), "two classes"),
        (lambda: head(0, 3), "feature"),
        (lambda: head(5, 3, hidden=0), "hidden"),
        (lambda: head(5, 3, standardiser=Standardiser(np.zeros(4), np.ones(4))), "4 features"),
        (lambda: new_optimiser("sgd", head(2, 2), 0.0), "learning_rate"),
        (lambda: new_optimiser("sgd", head(2, 2), float("nan")), "learning_rate"),
    ],
)
def test_wrong_sizes_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"\[deep\]"):
        small_cnn(2, 8)
