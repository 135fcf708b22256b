"""Pictures from a network's update: the first linear layer's input, and small batches by matching their gradients."""

import copy

import numpy as np
import pytest

from blindsight.audit.gradients import linear_layers
from blindsight.audit.recovery import cosine
from blindsight.data import load
from blindsight.errors import InputError
from blindsight.learn.modules import ParameterLayout
from blindsight.papers.selective.gradients import (
    attack_batches,
    labels_from_gradient,
    match_gradient,
    recover_layer_input,
)
from blindsight.papers.selective.noise import SparseUpdate, calibrate_participant
from blindsight.rng import science
from blindsight.rounds.member import top_entries

torch = pytest.importorskip("torch")


nn = torch.nn


def network(kind, seed=0):
    layers = {
        "mlp": lambda: nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)),
        "cnn": lambda: nn.Sequential(
            nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 10)
        ),
    }
    model = layers[kind]().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(science(seed).normal(size=tuple(parameter.shape)) * 0.3))
    return model


def layout_of(model):
    return ParameterLayout.of((name, tuple(value.shape)) for name, value in model.named_parameters())


def sgd_update(model, inputs, labels, *, rate=0.05, steps=1):
    """What a participant sends after some plain steps."""
    before = torch.cat([value.detach().flatten() for value in model.parameters()]).clone()
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.from_numpy(inputs)), torch.from_numpy(labels))
        loss.backward()
        optimiser.step()
    after = torch.cat([value.detach().flatten() for value in model.parameters()])
    return (after - before).numpy()


def sparse(update, mask):
    places = np.flatnonzero(mask)
    return SparseUpdate(update.size, places, update[places].astype(np.float32))


@pytest.mark.parametrize("steps", [1, 3])
def test_the_picture_comes_back_exactly(digits, steps):
    """For the first layer also after several steps on the same picture: every one adds a multiple of it."""
    model = network("mlp")
    picture, label = digits.pictures[5].reshape(1, -1), digits.labels[5:6]
    found = recover_layer_input(sgd_update(model, picture, label, steps=steps), layout_of(model))
    assert found.layer == "0"
    assert found.known.all()
    assert found.scaled
    assert found.explained == pytest.approx(1)
    assert np.allclose(found.sample, picture[0], atol=1e-9)


def test_behind_convolutions_it_is_what_they_make_of_the_picture(digits):
    model, picture = network("cnn"), digits.pictures[6:7]
    with torch.no_grad():
        features = model[:4](torch.from_numpy(picture)).numpy()[0]
    found = recover_layer_input(sgd_update(model, picture, digits.labels[6:7]), layout_of(model))
    assert found.layer == "4"
    assert np.allclose(found.sample, features, atol=1e-9)


@pytest.mark.parametrize(("kind", "share", "least"), [("mlp", 0.2, 0.99), ("mlp", 0.1, 0.95), ("cnn", 0.1, 0.99)])
def test_the_largest_entries_are_enough(digits, kind, share, least):
    model, picture = network(kind), digits.pictures[7:8]
    inputs = picture.reshape(1, -1) if kind == "mlp" else picture
    with torch.no_grad():
        truth = inputs[0] if kind == "mlp" else model[:4](torch.from_numpy(inputs)).numpy()[0]
    update = sgd_update(model, inputs, digits.labels[7:8])
    found = recover_layer_input(sparse(update, top_entries(update, share)), layout_of(model))
    assert abs(cosine(found.sample, truth)) > least
    assert found.explained > 1 - 1e-9  # single precision
    # Wherever something is known, it is right.
    scale = 1.0 if found.scaled else (found.sample @ truth) / (found.sample @ found.sample)
    assert np.allclose(scale * found.sample[found.known], truth[found.known], atol=1e-5)


