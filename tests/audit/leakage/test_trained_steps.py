"""A hinge step carries its sample exactly where the margin is at most one."""

import numpy as np

from blindsight.audit.leakage.study import trained_step_findings
from blindsight.data import load


def test_steps_of_a_trained_model_show_samples_within_the_margin_and_no_others():
    digits = load("digits", count=600, random_state=0)
    rows = digits.images.reshape(600, -1) / 255
    within, beyond = trained_step_findings(rows, np.where(digits.labels % 2, 1, -1), random_state=0)
    assert (within.verdict, within.measured.value) == ("leaks", 1)
    assert (beyond.verdict, beyond.measured.value) == ("not refuted", 0)
    assert 20 < within.details["with margins of one at most"] < within.details["steps"] == 200
