"""The division of a first step of Adam and RMSProp is undone as far as rounding lets it."""

import numpy as np
import pytest

from blindsight.audit.gradients import undo_division
from blindsight.audit.recovery import cosine
from blindsight.rng import science

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


@pytest.fixture
def model():
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.Sigmoid(), nn.Linear(24, 10)).double()
    generator = science(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.from_numpy(generator.uniform(-0.5, 0.5, size=tuple(parameter.shape))))
    return made


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


@pytest.mark.parametrize(
    ("kind", "scale", "least", "most"),
    [
        ("Adam", 1e-8, 0.999, 1.0),
        ("RMSprop", 1e-8, 0.999, 1.0),
        ("RMSprop", 1.0, 0.999, 1.0),
        ("Adam", 1.0, 0.6, 0.97),
    ],
)
def test_the_division_of_adam_and_rmsprop_is_undone_where_rounding_leaves_it(digits, kind, scale, least, most):
    """Of large gradients Adam's rounding leaves signs: a picture in black and white."""
    model = network("mlp")
    with torch.no_grad():
        model[2].weight *= scale  # which scales the gradient of the first layer
    picture, label = (digits.pictures[5:6] - digits.pictures.mean()).reshape(1, -1), digits.labels[5:6]
    before, sent = first_step(model, kind, picture, label)
    undone = undo_division(sent, kind.lower(), 1e-3, weights=before)
    rows = undone[: 64 * len(model[0].weight)].reshape(-1, 64)
    found = max(abs(cosine(row, picture[0])) for row in rows if row.any())
    assert least < found <= most
    assert undo_division(sent, "sgd", 1e-3) is sent


@pytest.mark.parametrize("kind", ["Adam", "RMSprop"])
@pytest.mark.parametrize("steps", [1, 5])
def test_of_several_steps_the_first_is_undone_where_the_others_had_no_gradient(kind, steps):
    gradient = np.outer([-1, 1], np.geomspace(1e-6, 1e-4, 20)).ravel()
    weights = torch.full((40,), 1e-3, requires_grad=True)
    before, made = weights.detach().numpy().copy(), getattr(torch.optim, kind)([weights], lr=1e-3)
    for step in range(steps):
        weights.grad = torch.tensor(gradient * (step == 0), dtype=torch.float32)
        made.step()
    undone = undo_division(weights.detach().numpy() - before, kind.lower(), 1e-3, steps, weights=before)
    np.testing.assert_allclose(undone, -gradient, rtol=0.05)
