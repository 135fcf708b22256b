"""The losses of deep hashing on the shared test vectors, their gradients, and ADSH's update of the codes."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from blindsight.search.deep.losses import adsh_codes, adsh_loss, dpsh_loss, dsh_loss, hashnet_loss  # noqa: E402

VECTORS = json.loads((Path(__file__).parent / "vectors" / "hash-losses.json").read_text())
EXPECTED, ALPHA, GAMMA = VECTORS["expected"], VECTORS["alpha"], VECTORS["adsh_gamma"]
ROWS = torch.tensor(VECTORS["ind"])
LABELS = torch.tensor(VECTORS["labels"])
SIMILAR = LABELS[ROWS][:, None] == LABELS


def tensors(dtype):
    outputs, bank, codes = (torch.tensor(VECTORS[name], dtype=dtype) for name in ("u", "bank", "adsh_V0"))
    return outputs, bank, codes, SIMILAR.to(dtype)


@pytest.mark.parametrize(("dtype", "precision"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_the_losses_have_the_published_values(dtype, precision):
    outputs, bank, codes, similar = tensors(dtype)
    within = similar[:, ROWS]
    found = {
        "dpsh": dpsh_loss(outputs, bank, similar, ALPHA),
        "dsh": dsh_loss(outputs, bank, similar, ALPHA),
        "hashnet": hashnet_loss(outputs, outputs, within, ALPHA, beta=1.0),
        "adsh_obj": adsh_loss(outputs, codes, codes[ROWS], 2 * similar - 1, GAMMA),
    }
    for name, value in found.items():
        assert value.item() == pytest.approx(EXPECTED[name], rel=precision), name


def test_one_sweep_of_adsh_has_the_published_value():
    outputs, _, codes, similar = tensors(torch.float64)
    targets = 2 * similar - 1
    swept = adsh_codes(codes, outputs.tanh(), ROWS, targets.T @ outputs.tanh(), GAMMA)
    value = adsh_loss(outputs, swept, swept[ROWS], targets, GAMMA)
    assert value.item() == pytest.approx(EXPECTED["adsh_obj_after_V"], rel=1e-12)
    assert codes.tolist() == VECTORS["adsh_V0"]  # the codes given are left alone


@pytest.mark.parametrize("loss", ["dpsh", "dsh", "hashnet", "adsh"])
def test_gradients_are_those_of_finite_differences(loss):
    outputs, bank, codes, similar = tensors(torch.float64)
    functions = {
        "dpsh": lambda u: dpsh_loss(u, bank, similar, ALPHA),
        "dsh": lambda u: dsh_loss(u, bank, similar, ALPHA),
        "hashnet": lambda u: hashnet_loss(u, u, similar[:, ROWS], ALPHA, beta=3.0),
        "adsh": lambda u: adsh_loss(u, codes, codes[ROWS], 2 * similar - 1, GAMMA),
    }
    assert torch.autograd.gradcheck(functions[loss], (outputs.requires_grad_(),))


def test_huge_outputs_give_finite_losses_and_gradients():
    outputs = torch.full((2, 4), 1e4, requires_grad=True)
    similar = torch.eye(2)
    loss = dpsh_loss(outputs, outputs.detach(), similar, 0.1) + hashnet_loss(outputs, outputs, similar, 1.0, 7.0)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(outputs.grad).all()


def test_hashnet_weighs_rare_similar_pairs_as_much_as_all_others_together():
    """Outputs of zero give every pair ln 2: the weighted mean is 2 ln 2, however rare similar pairs are."""
    outputs = torch.zeros(10, 4)
    for similar in (torch.eye(10), (torch.arange(10) < 5).float()[:, None].expand(10, 10)):
        assert hashnet_loss(outputs, outputs, similar, 1.0, 1.0).item() == pytest.approx(2 * np.log(2), rel=1e-6)
    alone = hashnet_loss(outputs, outputs, torch.zeros(10, 10), 1.0, 1.0)  # no similar pair: nothing to divide by
    assert alone.item() == pytest.approx(np.log(2), rel=1e-6)


def test_each_column_of_adsh_is_the_best_of_all_and_the_loss_never_rises():
    rng = np.random.default_rng(0)
    smooth = torch.tensor(np.tanh(rng.normal(size=(4, 3))))
    rows, targets = torch.tensor([0, 2, 3, 5]), torch.tensor(rng.choice([-1.0, 1.0], size=(4, 6)))
    codes = torch.tensor(rng.choice([-1.0, 1.0], size=(6, 3)))

    def loss(candidate):
        return adsh_loss(smooth.atanh(), candidate, candidate[rows], targets, 2.0).item()

    expected = codes
    for bit in range(3):
        columns = torch.tensor(list(product([-1.0, 1.0], repeat=6)), dtype=torch.float64)
        tried = [torch.cat([expected[:, :bit], c[:, None], expected[:, bit + 1 :]], dim=1) for c in columns]
        expected = min(tried, key=loss)
    swept = adsh_codes(codes, smooth, rows, targets.T @ smooth, 2.0)
    assert torch.equal(swept, expected)
    losses = [loss(codes), loss(swept)]
    for _ in range(4):
        swept = adsh_codes(swept, smooth, rows, targets.T @ smooth, 2.0)
        losses.append(loss(swept))
    assert losses == sorted(losses, reverse=True)
    assert losses[1] < losses[0]
