"""Pictures of 32x32 from a tenth of a gradient: the prior of smooth pictures brings them closer."""

import numpy as np
import pytest

from blindsight.audit.leakage.networks import _gradient, _network, match_gradient
from blindsight.data import load
from blindsight.learn.sparsity import top_entries


@pytest.mark.slow
def test_a_prior_brings_matched_pictures_closer():
    pytest.importorskip("torch")
    faces = load("faces", count=40, random_state=0).images.astype(np.float64).mean(axis=-1)[:3] / 255
    side = faces.shape[1] // 32
    pictures = faces[:, : 32 * side, : 32 * side].reshape(3, 32, side, 32, side).mean(axis=(2, 4))
    pictures -= pictures.mean()
    cosines = {}
    for smoothness in (0.0, 1e-3):
        found = []
        for seed, picture in enumerate(pictures):
            model = _network((32, 32), 4, np.random.default_rng(seed))
            gradient = _gradient(model, picture[None], np.zeros(1))
            matched = match_gradient(
                model,
                gradient,
                shape=(32, 32),
                batch=1,
                labels=(0,),
                objective="cosine",
                smoothness=smoothness,
                iterations=60,
                uploaded=top_entries(gradient, 0.1),
                random_state=0,
            )
            found.append(matched.cosines(picture[None])[0])
        cosines[smoothness] = np.mean(found)
    assert cosines[1e-3] > cosines[0.0] + 0.05
