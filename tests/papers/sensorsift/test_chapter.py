"""The chapters on SensorSift hold the figures of the paper, and escape every name."""

import math
from dataclasses import replace

import pytest

from blindsight.data import PixelFeatures, load
from blindsight.papers.sensorsift.analysis import policy_matrix
from blindsight.papers.sensorsift.chapter import matrix_chapter, policy_chapter
from blindsight.papers.sensorsift.study import most_even, study_policy
from blindsight.report import Picture, Plot, Table, render_report
from blindsight.report.sifting import sift_chapter
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.trial import QUICK, Trial, divide_rows
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

NAMES = {"smiling": "<b>smile</b>", "male": "m&le_face", "hat": "$100 hat$"}


@pytest.fixture(scope="module")
def faces():
    """Faces whose attributes have awkward names."""
    dataset = load("faces", count=500, random_state=0, pictures_per_person=1)
    return replace(dataset, attribute_names=tuple(NAMES.get(name, name) for name in dataset.attribute_names))


@pytest.fixture(scope="module")
def tried(faces):
    pipeline = PixelFeatures(max_components=20).fit(faces.images[divide_rows(500, faces.persons, 0)[0]])
    labels = {name: faces.attribute(name) for name in NAMES.values()}
    data = VerificationSet(pipeline.transform(faces.images), labels, faces.persons)
    return pipeline, Trial(data, verifier=Verifier(QUICK[:1], stop_early=False, cross_fitted=0))


def test_a_policy_has_its_trade_off_and_its_regions(faces, tried):
    (pipeline, trial), policy = tried, Policy(("<b>smile</b>",), ("m&le_face",))
    learner = PPLS(2, math.inf, scale=False)
    found = trial.measure("PPLS", trial.fit(learner, policy), policy)
    study = study_policy(faces, trial, policy, found, learner, pipeline)
    assert set(study.regions) == {"<b>smile</b>", "m&le_face", "where the sift looks"}
    assert set(study.trade_off.curves) == {0.0, math.inf}
    chapter = policy_chapter(study)
    more = chapter.blocks[len(sift_chapter(study.result).blocks) :]
    assert [type(block) for block in more] == [Plot, Picture]
    page = render_report("Sifting", [chapter], facts={})
    assert "<b>smile" not in page
    assert "&lt;b&gt;smile&lt;/b&gt;" in page


def test_the_matrix_has_a_chapter_of_its_own(tried):
    matrix = policy_matrix(tried[1], tuple(NAMES.values()), method=PPLS(scale=False))
    chapter = matrix_chapter(matrix, threshold=0.1)
    assert f"{matrix.accepted} of 6 policies" in chapter.lead
    assert [type(block) for block in chapter.blocks][:2] == [Plot, Table]
    assert "correlation of labels" in chapter.blocks[0].svg
    assert "$100 hat$" in chapter.blocks[0].svg  # no formula


def test_attributes_of_a_matrix_are_the_most_even(faces):
    chosen = most_even(faces)
    assert len(chosen) == 6
    shares = {name: abs(faces.attribute(name).mean() - 0.5) for name in faces.attribute_names}
    assert max(shares[name] for name in chosen) <= min(shares[name] for name in set(shares) - set(chosen))
