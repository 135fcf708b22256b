"""The chapter on sifting shows everything that was measured, escapes every name, and reads in any theme."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.data import PixelFeatures, load
from blindsight.report import Picture, Plot, StatementBlock, Table, Text, render_report
from blindsight.report.sifting import _attackers_plot, matrix_chapter, sift_chapter
from blindsight.sift.certificate import Certificate
from blindsight.sift.study import Guess, SiftResult, sift_demo
from blindsight.sift.trial import divide_rows

NAMES = {"smiling": "<b>smile</b>", "male": "m&le_face", "hat": "$100 hat$"}


@pytest.fixture(scope="module")
def result() -> SiftResult:
    """A small demo on faces whose attributes have awkward names."""
    dataset = load("faces", count=500, random_state=0, pictures_per_person=1)
    dataset = replace(dataset, attribute_names=tuple(NAMES.get(name, name) for name in dataset.attribute_names))
    assert dataset.images is not None
    pipeline = PixelFeatures(max_components=20).fit(dataset.images[divide_rows(500, dataset.persons, 0)[0]])
    public, private, other = NAMES.values()
    features = pipeline.transform(dataset.images)
    return sift_demo(dataset, features, pipeline=pipeline, public=public, private=private, others=(other,))


def test_chapter_holds_every_kind_of_block(result: SiftResult) -> None:
    blocks = sift_chapter(result).blocks
    kinds = [type(block) for block in blocks]
    assert kinds.count(StatementBlock) == len(result.sifted) == 2
    assert kinds.count(Plot) == 3  # attackers, trade-off, matrices
    assert kinds.count(Picture) == 2  # faces, regions
    assert kinds.count(Table) == 3  # policy, sifts, averages
    assert sum("What a person reads" in block.text for block in blocks if isinstance(block, Text)) == 2


def test_names_are_escaped_and_drawn_as_they_are(result: SiftResult) -> None:
    page = render_report("Sifting", [sift_chapter(result)], facts={})
    assert "<b>smile" not in page
    assert "&lt;b&gt;smile&lt;/b&gt;" in page
    assert "m&le" not in page
    assert "m&amp;le face" in page
    plots = [block.svg for block in sift_chapter(result).blocks if isinstance(block, Plot)]
    assert any("$100 hat$" in svg for svg in plots)  # no formula


def test_shown_faces_are_those_nobody_learned_from(result: SiftResult) -> None:
    images = load("faces", count=500, random_state=0, pictures_per_person=1).images
    assert images is not None
    assert result.faces is not None
    develop, judged = divide_rows(500, np.arange(500), 0)
    assert all(any(np.array_equal(face, images[row]) for row in judged) for face in result.faces)
    assert not any(np.array_equal(face, images[row]) for face in result.faces for row in develop)
    assert [len(numbers) for numbers in result.received] == [len(result.faces)] * 2


def test_plots_follow_the_theme(result: SiftResult) -> None:
    for block in sift_chapter(result).blocks:
        if isinstance(block, Plot):
            assert "var(--ink)" in block.svg
            assert "#0303" not in block.svg
            assert block.alt


def test_certificate_stands_among_the_attackers(result: SiftResult) -> None:
    (linear, symbols), certificate = result.sifted, Certificate("m&le_face", 0.03, 0.06, 0.95, 2, 150, 150, "Hoeffding")
    verification = replace(symbols.losses.verification, certificates=(certificate,))
    certified = replace(symbols, losses=replace(symbols.losses, verification=verification))
    blocks = sift_chapter(replace(result, sifted=[linear, certified])).blocks
    assert "anybody, certified" in next(block.svg for block in blocks if isinstance(block, Plot))
    assert any("Best possible guess" in block.text for block in blocks if isinstance(block, Text))
    table = next(block for block in blocks if isinstance(block, Table) and "lets out" in block.columns)
    assert table.rows[1][5] == "0.560"  # the certificate's bound, not that of the attackers tried


def test_parts_that_were_not_measured_are_left_out(result: SiftResult) -> None:
    bare = replace(result, faces=None, received=(), average=None, regions={}, trade_off=None, matrix=None)
    kinds = [type(block) for block in sift_chapter(bare).blocks]
    assert Picture not in kinds
    assert kinds.count(Plot) == 1


def test_lead_speaks_of_the_accepted_sift_that_costs_least(result: SiftResult) -> None:
    lead = sift_chapter(result).lead
    assert "<b>smile</b>" in lead
    assert f"{result.before.best.balanced_accuracy:.0%}" in lead


def test_matrix_has_a_chapter_of_its_own(result: SiftResult) -> None:
    assert result.matrix is not None
    chapter = matrix_chapter(result.matrix, threshold=0.1)
    assert f"{result.matrix.accepted} of 6 policies" in chapter.lead
    assert isinstance(chapter.blocks[0], Plot)
    assert "correlation of labels" in chapter.blocks[0].svg


def test_many_groups_of_attackers_fit_one_drawing() -> None:
    from blindsight.metrics import Interval

    groups = [(f"sift {i}", [Guess("linear SVM", 0.5 + i / 50, Interval(0.45, 0.7))]) for i in range(5)]
    svg = _attackers_plot(groups, 0.1)
    assert all(f"sift {i}" in svg for i in range(5))
