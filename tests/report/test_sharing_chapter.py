"""The chapter on selective sharing shows what was played: each figure in it is one of the result's."""

from functools import partial

import numpy as np
import pytest

from blindsight.errors import InputError
from blindsight.learn.linearmodel import Standardiser
from blindsight.learn.selective.accounting import figure
from blindsight.learn.softmaxtrainer import SoftmaxTrainer
from blindsight.learn.timeline.dayplan import plan_days
from blindsight.learn.timeline.figurelines import OURS
from blindsight.learn.timeline.play import play_days
from blindsight.learn.timeline.wishes import SharingWish
from blindsight.report import Plot, StatementBlock, Table, Text, render_report
from blindsight.report.learning import SharingResult, sharing_chapter
from blindsight.rng import seeded_bytes

LABELS = np.arange(400) % 2
INPUTS = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
INPUTS[:, 0] += 2 * LABELS
PROVEN = ("proven epsilon", "against whom")
BESIDE = {"delta": 1e-5, "clip": 1.0, "upload_clip": 0.5}


def played(wish: SharingWish, days: int = 9, participants: int = 3) -> SharingResult:
    plan = plan_days(LABELS, participants=participants, days=days, initial=0.1, random_state=0)
    make = partial(SoftmaxTrainer, standardiser=Standardiser.fit(INPUTS[plan.initial]), classes=2, learning_rate=0.2)
    initial = make(record_noise=None).initial()
    timeline = play_days(
        plan,
        INPUTS,
        LABELS,
        wish.lines(plan, steps=1),
        make,
        initial=initial,
        delta=wish.stated_delta,
        source=seeded_bytes(0),
    )
    return SharingResult(timeline, wish.cost(plan, timeline, initial.size, steps=1), participants)


@pytest.fixture(scope="module")
def proven() -> SharingResult:
    return played(SharingWish(share=0.5, epsilons=(8.0, 1.0), **BESIDE))


@pytest.fixture(scope="module")
def published() -> SharingResult:
    return played(SharingWish(share=0.2, noise="published", epsilon=1.0, bound=0.1))


def tables(result: SharingResult) -> list[Table]:
    return [block for block in sharing_chapter(result).blocks if isinstance(block, Table)]


def test_chapter_has_the_figure_bytes_epsilon_and_composition(proven: SharingResult) -> None:
    chapter = sharing_chapter(proven)
    assert [type(block) for block in chapter.blocks] == [Plot, Table, Plot, Plot, Table, Text, StatementBlock]
    ours = proven.timeline.line(OURS)
    assert f"from {ours.accuracy[0]:.1%} to {ours.accuracy[-1]:.1%}" in chapter.lead
    assert "3 participants keep their photos and upload 50%" in chapter.lead
    assert "10 parameters" in chapter.lead
    page = render_report("Sharing", [chapter], facts={})
    assert page.count('role="img"') == 3


def test_without_proven_noise_there_is_no_plot_of_epsilon(published: SharingResult) -> None:
    kinds = [type(block) for block in sharing_chapter(published).blocks]
    assert kinds.count(Plot) == 2
    assert not published.families


def test_families_are_lines_that_differ_in_epsilon_and_the_largest_is_drawn(proven: SharingResult) -> None:
    kinds = ("noise per photo", "noise per participant", "DP-FedAvg, equal uploads", "DP-FedAvg, equal bytes")
    assert tuple(proven.families) == kinds
    for lines in proven.families.values():
        assert [line.name.rpartition(" ")[2] for line in lines] == ["1", "8"]
        assert [round(line.epsilon or 0, 2) for line in lines] == [1.0, 8.0]
    drawn = [line.name for line in proven.principal]
    assert len(drawn) == 7 + 4
    assert not any(name.endswith("eps 1") for name in drawn)
    days, _, *_ = (block for block in sharing_chapter(proven).blocks if isinstance(block, Plot))
    assert all(name in days.svg for name in drawn)
    assert "eps 1<" not in days.svg
    assert all(line.name in days.alt for line in proven.timeline.lines)  # to be read, all of them


