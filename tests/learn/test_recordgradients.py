"""Gradients of single records are what a loop over single records gives; clipped, summed, and with the noise stated."""

import numpy as np
import pytest
from scipy.stats import chi2

torch = pytest.importorskip("torch")

from blindsight.errors import InputError  # noqa: E402
from blindsight.extras import to_batch  # noqa: E402
from blindsight.learn import training as recordgradients  # noqa: E402
from blindsight.learn.modules import head, layout_of, small_cnn  # noqa: E402
from blindsight.learn.protection import RecordGaussian  # noqa: E402
from blindsight.learn.training import NetworkTrainer, RecordGradients  # noqa: E402
from blindsight.rng import seeded_bytes  # noqa: E402
from tests.learn.nets import Tied, seeded_module  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.usefixtures("one_thread")
NOISE = RecordGaussian(clip=0.5, noise_multiplier=1.0)
PHOTO, ROW = (8, 8, 3), (5,)


def summed(gradients, inputs, labels):
    return sum(gradients.clipped_sums(inputs, labels))


def batch(shape, count=6, seed=0):
    """Return inputs as a trainer makes them (photos are stored channels last) and classes."""
    rng = np.random.default_rng(seed)
    inputs = (
        rng.integers(0, 256, size=(count, *shape), dtype=np.uint8)
        if len(shape) == 3
        else rng.normal(size=(count, *shape))
    )
    return to_batch(inputs, "cpu"), torch.tensor(rng.integers(0, 3, count))


