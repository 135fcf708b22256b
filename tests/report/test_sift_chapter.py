"""The chapter on sifting shows everything that was measured, escapes every name, and reads in any theme."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.data import PixelFeatures, load
from blindsight.metrics import Interval
from blindsight.report import Picture, Plot, StatementBlock, Table, Text, render_report
from blindsight.report.sifting import _attackers_plot, sift_chapter
from blindsight.sift.certificate import Certificate
from blindsight.sift.fit import Guess, sift_demo
from blindsight.sift.trial import divide_rows

NAMES = {"smiling": "<b>smile</b>", "male": "$m&le_face$"}


@pytest.fixture(scope="module")
def faces():
    """Faces whose attributes have awkward names."""
    dataset = load("faces", count=500, random_state=0, pictures_per_person=1)
    return replace(dataset, attribute_names=tuple(NAMES.get(name, name) for name in dataset.attribute_names))


@pytest.fixture(scope="module")
def result(faces):
    pipeline = PixelFeatures(max_components=20).fit(faces.images[divide_rows(500, faces.persons, 0)[0]])
    public, private = NAMES.values()
    return sift_demo(faces, pipeline.transform(faces.images), public=public, private=private)


@pytest.fixture(scope="module")
def chapter(result):
    return sift_chapter(result)


def test_chapter_holds_every_kind_of_block(chapter, result):
    kinds = [type(block) for block in chapter.blocks]
    assert kinds.count(StatementBlock) == len(result.sifted) == 2
    assert kinds.count(Plot) == 1
    assert kinds.count(Picture) == 1
    assert kinds.count(Table) == 2  # policy, sifts
    assert sum("What a person reads" in block.text for block in chapter.blocks if isinstance(block, Text)) == 2
    assert "<b>smile</b>" in chapter.lead
    assert f"{result.before.best.balanced_accuracy:.0%}" in chapter.lead


def test_names_are_escaped_and_drawn_as_they_are_in_any_theme(chapter):
    page = render_report("Sifting", [chapter], facts={})
    for raw, escaped in (("<b>smile", "&lt;b&gt;smile&lt;/b&gt;"), ("m&le", "m&amp;le face")):
        assert raw not in page
        assert escaped in page
    plots = [block for block in chapter.blocks if isinstance(block, Plot)]
    assert all("var(--ink)" in plot.svg and "#0303" not in plot.svg and plot.alt for plot in plots)


def test_shown_faces_are_those_nobody_learned_from(result, faces):
    develop, judged = divide_rows(500, np.arange(500), 0)
    for face in result.faces:
        places = np.flatnonzero((faces.images == face).all(axis=(1, 2, 3)))
        assert len(places)
        assert set(places) <= set(judged) - set(develop)
    assert [len(numbers) for numbers in result.received] == [len(result.faces)] * 2


def test_certificates_are_told_and_what_was_not_measured_is_left_out(result):
    (linear, symbols), certificate = (
        result.sifted,
        Certificate("$m&le_face$", 0.03, 0.06, 0.95, 2, 150, 150, "Hoeffding"),
    )
    certified = replace(symbols, verification=replace(symbols.found, certificates=(certificate,)))
    bare = {"faces": None, "received": ()}
    blocks = sift_chapter(replace(result, sifted=[linear, certified], **bare)).blocks
    (plot,) = (block for block in blocks if isinstance(block, Plot))
    assert "anybody, certified" in plot.svg
    assert any("Best possible guess" in block.text for block in blocks if isinstance(block, Text))
    table = next(block for block in blocks if isinstance(block, Table) and "lets out" in block.columns)
    assert table.rows[1][5] == "0.560"  # the certificate's bound, not that of the attackers tried
    assert not any(isinstance(block, Picture) for block in blocks)


def test_many_groups_of_attackers_fit_one_drawing():
    groups = [(f"sift {i}", [Guess("linear SVM", 0.5 + i / 50, Interval(0.45, 0.7))]) for i in range(5)]
    svg = _attackers_plot(groups, 0.1)
    assert all(f"sift {i}" in svg for i in range(5))
