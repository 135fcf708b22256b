"""`blindsight learn network` as a stranger meets it."""

import numpy as np
import pytest
from PIL import Image


def test_ones_own_module_is_trained_saved_and_applied(blindsight, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef net(classes):\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(192, classes))\n"
    )
    out = tmp_path / "run"
    model = ["--model", f"{tmp_path}/net.py:net", "-n", 600, "--owners", 3, "--out", out]
    proof = ["--epsilon", 8, "--delta", "1e-5", "--unit", "record", "--json"]
    said = blindsight("learn", "network", *model, *proof).document
    assert 7.9 < said["statement"]["epsilon"] <= 8
    assert (said["plan"]["rounds"], len(said["history"])) == (20, 20)
    (tmp_path / "pictures").mkdir()
    for number in range(2):
        Image.fromarray(np.full((20, 20, 3), 100 * number, dtype=np.uint8)).save(tmp_path / f"pictures/{number}.png")
    answers = blindsight("learn", "predict", out, tmp_path / "pictures", "--json").document["answers"]
    assert set(answers.values()) <= {str(digit) for digit in range(10)}
