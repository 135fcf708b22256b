"""Small batches from their gradients, by matching: they come back, and noise does not."""

from typing import Any

import numpy as np
import pytest

from blindsight.audit.leakage.batches import attack_batches, batch_findings
from blindsight.audit.leakage.matching import labels_from_gradient, match_gradient
from blindsight.errors import InputError, UnknownNameError
from blindsight.rng import science

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model():
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.Sigmoid(), nn.Linear(24, 10)).double()
    generator = science(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.from_numpy(generator.uniform(-0.5, 0.5, size=tuple(parameter.shape))))
    return made


def gradient_of(model, pictures, labels):
    loss = nn.functional.cross_entropy(model(torch.from_numpy(pictures)), torch.from_numpy(labels))
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))]).numpy()


@pytest.mark.parametrize("objective", ["cosine", "squares"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_small_batch_comes_back(digits, model, batch, objective):
    before = [parameter.detach().clone() for parameter in model.parameters()]
    pictures, labels = digits.pictures[:batch], digits.labels[:batch]
    gradient = gradient_of(model, pictures, labels)
    options: Any = {"objective": objective, "restarts": 1 if batch == 1 else 2, "random_state": 1}
    if objective == "cosine" and batch > 1:  # for one picture neither labels nor a learning rate are needed
        options["labels"] = tuple(labels.tolist())
    scale = 0.07 if objective == "cosine" else 1.0
    found = match_gradient(model, scale * gradient, shape=(8, 8), batch=batch, **options)
    assert found.labels == tuple(sorted(labels))
    assert found.cosines(pictures).min() > 0.99
    assert found.pictures.shape == (batch, 8, 8)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


def test_it_is_repeatable(digits, model):
    gradient = gradient_of(model, digits.pictures[:1], digits.labels[:1])
    first, second = (
        match_gradient(model, gradient, shape=(8, 8), batch=1, iterations=5, random_state=3) for _ in range(2)
    )
    assert np.array_equal(first.pictures, second.pictures)
    seen = []
    match_gradient(
        model, gradient, shape=(8, 8), batch=1, iterations=1, restarts=2, progress=lambda *step: seen.append(step)
    )
    assert seen == [("matching gradients", 1, 2), ("matching gradients", 2, 2)]


def test_a_noisy_gradient_gives_nothing_back(digits, model):
    """|cosine| of a random direction in 64 dimensions exceeds 0.6 with probability 2e-7."""
    gradient = gradient_of(model, digits.pictures[:1], digits.labels[:1])
    noisy = gradient + science(2).normal(size=gradient.size) * 20 * np.abs(gradient).max()
    found = match_gradient(
        model, noisy, shape=(8, 8), batch=1, labels=(int(digits.labels[0]),), iterations=50, random_state=0
    )
    assert found.cosines(digits.pictures[:1])[0] < 0.6
    assert found.mismatch > 0.5


def test_labels_of_an_untrained_network_are_read_off(digits, model):
    for start in range(0, 40, 4):
        labels = digits.labels[start : start + 4]
        gradient = gradient_of(model, digits.pictures[start : start + 4], labels)
        assert len(set(labels) - set(labels_from_gradient(gradient[-10:], 4))) <= 1
        alone = gradient_of(model, digits.pictures[start : start + 1], labels[:1])
        assert labels_from_gradient(alone[-10:], 1) == (labels[0],)


def test_batches_leak_and_selective_uploads_leak_less(digits):
    leaks = attack_batches(
        digits.pictures[:50], digits.labels[:50], batches=(1, 2), uploads=(1.0, 0.02), restarts=1, random_state=1
    )
    whole, part = [leak for leak in leaks if leak.uploaded == 1], [leak for leak in leaks if leak.uploaded < 1]
    assert all(leak.recovered == leak.batch for leak in whole)
    assert sum(leak.recovered for leak in part) < 3
    assert [len(leak.cosines) for leak in leaks] == [1, 1, 2, 2]
    findings = batch_findings(leaks)
    assert [finding.verdict for finding in findings][:3:2] == ["leaks", "leaks"]


def test_repeats_are_other_batches_of_the_same_size(digits):
    leaks = attack_batches(
        digits.pictures[:50],
        digits.labels[:50],
        batches=(1, 2),
        uploads=(1.0,),
        iterations=2,
        repeats=3,
        random_state=1,
    )
    assert [(leak.batch, len(set(leak.cosines))) for leak in leaks] == [(1, 3), (2, 6)]
    assert "share of 6 pictures" in batch_findings(leaks)[1].measure


def test_bad_input_gets_a_sentence(digits, model):
    gradient = np.ones(1810)
    with pytest.raises(InputError, match="a batch of 1 to 8"):
        match_gradient(model, gradient, shape=(8, 8), batch=9)
    with pytest.raises(InputError, match="the model has 1810 trainable numbers"):
        match_gradient(model, np.ones(3), shape=(8, 8), batch=1)
    with pytest.raises(InputError, match="nothing to match"):
        match_gradient(model, 0 * gradient, shape=(8, 8), batch=1)
    with pytest.raises(UnknownNameError, match="cosine"):
        match_gradient(model, gradient, shape=(8, 8), batch=1, objective="cosin")
    biasless = nn.Sequential(nn.Flatten(), nn.Linear(64, 2, bias=False))
    with pytest.raises(InputError, match="Give the labels"):
        match_gradient(biasless, np.ones(128), shape=(8, 8), batch=1)
    with pytest.raises(InputError, match="pictures \\(n, height, width\\)"):
        attack_batches(digits.pictures[:1], digits.labels[:1])
