"""`blindsight papers hashing`: search as the paper on private hashing does, and as Blindsight does."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from blindsight.cli import options
from blindsight.cli.command import command, group, option
from blindsight.cli.options import show, split_names, split_numbers, table, terminal_progress, to_features
from blindsight.cli.search import described, load_source, source_of
from blindsight.files import cache_folder

if TYPE_CHECKING:
    from blindsight.search.trial import ContestRow

app = group("hashing", "Search as the paper on private hashing does, and as Blindsight does.")


@command(app, "compare", example="papers hashing compare --data digits")
@option("--data", default="digits", help="A folder with a subfolder per class, or a collection.")
@option("--epsilons", default="1,2,4,8", help="Budgets to compare, separated by commas.")
@options.central_delta
@options.bits(48)
@options.methods
@option(
    "--features",
    default="auto",
    check=to_features,
    help="pixels, embedding, thumbnail, an ONNX model's path, or auto: embedding for photographs.",
)
@option("--queries", default=200, help="How many pictures to ask with.", min=1)
@option("--public-share", default=0.5, help="How much of the data is public.")
@options.count
@options.report_folder("out/papers/hashing")
@options.seed
def compare_searches(
    data: str,
    epsilons: str,
    delta: float,
    bits: int,
    methods: str,
    features: str,
    queries: int,
    public_share: float,
    count: int | None,
    out: Path,
    seed: int,
) -> None:
    """Search one collection by every method at every epsilon (Tables 1 and 2): found, claimed, proven."""
    from blindsight.data import pipeline
    from blindsight.data.features import reading_side
    from blindsight.dp.accounting import check_positive
    from blindsight.papers.hashing.chapter import hashing_chapter
    from blindsight.report import write_report
    from blindsight.search.gallery import choose_features
    from blindsight.search.trial import SearchResult, SearchStudy, contest, divide

    budgets = split_numbers(epsilons)
    for budget in budgets:
        check_positive("epsilon", budget)
    asked = split_names(methods, ";") or None
    with terminal_progress() as progress:
        source = source_of(data, count, seed)
        features, note = choose_features(source) if features == "auto" else (features, "")
        dataset = load_source(replace(source, side=reading_side(pipeline(features))), progress)
        division = divide(dataset, queries=queries, public=public_share, random_state=seed)
        study = SearchStudy.prepare(dataset, division, pipeline(features), cache=cache_folder(), progress=progress)
        rows = contest(
            study, epsilons=budgets, delta=delta, methods=asked, bits=bits, random_state=seed, progress=progress
        )
    result = SearchResult.of(dataset, study, rows, described(features), epsilon=_middle(budgets))
    report = write_report(
        out / "report.html", f"Searching {data}", [hashing_chapter(result)], facts={"Seed": str(seed)}, private=True
    )
    columns = ("method", "protects", "epsilon", "proven per record", "mAP", "P@10")
    cells = [_compared(row) for row in rows]
    document = {"report": str(report), "chance": study.chance, "methods": [row.to_dict() for row in rows]}
    show(
        document,
        table(f"Searching {data}; chance is {study.chance:.3f}", columns, cells, numbers=("epsilon", "mAP", "P@10")),
        *((note,) if note else ()),
        f"The report is in {report}. It shows pictures: only you can read it.",
    )


def _middle(budgets: list[float]) -> float:
    """Return the budget shown in pictures: 4 if it was asked for, else the middle one."""
    return 4.0 if 4.0 in budgets else sorted(budgets)[len(budgets) // 2]


def _compared(row: "ContestRow") -> tuple[str, ...]:
    from blindsight.papers.hashing.compare import at_best

    claim = None if row.statement is None else row.statement.claim
    promise = row.promise if claim is None else f"{row.promise}, claims {claim.claimed}"
    if (loss := at_best(row)) is not None:
        promise += f", {loss:.0f} at best"
    found = f"{row.score:.3f}", f"{row.ranking.precision_at_10:.3f}"
    return row.method, row.group, "-" if row.epsilon is None else f"{row.epsilon:g}", promise, *found
