"""The report's chapter on search: what is found with and without privacy, and which epsilon is proven."""

import math
from collections.abc import Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes

from blindsight.data import contact_sheet
from blindsight.report import page
from blindsight.search.trial import ContestRow, SearchResult

_CELL = 48  # pixels of a picture's side, about
_PAPER_GREY = 250  # of the gap between strips


def search_chapter(result: SearchResult) -> page.Chapter:
    """Compare ways to search: what each finds, first answers, and what is proven."""
    study = result.study
    blocks: list[page.Block] = [
        page.Text(
            f"{len(study.indexed):,} private pictures of {result.dataset.name} are searched with "
            f"{len(study.queries):,} others; {len(study.public):,} more are public. A picture is {result.features}. An "
            "answer is right if it is of the query's class; mean average precision (mAP) is taken over the whole "
            "ranking, ties averaged."
        ),
        _budget_plot(result),
        _table(result),
    ]
    if result.dataset.images is not None and result.answers:
        blocks.append(_strips(result))
    blocks += [
        page.StatementBlock(row.statement)
        for method in ("codebook", "central")
        if (row := result.row(method, result.epsilon)) is not None and row.statement is not None
    ]
    return page.Chapter(title="Searching without showing", lead=_lead(result), blocks=tuple(blocks))


def _lead(result: SearchResult) -> str:
    best, open_codes = result.row("codebook", result.epsilon), result.row("ITQ")
    if best is None or open_codes is None:
        return "What a search finds depends on what a record may lose."
    return (
        f"With epsilon = {result.epsilon:g} per record, proven, the codebook finds mAP {best.score:.3f} where open "
        f"codes (ITQ) find {open_codes.score:.3f} and chance {result.study.chance:.3f}."
    )


def _budget_plot(result: SearchResult) -> page.Plot:
    asked_for = list(dict.fromkeys(row.method for row in result.rows if row.epsilon is not None))
    with page.drawing(7.2, 3.9) as (figure, axes):
        for colour, method in zip(cycle(page.SERIES), asked_for):
            proven = all(row.proven < math.inf for row in result.rows if row.method == method)
            claimed = "" if proven else ": epsilon only claimed"
            _line(axes, result, method, colour, "-" if proven else ":", "o" if proven else "x", f"{method}{claimed}")
        if (open_codes := result.row("ITQ")) is not None:
            axes.axhline(open_codes.score, color=page.INK, linewidth=1, linestyle="--", label="open codes (ITQ)")
        axes.axhline(result.study.chance, color=page.INK, linewidth=1, linestyle=(0, (1, 4)), label="chance")
        axes.set_xscale("log", base=2)
        asked = sorted({row.epsilon for row in result.rows if row.epsilon is not None})
        axes.set_xticks(asked, [f"{epsilon:g}" for epsilon in asked])
        axes.set_xlabel("epsilon per record (solid lines: proven)")
        axes.set_ylabel("mAP")
        axes.set_ylim(bottom=0)
        axes.legend(**page.LEGEND)
        svg = page.to_svg(figure)
    return page.Plot(
        svg,
        caption="What is found against what a record may lose. Dotted lines: epsilon is only claimed.",
        alt="mAP rises with epsilon: " + "; ".join(_spoken(result, method) for method in asked_for) + ".",
    )


def _line(axes: Axes, result: SearchResult, method: str, colour: str, style: str, marker: str, label: str) -> None:
    points = sorted((row.epsilon, row.score) for row in result.rows if row.method == method and row.epsilon)
    if points:
        axes.plot(*zip(*points, strict=True), linestyle=style, marker=marker, color=colour, label=label)


def _spoken(result: SearchResult, method: str) -> str:
    found = [f"{row.score:.2f} at {row.epsilon:g}" for row in result.rows if row.method == method and row.epsilon]
    return f"{method} {', '.join(found)}" if found else method


def _table(result: SearchResult) -> page.Table:
    budgets = sorted({row.epsilon for row in result.rows if row.epsilon is not None})
    methods = list(dict.fromkeys(row.method for row in result.rows))
    rows = []
    for method in methods:
        of_method = {row.epsilon: row for row in result.rows if row.method == method}
        some = next(iter(of_method.values()))
        scores = [of_method.get(epsilon, of_method.get(None)) for epsilon in budgets]
        cells = ["-" if row is None else f"{row.score:.3f} / {row.ranking.precision_at_10:.3f}" for row in scores]
        rows.append((method, some.group, *cells, _promise(list(of_method.values()))))
    return page.Table(
        ("method", "who is protected", *(f"mAP / P@10 at {epsilon:g}" for epsilon in budgets), "proven per record"),
        tuple(rows),
        caption="Every method at every epsilon; P@10 is the precision among the first ten. Local: protects a record "
        "wherever its code goes. Central: while codes stay at home.",
    )


def _promise(rows: Sequence[ContestRow]) -> str:
    """Return in a word what is proven of a method at whatever epsilon is asked for."""
    if any(row.statement is None or row.proven == math.inf for row in rows):
        return "nothing"
    delta = rows[0].statement.delta if rows[0].statement is not None else None
    return "(epsilon, delta)" if delta else "epsilon"


def _strips(result: SearchResult) -> page.Picture:
    images, study = result.dataset.images, result.study
    assert images is not None
    blank, pictures, captions = np.full_like(images[:1], _PAPER_GREY), [], []
    for number, place in enumerate(result.shown):
        pictures.append(images[study.queries.rows[place : place + 1]])
        captions.append("query")
        for found in (answers[number] for answers in result.answers.values()):
            right = study.indexed.labels[found] == study.queries.labels[place]
            pictures += [blank, images[study.indexed.rows[found]]]
            captions += ["", *("" if yes else "no" for yes in right)]
    names, rows = list(result.answers), len(result.shown)
    sheet = contact_sheet(
        np.concatenate(pictures),
        columns=len(captions) // rows,
        captions=captions,
        scale=max(1, round(_CELL / images.shape[1])),
    )
    return page.Picture(
        sheet,
        caption=f"One query per row, then the first answers of each search, from the left: {'; '.join(names)}. “No” "
        "stands under a wrong answer. Pictures with the same released symbol are equally near; the first are shown.",
        alt=f"{rows} rows of a query and its answers by {', '.join(names)}.",
    )
