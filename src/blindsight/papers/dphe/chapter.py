"""The report's chapter on the methods that the paper compares, with what is proven and what a round costs."""

from collections.abc import Sequence

from blindsight.papers.dphe.compare import CostRow, MethodRow
from blindsight.report import page


def comparison_chapter(data: str, methods: Sequence[MethodRow], costs: Sequence[CostRow]) -> page.Chapter:
    """Return accuracies (as in Tables 1, 3 and 4), costs of a round (as in Table 2) and who learns what."""
    best = max(methods, key=lambda row: row.score)
    accuracies = page.Table(
        ("method", "accuracy", "CPU time", "sent per owner", "what is proven"),
        tuple(
            (
                *(row.method, f"{row.score:.1%}", f"{row.seconds:.1f} s"),
                "-" if row.megabytes is None else f"{row.megabytes:.2f} MB",
                "-" if row.statement is None else row.statement.headline(),
            )
            for row in methods
        ),
        caption="Accuracy on pictures that nobody trained on, averaged over classes or attributes; CPU time of all "
        "parties and rounds.",
    )
    seconds = page.Table(
        ("scheme", "encrypt (one owner)", "aggregate", "decrypt", "sent per owner"),
        tuple(
            (
                row.scheme,
                *(f"{spent:.3f} s" for spent in (row.encrypt_seconds, row.aggregate_seconds, row.decrypt_seconds)),
                f"{row.megabytes_sent:.3f} MB",
            )
            for row in costs
        ),
        caption="CPU time of one round of a model of this size with every scheme installed, measured in this run.",
    )
    meaning = page.Table(
        ("scheme", "who learns what", "a drop-out"),
        tuple((row.scheme, row.who_learns, row.drop_out) for row in costs),
        caption="What each scheme means for the parties.",
    )
    return page.Chapter(
        title="DPHE and its baselines",
        lead=f"The same owners learn {data} by every scheme and every baseline; {best.method} is the most accurate, "
        f"with {best.score:.1%}.",
        blocks=(accuracies, seconds, meaning),
    )