@pytest.mark.parametrize("bias_too", [True, False])
def test_random_entries_show_what_hangs_together(digits, bias_too):
    """Brute force: the features that a chain of uploaded entries joins, by rows and columns."""
    model, picture = network("mlp"), digits.pictures[8].reshape(1, -1)
    update, layout = sgd_update(model, picture, digits.labels[8:9]), layout_of(network("mlp"))
    mask = science(4).random(update.size) < 0.15
    mask[1024:1040] &= bias_too
    found = recover_layer_input(sparse(update, mask), layout)
    matrix, seen = update[:1024].reshape(16, 64), mask[:1024].reshape(16, 64) & (update[:1024] != 0).reshape(16, 64)
    joined = {int(np.argmax(np.sum((matrix * seen) ** 2, axis=1)))}
    for _ in range(16):
        columns = seen[sorted(joined)].any(axis=0)
        joined |= set(np.flatnonzero(seen[:, columns].any(axis=1)).tolist())
    assert found.scaled == bias_too
    assert set(np.flatnonzero(columns)) <= set(np.flatnonzero(found.known))
    ratio = picture[0][columns] / found.sample[columns]
    assert np.allclose(ratio, ratio[0], rtol=1e-4)
    if bias_too:
        assert ratio[0] == pytest.approx(1, rel=1e-4)


def test_several_pictures_are_a_mixture(digits):
    model, pictures = network("mlp", seed=2), digits.pictures[:3].reshape(3, -1)
    mixed = recover_layer_input(sgd_update(model, pictures, digits.labels[:3]), layout_of(model))
    assert mixed.explained < 0.999


def test_noise_on_the_update_ends_it(digits):
    """|cosine| of a random direction in 64 dimensions exceeds 0.6 with probability 2e-7."""
    model, picture = network("mlp"), digits.pictures[5].reshape(1, -1)
    update = sgd_update(model, picture, digits.labels[5:6])
    noisy = update + science(5).normal(size=update.size) * 100 * np.abs(update).max()
    found = recover_layer_input(noisy, layout_of(model))
    assert abs(cosine(found.sample, picture[0])) < 0.6
    assert found.explained < 0.5


def test_bad_input_gets_a_sentence():
    layout = layout_of(network("mlp"))
    assert linear_layers(layout) == ("0", "2")
    assert linear_layers(ParameterLayout.of([("weight", (3, 2)), ("bias", (3,))])) == ("",)
    with pytest.raises(InputError, match=r"'x'.*0, 2"):
        recover_layer_input(np.ones(layout.dimension), layout, layer="x")
    with pytest.raises(InputError, match="has 1210 numbers"):
        recover_layer_input(np.ones(7), layout)
    with pytest.raises(InputError, match="'0'"):
        recover_layer_input(np.zeros(layout.dimension), layout)
    with pytest.raises(InputError, match="there are: none"):
        recover_layer_input(np.zeros(4), ParameterLayout.of([("a.weight", (2, 2))]))
    assert "hidden" in repr(recover_layer_input(np.ones(layout.dimension), layout))


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
    options = {"objective": objective, "restarts": 1 if batch == 1 else 2, "random_state": 1}
    scale = 0.07 if objective == "cosine" else 1.0  # it needs no learning rate
    found = match_gradient(model, scale * gradient, labels.tolist(), shape=(8, 8), **options)
    assert found.cosines(pictures).min() > 0.99
    assert found.pictures.shape == (batch, 8, 8)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


def test_it_is_repeatable(digits, model):
    gradient = gradient_of(model, digits.pictures[:1], digits.labels[:1])
    label = digits.labels[:1].tolist()
    first, second = (
        match_gradient(model, gradient, label, shape=(8, 8), iterations=5, random_state=3) for _ in range(2)
    )
    assert np.array_equal(first.pictures, second.pictures)
    more = match_gradient(model, gradient, label, shape=(8, 8), iterations=5, restarts=3, random_state=3)
    assert more.mismatch <= first.mismatch


