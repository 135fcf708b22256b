"""The chapter on private hashing: what its codes find, and the epsilon that is behind what it calls epsilon."""

from dataclasses import replace

from blindsight.papers.hashing.compare import PAPER, at_best
from blindsight.report import page
from blindsight.report.searching import search_chapter
from blindsight.search.evaluation import Retrieval
from blindsight.search.trial import SearchResult


def hashing_chapter(result: SearchResult) -> page.Chapter:
    """Show what is found by all ways to search (Tables 1 and 2, Figure 3), and precision against recall (Figure 2)."""
    chapter, paper = search_chapter(result), result.row(PAPER, result.epsilon)
    losses = [f"{loss:.0f} at epsilon {row.epsilon:g}" for row in result.rows if (loss := at_best(row)) is not None]
    lead, blocks = chapter.lead, [*chapter.blocks, *_curves(result)]
    if paper is not None:
        lead += (
            f" The paper's flipped codes find {paper.score:.3f} under the same name, with nothing proven of a record."
        )
        blocks.append(
            page.Text(
                "What the paper calls epsilon counts one bit and not the record. Were its hash function public, a "
                f"record would lose: {', '.join(losses)}."
            )
        )
    blocks += [
        page.StatementBlock(row.statement)
        for method in (PAPER, "PITQ")
        if (row := result.row(method, result.epsilon)) is not None and row.statement is not None
    ]
    return replace(chapter, lead=lead, blocks=tuple(blocks))


def _curves(result: SearchResult) -> list[page.Plot]:
    chosen = [result.row("ITQ"), result.row("LSH"), result.row("central", result.epsilon)]
    chosen += [row for row in result.rows if row.method == PAPER][:3]
    rows = [(row, row.ranking) for row in chosen if row is not None]
    if not any(isinstance(ranking, Retrieval) for _, ranking in rows):
        return []
    with page.drawing(7.2, 3.6) as (figure, axes):
        for colour, (row, ranking) in zip(page.SERIES, rows, strict=False):
            if isinstance(ranking, Retrieval):
                name = row.method if row.epsilon is None else f"{row.method}, epsilon {row.epsilon:g}"
                axes.plot(ranking.recall, ranking.precision, color=colour, label=name)
        axes.set_xlabel("recall")
        axes.set_ylabel("precision")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.legend(**page.LEGEND)
        svg = page.to_svg(figure)
    return [
        page.Plot(
            svg,
            caption="Looking up all codes within Hamming radius 0, 1, 2, ...: precision against recall, as the paper's "
            "Figure 2. A radius that finds nothing has precision 0.",
            alt="Precision-recall curves of codes with and without flipped bits.",
        )
    ]