def test_lines_table_holds_first_middle_and_last_day(proven: SharingResult) -> None:
    lines = tables(proven)[0]
    assert lines.columns == ("method", "day 1", "day 5", "day 9", "all days", "uploads", "MB up", *PROVEN)
    rows = {row[0]: row for row in lines.rows}
    assert len(rows) == 15
    ours = proven.timeline.line(OURS)
    assert rows[OURS][1:4] == tuple(f"{ours.accuracy[day]:.3f}" for day in (0, 4, 8))
    assert rows[OURS][-2:] == ("-", "nobody")  # no noise: nothing is proven
    assert rows["noise per photo, eps 8"][-2:] == ("8.00", "everybody")
    assert rows["DP-FedAvg, equal uploads, eps 8"][-2:] == ("8.00", "everybody but the server")
    assert rows["never updated"][5:] == rows["local only"][5:]  # nothing leaves, in both
    assert rows["local only"][5:] == ("0", "0.000", "0.00", "everybody")


@pytest.mark.parametrize(("days", "columns"), [(1, ["day 1"]), (2, ["day 1", "day 2"])])
def test_few_days_are_told_once_each(days: int, columns: list[str]) -> None:
    found = played(SharingWish(share=0.5), days=days)
    assert [name for name in tables(found)[0].columns if name.startswith("day ")] == columns


def test_composition_goes_from_one_parameter_to_the_whole_run(published: SharingResult, proven: SharingResult) -> None:
    cost = published.cost
    table = tables(published)[-1]
    assert table.rows[0][:2] == ("one parameter in one upload, as the papers count", "1.00")
    whole = next(row for row in table.rows if "a participant, over 3 uploads" in row[0])
    assert whole[1] == figure(2 * 3)  # 20% of 10 parameters, three times
    assert table.columns[2] == "epsilon at delta = 1e-05"
    assert "nothing is proven" in table.caption
    assert cost.sentence() in [block.text for block in sharing_chapter(published).blocks if isinstance(block, Text)]
    assert {row[1] for row in tables(proven)[-1].rows} == {"infinite"}  # the shared line itself has no noise


def test_proven_noise_of_the_shared_line_is_called_proven() -> None:
    found = played(SharingWish(share=1.0, noise="participant", epsilon=4.0, delta=1e-5, upload_clip=0.5))
    assert "These figures are proven." in tables(found)[-1].caption
    assert tuple(found.families) == (OURS,)
    statement = next(block for block in sharing_chapter(found).blocks if isinstance(block, StatementBlock)).statement
    assert statement.guarantee != "none"
    assert statement.epsilon is not None
    assert statement.epsilon <= 4


def test_the_last_week_is_weighed_by_photos(proven: SharingResult) -> None:
    line, photos = proven.timeline.line(OURS), proven.timeline.photos
    right = sum(accuracy * count for accuracy, count in zip(line.accuracy[2:], photos[2:], strict=True))
    assert proven.settled(line) == pytest.approx(right / sum(photos[2:]))


def test_a_study_in_which_nothing_would_be_shared_is_refused() -> None:
    with pytest.raises(InputError, match="nobody gathers the 32 photos"):
        played(SharingWish(share=0.5), days=2, participants=20)


@pytest.mark.parametrize(("share", "said"), [(0.004, "upload 0.4%"), (0.125, "upload 12.5%"), (1.0, "upload 100%")])
def test_small_shares_are_not_rounded_away(share: float, said: str) -> None:
    assert said in sharing_chapter(played(SharingWish(share=share), days=2)).lead


def test_table_and_headline_agree_where_budgets_or_turns_end_uploads_early() -> None:
    proven = {"noise": "participant", "epsilon": 4.0, "delta": 1e-5, "upload_clip": 0.5}
    for wishes in ({}, {"scheme": "masks", "select": "random"}):
        found = played(SharingWish(share=1.0, **proven, **wishes))
        told = found.timeline.line(OURS).statement
        row = next(row for row in tables(found)[-1].rows if row[0].startswith("a participant"))
        assert f"epsilon = {row[2]} (" in told.headline()
        assert found.cost.epsilon == told.epsilon