def test_a_noisy_gradient_gives_nothing_back(digits, model):
    """|cosine| of a random direction in 64 dimensions exceeds 0.6 with probability 2e-7."""
    gradient = gradient_of(model, digits.pictures[:1], digits.labels[:1])
    noisy = gradient + science(2).normal(size=gradient.size) * 20 * np.abs(gradient).max()
    found = match_gradient(model, noisy, digits.labels[:1].tolist(), shape=(8, 8), iterations=50, random_state=0)
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
    one, part_of_one, two, part_of_two = (row.measured.counts for row in leaks)
    assert (one, two) == ((1, 1), (2, 2))
    assert part_of_one[0] + part_of_two[0] < 3
    assert [leaks[0].verdict, leaks[2].verdict] == ["leaks", "leaks"]


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
    assert [len(set(row.details["cosines"])) for row in leaks] == [3, 6]
    assert "share of 6 pictures" in leaks[1].measure


def test_a_prior_of_smooth_pictures_recovers_faces_from_a_tenth_of_a_gradient():
    """Of 32x32 pixels, less their mean, with the total variation of Geiping et al."""
    faces = load("faces", count=40, random_state=0).images.mean(axis=-1)[:, :64, :64] / 255
    pictures = faces.reshape(40, 32, 2, 32, 2).mean(axis=(2, 4))
    pictures -= pictures.mean()
    options = {"batches": (1,), "uploads": (0.1,), "objective": "cosine", "restarts": 1, "random_state": 0}
    for iterations, gain in ((60, 0.05), (150, 0.01)):
        with_prior, without = (
            attack_batches(
                pictures, np.arange(40) % 4, smoothness=smoothness, iterations=iterations, repeats=2, **options
            )[0]
            for smoothness in (1e-3, 0.0)
        )
        assert np.mean(without.details["cosines"]) < np.mean(with_prior.details["cosines"]) - gain
    assert with_prior.measured.counts == (2, 2)


def first_step(model, kind, pictures, labels):
    """The weights before a first step of an optimiser of torch, and what it changes, as float32 has it."""
    model = model.float()
    before = torch.cat([value.detach().flatten() for value in model.parameters()]).clone()
    made = getattr(torch.optim, kind)(model.parameters(), lr=1e-3)
    inputs = torch.from_numpy(pictures.astype(np.float32))
    nn.functional.cross_entropy(model(inputs), torch.from_numpy(labels)).backward()
    made.step()
    after = torch.cat([value.detach().flatten() for value in model.parameters()])
    return before.numpy(), (after - before).numpy()


@pytest.mark.parametrize("kind", ["Adam", "RMSprop"])
def test_signs_of_a_first_step_are_a_picture_and_its_label_and_noise_hides_both(digits, kind):
    torch.manual_seed(0)
    layers = nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 10)
    model, found = nn.Sequential(*layers), {}
    epsilon_1 = calibrate_participant(epsilon=1.0, delta=1e-5, uploads=1, clip=1.0).noise_multiplier
    for name, sigma in {"plain": 0.0, "noisy": epsilon_1}.items():
        cosines, read = [], 0
        for place in range(4):
            picture, label = digits.pictures[place : place + 1], digits.labels[place : place + 1]
            _, sent = first_step(copy.deepcopy(model), kind, picture, label)
            sent = sent / np.linalg.norm(sent) + sigma * science(place).normal(size=sent.shape)
            told = labels_from_gradient(-sent[-10:], 1)
            options = {"objective": "signs", "smoothness": 0.05, "random_state": place}
            cosines.append(match_gradient(model, -sent, told, shape=(8, 8), **options).cosines(picture)[0])
            read += told == tuple(label)
        found[name] = np.array(cosines), read
    assert (found["plain"][0] > 0.98).all()
    assert found["plain"][1] == 4
    assert (found["noisy"][0] < 0.8).all()
    assert found["noisy"][1] < 4


def test_bad_input_gets_a_sentence_matching(digits, model):
    for call, words in [
        (lambda: match_gradient(model, np.ones(3), [0], shape=(8, 8)), "1810"),
        (lambda: match_gradient(model, np.zeros(1810), [0], shape=(8, 8)), "nothing"),
        (lambda: match_gradient(model, np.ones(1810), [0], shape=(8, 8), objective="x"), "cosine, signs, squares"),
        (lambda: attack_batches(digits.pictures[:1], digits.labels[:1]), "pictures"),
    ]:
        with pytest.raises(InputError, match=words):
            call()
