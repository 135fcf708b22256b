"""`blindsight papers dphe`: learn by doubly permuted homomorphic encryption, and compare it with its baselines."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from blindsight.cli import options
from blindsight.cli.command import command, group, option
from blindsight.cli.learn import Adding, Collected, Seen, attributes, collected, prepare_study, seen
from blindsight.cli.options import show, table, terminal_progress, to_delta, to_positive
from blindsight.files import check_writable

app = group("dphe", "Yonetani et al. 2017: learn by doubly permuted homomorphic encryption.")


@command(app, "compare", example="papers dphe compare --data digits --epsilon 0.2 --delta 0.05")
@collected
@seen
@option("--epsilon", type=float, required=True, check=to_positive, help="What PRR10 and RA12 claim to spend.")
@option("--delta", type=float, required=True, check=to_delta, help="Their delta.")
@attributes
@options.rounds
@options.key_bits
@options.sparsity(0.9)
@options.report_folder("out/papers/dphe")
def compare(
    collected: Collected,
    seen: Seen,
    epsilon: float,
    delta: float,
    attributes: str,
    rounds: int,
    key_bits: int,
    sparsity: float | None,
    out: Path,
) -> None:
    """Learn the same data by every installed scheme and every baseline: accuracy, cost and privacy side by side."""
    from blindsight.papers.dphe.chapter import comparison_chapter
    from blindsight.papers.dphe.compare import compare_methods, cost_row, round_costs
    from blindsight.report import write_report

    asked: dict[str, Any] = {"key_bits": key_bits, "sparsity": sparsity}
    Adding(scheme="dphe", keys="subgroup", rounds=rounds, **asked).sums()
    collected.check()
    check_writable(out)
    study, _ = prepare_study(collected, seen, attributes)
    asked |= {"random_state": collected.seed}
    with terminal_progress() as progress:
        rows = compare_methods(study, epsilon=epsilon, delta=delta, rounds=rounds, **asked, progress=progress)
        weights = len(study.answers) * (study.public[0].shape[1] + 1)
        measured = round_costs(weights, len(study.owners), **asked, progress=progress)
    costs = [cost_row(scheme, cost) for scheme, cost in measured.items()]
    facts = {"Command": "blindsight papers dphe compare", "Data": collected.name, "Seed": str(collected.seed)}
    chapter = comparison_chapter(collected.name, rows, costs)
    report = write_report(out / "report.html", f"Learning {collected.name} by every method", [chapter], facts=facts)
    columns = ("method", "accuracy", "CPU s", "MB/owner", "privacy")
    cells = [
        (
            *(row.method, f"{row.score:.3f}", f"{row.seconds:.1f}"),
            "-" if row.megabytes is None else f"{row.megabytes:.2f}",
            "-" if row.statement is None else row.statement.headline(),
        )
        for row in rows
    ]
    show(
        {"methods": [row.to_dict() for row in rows], "costs": [asdict(row) for row in costs], "report": str(report)},
        table(f"Learning {collected.name}", columns, cells, numbers=columns[1:4]),
        f"The report is in {report}.",
    )