class Last(nn.Module):
    """Reads a row as a sequence of numbers."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.out = layer(1, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, inputs):
        return self.out(self.layer(inputs[..., None])[0][:, -1])


class Centred(nn.Module):
    """Takes the mean of the batch away, so that every record has a say in what others give."""

    def forward(self, inputs):
        return inputs - inputs.mean(dim=0)


def normalised():
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 3)
    )
    network[1].running_var *= 3
    return network


MODULES = {
    "small_cnn": (lambda: small_cnn(3, 8), PHOTO),
    "channels last": (lambda: small_cnn(3, 8).to(memory_format=torch.channels_last), PHOTO),
    "batch norm": (normalised, PHOTO),
    "head": (lambda: head(5, 3, hidden=4), ROW),
    "tied": (Tied, ROW),
    "recurrent": (lambda: Last(nn.LSTM), ROW),
    "layer norm": (lambda: nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3)), ROW),
}


def loop(module, inputs, labels):
    """Return the gradients of single records by a plain loop: (records, parameters)."""
    rows = []
    for record, label in zip(inputs, labels, strict=True):
        module.zero_grad()
        nn.functional.cross_entropy(module(record[None]), label[None]).backward()
        learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
        rows.append(torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in learned]))
    module.zero_grad()
    return torch.stack(rows).numpy().astype(np.float64)


def flat(gradients):
    return torch.cat([gradient.flatten(1) for gradient in gradients], dim=1).numpy()


def clipped_sum(rows, clip):
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows * np.minimum(1, clip / lengths)).sum(axis=0)


def written(module):
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.requires_grad]).numpy().astype(np.float64)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of LSTM
@pytest.mark.parametrize("name", MODULES)
def test_they_are_those_of_a_loop_over_single_records(name):
    make, shape = MODULES[name]
    module, (inputs, labels) = seeded_module(make).eval(), batch(shape)
    expected = loop(module, inputs, labels)
    assert np.linalg.norm(expected, axis=1).min() > 1e-3
    (found,) = RecordGradients(module, NOISE).per_record(inputs, labels)
    np.testing.assert_allclose(flat(found), expected, rtol=1e-4, atol=2e-6)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", MODULES)
def test_what_is_written_is_the_mean_of_clipped_gradients_with_noise(name):
    make, shape = MODULES[name]
    module, (inputs, labels) = seeded_module(make).eval(), batch(shape)
    rows = loop(module, inputs, labels)
    clip = float(np.median(np.linalg.norm(rows, axis=1)))  # half of them are clipped
    RecordGradients(module, RecordGaussian(clip, 1e-4), seeded_bytes(0)).backward(inputs, labels)
    error = written(module) - clipped_sum(rows, clip) / 6
    assert np.abs(error).max() < 7 * 1e-4 * clip / 6  # 7 deviations
    assert np.abs(error).max() > 1e-5 * clip / 6


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("name", ["small_cnn", "head", "layer norm"])
def test_opacus_clips_and_adds_up_to_the_same(name):
    opacus, optimizers = (pytest.importorskip(part) for part in ("opacus", "opacus.optimizers"))
    make, shape = MODULES[name]
    module, (inputs, labels) = seeded_module(make), batch(shape)
    inputs = inputs.contiguous()  # stored channels last, Opacus 1.6 gets convolutions wrong
    RecordGradients(module, RecordGaussian(0.8, 1e-4), seeded_bytes(0)).backward(inputs, labels)
    ours = written(module)
    module.zero_grad()
    wrapped = opacus.GradSampleModule(module, loss_reduction="mean")
    private = optimizers.DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=1.0), noise_multiplier=0.0, max_grad_norm=0.8, expected_batch_size=6
    )
    nn.functional.cross_entropy(wrapped(inputs), labels).backward()
    lengths = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in module.parameters()]).norm(dim=0)
    assert (lengths > 0.8).sum() > 0
    private.pre_step()
    assert np.abs(ours - written(module)).max() < 7 * 1e-4 * 0.8 / 6  # 7 deviations


def test_no_record_has_a_say_in_the_gradient_of_another_whatever_the_module_does():
    module = seeded_module(lambda: nn.Sequential(nn.Linear(5, 6), Centred(), nn.Tanh(), nn.Linear(6, 3)))
    inputs, labels = batch(ROW)
    others = inputs.clone()
    others[1:] *= 100
    gradients = RecordGradients(module, NOISE)
    one, two = (flat(next(iter(gradients.per_record(each, labels)))) for each in (inputs, others))
    np.testing.assert_array_equal(one[0], two[0])


def test_one_record_moves_the_sum_by_at_most_the_clip():
    module, (inputs, _) = seeded_module(lambda: head(5, 3)), batch(ROW, count=12)
    inputs *= 1e4
    labels = module(inputs).argmin(dim=1)  # all quite wrong, so all gradients are long
    gradients = RecordGradients(module, NOISE)
    whole = summed(gradients, inputs, labels)
    for one in range(12):
        kept = torch.arange(12) != one
        moved = np.linalg.norm(whole - summed(gradients, inputs[kept], labels[kept]))
        assert (1 - 1e-4) * NOISE.clip <= moved <= NOISE.clip


def test_the_noise_has_the_stated_scale_and_is_fresh_in_every_step():
    module, (inputs, labels) = seeded_module(lambda: head(2000, 3)), batch((2000,), count=8)
    noise = RecordGaussian(clip=0.7, noise_multiplier=1.3)
    gradients = RecordGradients(module, noise)
    total = summed(gradients, inputs, labels)
    drawn = []
    for _ in range(2):
        gradients.backward(inputs, labels)
        drawn.append((written(module) * 8 - total) / (0.7 * 1.3))
    # Each chi-square leaves its bounds in 2e-8, the correlation its own in 2e-8 of all runs.
    count = len(total)
    for one in drawn:
        assert chi2.ppf(1e-8, count) < (one**2).sum() < chi2.isf(1e-8, count)
    assert abs(drawn[0] @ drawn[1]) < 5.7 * np.sqrt(count)
    assert abs(sum(drawn).sum()) < 5.7 * np.sqrt(2 * count)


def test_large_networks_take_a_few_records_at_a_time(monkeypatch):
    module, (inputs, labels) = seeded_module(lambda: small_cnn(3, 8)), batch(PHOTO)
    gradients = RecordGradients(module, NOISE)
    expected = summed(gradients, inputs, labels)
    monkeypatch.setattr(recordgradients, "_AT_ONCE", 2 * layout_of(module).dimension + 5)
    assert [len(parts[0]) for parts in gradients.per_record(inputs, labels)] == [2, 2, 2]
    np.testing.assert_allclose(summed(gradients, inputs, labels), expected, atol=1e-6)
    monkeypatch.setattr(recordgradients, "_AT_ONCE", 1)
    assert [len(parts[0]) for parts in gradients.per_record(inputs, labels)] == [1] * 6


def test_dropout_is_drawn_for_every_record():
    module = seeded_module(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(200, 3))).train()
    inputs, labels = torch.ones(4, 200), torch.zeros(4, dtype=torch.int64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        (found,) = RecordGradients(module, NOISE).per_record(inputs, labels)
    assert len(np.unique(flat(found), axis=0)) == 4


def test_parameters_written_later_are_the_ones_that_count():
    module, (inputs, labels) = seeded_module(lambda: head(5, 3)), batch(ROW)
    gradients = RecordGradients(module, NOISE)
    with torch.no_grad():
        module[0].weight.mul_(3)
    (found,) = gradients.per_record(inputs, labels)
    np.testing.assert_allclose(flat(found), loop(module, inputs, labels), rtol=1e-4, atol=1e-6)


class Choosy(nn.Module):
    """Does something else for bright photos."""

    def forward(self, inputs):
        return inputs * 2 if inputs.mean() > 0 else inputs


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: Last(nn.GRU), r"'layer' \(GRU\).*LSTM"),
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.Sequential(nn.RReLU(), nn.Linear(4, 3))), r"'1\.0' \(RReLU\)"),
        (lambda: nn.Sequential(nn.Linear(5, 3), Choosy()), r"'1' \(Choosy\)"),
    ],
)
def test_a_layer_that_cannot_is_named_with_the_remedy(make, place):
    X = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    trainer = NetworkTrainer(seeded_module(make), record_noise=NOISE)
    with pytest.raises(InputError, match=place) as caught:
        trainer.train(trainer.initial(), X, np.arange(8) % 3, 0)
    assert "\n" not in str(caught.value)
    plain = NetworkTrainer(seeded_module(make))
    assert np.isfinite(plain.train(plain.initial(), X, np.arange(8) % 3, 0)).all()


def test_normalisation_by_the_batch_is_refused_with_the_remedy():
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3))
    with pytest.raises(InputError, match=r"'1' \(BatchNorm1d\).*GroupNorm"):
        NetworkTrainer(module, record_noise=NOISE)


def test_a_record_whose_gradient_is_not_finite_counts_as_zero_among_the_same_number():
    module, (inputs, labels) = seeded_module(lambda: head(5, 3)), batch(ROW)
    found = []
    for record in (torch.inf, 3e38, -torch.inf):
        inputs[2] = record
        RecordGradients(module, NOISE, seeded_bytes(1)).backward(inputs * 1e10, labels)
        found.append(torch.cat([parameter.grad.flatten() for parameter in module.parameters()]))
    assert found[0].isfinite().all()
    assert found[0].equal(found[1])
    assert found[0].equal(found[2])
    keep = [0, 1, 3, 4, 5]
    RecordGradients(module, NOISE, seeded_bytes(1)).backward(inputs[keep] * 1e10, labels[keep])
    others = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    np.testing.assert_allclose(found[0] * 6, others * 5, rtol=1e-4, atol=1e-4)


def test_batches_that_are_too_large_are_refused(monkeypatch):
    module, (inputs, labels) = seeded_module(lambda: head(5, 3)), batch(ROW)
    monkeypatch.setattr(recordgradients, "_MOST_RECORDS", 5)
    with pytest.raises(InputError, match="5 records; got 6"):
        RecordGradients(module, NOISE).backward(inputs, labels)
