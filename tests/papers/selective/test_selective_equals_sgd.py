"""One participant that shares and downloads everything is plain stochastic gradient descent, bit for bit."""

from itertools import pairwise

import numpy as np
import pytest

from blindsight.papers.selective.noise import Sharing
from blindsight.papers.selective.protocol import ParameterServer, Participant, simulate

torch = pytest.importorskip("torch")

from blindsight.learn.modules import FlatParameters  # noqa: E402
from blindsight.learn.training import NetworkTrainer  # noqa: E402
from tests.learn.nets import as_tensor, plain_loop, seeded_module  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.usefixtures("one_thread")
BATCH, STEPS, SIDE, CLASSES = 8, 20, 8, 3


def tiny_cnn():
    layers = (nn.Conv2d, (3, 4, 3)), (nn.ReLU, ()), (nn.MaxPool2d, (2,)), (nn.Flatten, ()), (nn.Linear, (36, CLASSES))
    return seeded_module(lambda: nn.Sequential(*[layer(*sizes) for layer, sizes in layers]), seed=5)


def photos():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, CLASSES, BATCH * STEPS)
    images = rng.integers(0, 160, size=(BATCH * STEPS, SIDE, SIDE, 3), dtype=np.uint8)
    images[np.arange(len(labels)), labels] += 90  # a bright line, at a height of its own for each class
    return images, labels


def plain(rate):
    """Return the parameters before, and after each step of a torch program that knows nothing of sharing."""
    module = tiny_cnn()
    images, labels = photos()
    rows = [slice(start, start + BATCH) for start in range(0, len(labels), BATCH)]
    passed = [FlatParameters(module).read()]
    plain_loop(
        module,
        torch.optim.SGD(module.parameters(), lr=rate),
        [(as_tensor(images[batch]), labels[batch]) for batch in rows],
        after=lambda: passed.append(FlatParameters(module).read()),
    )
    return passed


def shared(rate, sharing, download=1.0):
    """Return the server's parameters before, and after each upload."""
    module = tiny_cnn()
    trainer = NetworkTrainer(module, learning_rate=rate, batch=BATCH)
    server = ParameterServer(FlatParameters(module).read(), download=download)
    ann = Participant("ann", trainer, sharing, batch=BATCH, random_state=0)
    ann.gather(*photos())
    passed = [server.parameters.copy()]
    for exchange in simulate(server, [ann]):
        assert exchange.refused is None
        passed.append(server.parameters.copy())
    return passed


@pytest.mark.parametrize("download", [1.0, 0.3])
def test_sharing_everything_is_plain_sgd_bit_for_bit(download):
    """The learning rate is a power of two, for which a step of torch rounds once: rate * gradient is exact.

    The server adds in float32, so what arrives is fl(before + change), and a change that hits fl(before - step) exists:
    -step itself. With another rate torch's fused multiply-add rounds a product that no float32 number is, and where a
    parameter changes its sign no change leads to the same bits (`change_between`). A participant that is alone
    has all parameters already, so it does not matter what it downloads.
    """
    alone, together = plain(0.125), shared(0.125, Sharing(1.0), download)
    assert len(alone) == len(together) == STEPS + 1
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))  # signs of zeros as well
    assert all((after != before).any() for before, after in pairwise(alone))


def test_other_learning_rates_agree_to_the_last_places():
    alone, together = plain(0.1), shared(0.1, Sharing(1.0))
    np.testing.assert_allclose(together[-1], alone[-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("sharing", [Sharing(0.5), Sharing(1.0, half=True), Sharing(1.0, bound=1e-3)])
def test_sharing_less_or_less_exactly_is_another_way(sharing):
    assert (shared(0.125, sharing)[-1] != plain(0.125)[-1]).any()
