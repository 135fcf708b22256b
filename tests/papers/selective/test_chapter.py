"""The chapter on selective sharing shows what was simulated: each figure in it is one of the result's."""

from functools import partial

import numpy as np
import pytest

from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.papers.selective.chapter import sharing_chapter
from blindsight.papers.selective.days import schedule_days, simulate_days
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.papers.selective.study import OURS, SharingOptions, SharingResult
from blindsight.report import Plot, StatementBlock, Table, Text, render_report
from blindsight.rng import seeded_bytes
from blindsight.statement import rounded_up

LABELS = np.arange(400) % 2
INPUTS = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
INPUTS[:, 0] += 2 * LABELS


def played(options, days=9, participants=3):
    plan = schedule_days(LABELS, participants=participants, days=days, initial=0.1, random_state=0)
    make = partial(SoftmaxTrainer, standardiser=Standardiser.fit(INPUTS[plan.initial]), classes=2, learning_rate=0.2)
    initial = make(record_noise=None).initial()
    timeline = simulate_days(
        plan,
        INPUTS,
        LABELS,
        options.methods(plan, steps=1),
        make,
        initial=initial,
        delta=options.stated_delta,
        source=seeded_bytes(0),
    )
    return SharingResult(timeline, options.cost(plan, timeline, initial.size, steps=1), participants)


@pytest.fixture(scope="module")
def proven():
    return played(SharingOptions(share=0.5, epsilons=(8.0, 1.0), delta=1e-5, clip=1.0, upload_clip=0.5))


@pytest.fixture(scope="module")
def chapter(proven):
    return sharing_chapter(proven)


def tables(chapter):
    return [block for block in chapter.blocks if isinstance(block, Table)]


def test_chapter_has_the_figure_bytes_epsilon_and_composition(proven, chapter):
    assert [type(block) for block in chapter.blocks] == [Plot, Table, Plot, Plot, Table, Text, StatementBlock]
    ours = proven.timeline.method(OURS)
    for part in (f"from {ours.accuracy[0]:.1%} to {ours.accuracy[-1]:.1%}", "3 participants", "50%", "10 parameters"):
        assert part in chapter.lead
    assert render_report("Sharing", [chapter], facts={}).count('role="img"') == 3
    assert {row[1] for row in tables(chapter)[-1].rows} == {"infinite"}  # what is shared has itself no noise


def test_of_methods_that_differ_in_epsilon_the_largest_is_drawn(proven, chapter):
    kinds = ("noise per photo", "noise per participant", "DP-FedAvg, equal uploads", "DP-FedAvg, equal bytes")
    assert tuple(proven.families) == kinds
    for methods in proven.families.values():
        assert [method.name.rpartition(" ")[2] for method in methods] == ["1", "8"]
        assert [round(method.epsilon or 0, 2) for method in methods] == [1.0, 8.0]
    drawn = [method.name for method in proven.principal]
    assert len(drawn) == 7 + 4
    assert not any(name.endswith("eps 1") for name in drawn)
    days = chapter.blocks[0]
    assert isinstance(days, Plot)
    assert all(name in days.svg for name in drawn)
    assert "eps 1<" not in days.svg
    assert all(method.name in days.alt for method in proven.timeline.methods)  # to be read, all of them


def test_table_of_methods_holds_first_middle_and_last_day(proven, chapter):
    table = tables(chapter)[0]
    costs = ("all days", "uploads", "MB up", "proven epsilon", "against whom")
    assert table.columns == ("method", "day 1", "day 5", "day 9", *costs)
    rows = {row[0]: row for row in table.rows}
    assert len(rows) == 15
    ours = proven.timeline.method(OURS)
    assert rows[OURS][1:4] == tuple(f"{ours.accuracy[day]:.3f}" for day in (0, 4, 8))
    assert rows[OURS][-2:] == ("-", "nobody")  # no noise: nothing is proven
    assert rows["noise per photo, eps 8"][-2:] == ("8.00", "everybody")
    assert rows["DP-FedAvg, equal uploads, eps 8"][-2:] == ("8.00", "everybody but the server")
    assert rows["never updated"][5:] == rows["local only"][5:]  # nothing leaves, in both
    assert rows["local only"][5:] == ("0", "0.000", "0.00", "everybody")


@pytest.mark.parametrize(
    ("days", "share", "columns", "said"),
    [
        (1, 0.004, ["day 1"], "upload 0.4%"),
        (2, 0.125, ["day 1", "day 2"], "upload 12.5%"),
        (2, 1.0, ["day 1", "day 2"], "upload 100%"),
    ],
)
def test_few_days_are_told_once_and_small_shares_not_rounded_away(days, share, columns, said):
    chapter = sharing_chapter(played(SharingOptions(share=share), days=days))
    assert [name for name in tables(chapter)[0].columns if name.startswith("day ")] == columns
    assert said in chapter.lead


def test_composition_goes_from_one_parameter_to_the_whole_run():
    published = played(SharingOptions(share=0.2, noise="published", epsilon=1.0, bound=0.1))
    chapter = sharing_chapter(published)
    assert not published.families
    assert [type(block) for block in chapter.blocks].count(Plot) == 2  # none against epsilon
    table = tables(chapter)[-1]
    assert table.rows[0][:2] == ("one parameter in one upload, as the papers count", "1.00")
    whole = next(row for row in table.rows if "a participant, over 3 uploads" in row[0])
    assert whole[1] == rounded_up(2 * 3)  # 20% of 10 parameters, three times
    assert table.columns[2] == "epsilon at delta = 1e-05"
    assert "nothing is proven" in table.caption
    assert published.cost.sentence() in [block.text for block in chapter.blocks if isinstance(block, Text)]


def test_proven_noise_is_called_proven_as_the_statement_says_it():
    """Also where budgets end uploads early."""
    noise = SharingOptions(share=1.0, noise="participant", epsilon=4.0, delta=1e-5, upload_clip=0.5)
    found = played(noise)
    chapter = sharing_chapter(found)
    table, statement = tables(chapter)[-1], chapter.blocks[-1].statement
    assert "These figures are proven." in table.caption
    assert tuple(found.families) == (OURS,)
    assert statement.guarantee != "none"
    assert found.cost.epsilon == statement.epsilon <= 4
    row = next(row for row in table.rows if row[0].startswith("a participant"))
    assert f"epsilon = {row[2]} (" in statement.headline()


def test_the_last_week_is_weighed_by_photos(proven):
    method, photos = proven.timeline.method(OURS), proven.timeline.photos
    right = sum(accuracy * count for accuracy, count in zip(method.accuracy[2:], photos[2:], strict=True))
    assert proven.settled(method) == pytest.approx(right / sum(photos[2:]))


def test_a_study_in_which_nothing_would_be_shared_is_refused():
    with pytest.raises(InputError, match="32 photos"):
        played(SharingOptions(share=0.5), days=2, participants=20)
