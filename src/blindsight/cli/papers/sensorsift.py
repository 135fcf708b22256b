"""`blindsight papers sensorsift`: sift as the paper on SensorSift does, and compare the ways to do so."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from blindsight.cli import options
from blindsight.cli.command import command, group, option
from blindsight.cli.options import show, split_names, table, terminal_progress
from blindsight.cli.sift import Asked, Collected, Judged, Seen, asked, collected, judged, load_labelled, seen
from blindsight.errors import InputError
from blindsight.files import cache_folder

if TYPE_CHECKING:
    from rich.table import Table

    from blindsight.papers.sensorsift.analysis import PolicyMatrix
    from blindsight.sift.policy import Policy
    from blindsight.sift.trial import Sifted

app = group("sensorsift", "Sift as the paper on SensorSift does, and compare the ways to do so.")


@command(app, "policy", example="papers sensorsift policy --public smiling --private male")
@collected
@asked
@seen
@judged
@options.numbers
@options.privacy
@options.report_folder("out/papers/sensorsift")
def study_one_policy(
    collected: Collected,
    asked: Asked,
    seen: Seen,
    judged: Judged,
    components: int,
    privacy: float | None,
    out: Path,
) -> None:
    """Study one policy by PPLS: the trade-off of K and lambda (Figure 3), and where attributes are seen (Figure 5)."""
    from blindsight.papers.sensorsift.chapter import policy_chapter
    from blindsight.papers.sensorsift.study import study_policy
    from blindsight.report import write_report
    from blindsight.sift.fit import make_learner
    from blindsight.sift.trial import Trial, prepare_data

    policy, seed = asked.read(), collected.seed
    verifier, made_by = judged.verifier(seed), seen.pipeline(seed)
    learner = make_learner("ppls", made_by, components=components, privacy=privacy, verifier=verifier)
    with terminal_progress() as progress:
        dataset = load_labelled(collected.collection(), progress, policy, judged.threshold)
        rows = prepare_data(dataset, made_by, random_state=seed, cache=cache_folder(), progress=progress)
        trial = Trial(rows, verifier=verifier)
        found = trial.measure("PPLS", trial.fit(learner, policy), policy, progress=progress)
        study = study_policy(dataset, trial, policy, found, learner, made_by, progress=progress)
    chapter = policy_chapter(study)
    report = write_report(out / "report.html", str(policy), [chapter], facts={"Seed": str(seed)}, private=True)
    curves = None if study.trade_off is None else study.trade_off.to_dict()
    show(
        {"report": str(report), "trade_off": curves} | study.result.to_dict(),
        f"{chapter.lead} {found.found.sentence}",
        f"The report is in {report}. It shows pictures: only you can read it.",
    )


@command(app, "matrix", example="papers sensorsift matrix --data faces")
@collected
@seen
@judged
@option("--attributes", default="", help="By commas; default: the six whose labels are most even.")
@option("--method", choices=("ppls", "leace", "adversarial"), default="ppls", help="Who makes the sifts.")
@options.numbers
@options.privacy
@options.report_folder("out/papers/sensorsift")
def policy_matrix(
    collected: Collected,
    seen: Seen,
    judged: Judged,
    attributes: str,
    method: Literal["ppls", "leace", "adversarial"],
    components: int,
    privacy: float | None,
    out: Path,
) -> None:
    """Try every attribute against every other (Figure 4): correlation, overlap, PubLoss, PrivLoss."""
    import blindsight.papers.sensorsift.adversarial  # noqa: F401  (one of the methods)
    from blindsight.papers.sensorsift.analysis import policy_matrix as try_policies
    from blindsight.papers.sensorsift.chapter import matrix_chapter
    from blindsight.papers.sensorsift.study import most_even
    from blindsight.report import write_report
    from blindsight.sift.fit import make_learner
    from blindsight.sift.labels import label_columns
    from blindsight.sift.trial import Trial, prepare_data

    seed = collected.seed
    verifier, made_by = judged.verifier(seed), seen.pipeline(seed)
    learner = make_learner(method, made_by, components=components, privacy=privacy, verifier=verifier)
    with terminal_progress() as progress:
        dataset = load_labelled(collected.collection(), progress)
        names = tuple(split_names(attributes)) or most_even(dataset)
        label_columns(dataset, names)
        rows = prepare_data(dataset, made_by, random_state=seed, cache=cache_folder(), progress=progress)
        found = try_policies(Trial(rows, verifier=verifier), names, method=learner, progress=progress)
    if len(found.problems) == len(found.cells):
        raise InputError(f"no two of these attributes have a sift: {found.problems[0]}")
    chapter = matrix_chapter(found, threshold=judged.threshold)
    report = write_report(out / "report.html", f"Attributes of {collected.name}", [chapter], facts={"Seed": str(seed)})
    _show_matrix(found, report)


@command(app, "compare", example="papers sensorsift compare --public smiling --private male")
@collected
@asked
@seen
@judged
@options.methods
@options.attackers("quick")
def compare_methods(
    collected: Collected, asked: Asked, seen: Seen, judged: Judged, methods: str, attackers: options.Attackers
) -> None:
    """Make sifts for one policy by every method, and name the accepted one that costs the app least."""
    from blindsight.data import PixelFeatures
    from blindsight.papers.sensorsift.compare import compare_sifts
    from blindsight.sift.trial import prepare_data

    policy, seed = asked.read(), collected.seed
    verifier, made_by = judged.verifier(seed, attackers), seen.pipeline(seed)
    with terminal_progress() as progress:
        dataset = load_labelled(collected.collection(), progress, policy, judged.threshold)
        rows = prepare_data(dataset, made_by, random_state=seed, cache=cache_folder(), progress=progress)
        only, scale = split_names(methods, ";") or None, not isinstance(made_by, PixelFeatures)
        found = compare_sifts(rows, policy, methods=only, verifier=verifier, scale=scale, progress=progress)
    _show_comparison(policy, found)


def _show_matrix(matrix: "PolicyMatrix", report: Path) -> None:
    from blindsight.papers.sensorsift.chapter import FEWEST_POLICIES

    tied = matrix.entanglement
    figures = {
        "Correlation of labels": tied.correlation,
        "Overlap of features (the largest is 1)": tied.overlap,
        "PubLoss (rows told, columns hidden)": matrix.figures("pub_loss"),
        "PrivLoss (rows told, columns hidden)": matrix.figures("priv_loss"),
    }
    averages = {"pub_loss": matrix.average("pub_loss"), "priv_loss": matrix.average("priv_loss")}
    sifts = len(matrix.cells) - len(matrix.problems)
    explained = asdict(matrix.regression()) if sifts >= FEWEST_POLICIES else None
    document = {"report": str(report), "accepted": matrix.accepted, "average": averages, "regression": explained}
    lines = [
        f"{matrix.accepted} of {len(matrix.cells)} policies pass; on average PubLoss is {averages['pub_loss']:.3f} "
        f"and PrivLoss {averages['priv_loss']:.3f}."
    ]
    if explained is not None:
        lines.append(
            f"Correlation and overlap explain {explained['r_squared']:.0%} of the variance of PrivLoss, correlation "
            f"{explained['correlation_share']:.0%} of that."
        )
    drawn = [_square(title, values, matrix.names) for title, values in figures.items()]
    show(document | matrix.to_dict(), *drawn, *lines, f"The report is in {report}.")


def _show_comparison(policy: "Policy", rows: "list[Sifted]") -> None:
    from blindsight.sift.trial import best

    columns = ("sift", "lets out", "PubLoss", "PrivLoss", "at most", "verdict")
    cells = [
        (
            row.name,
            row.lets_out,
            _cell(row.pub_loss, 3),
            _cell(row.priv_loss, 3),
            _cell(row.bound, 3),
            row.problem or f"{row.verdict}{', certified' * row.certified}",
        )
        for row in rows
    ]
    winner = best(rows)
    line = (
        "No sift is accepted."
        if winner is None
        else f"Of the accepted ones, {winner.name} costs the app least: PubLoss {winner.pub_loss:.3f} at PrivLoss "
        f"{winner.priv_loss:.3f}."
    )
    document = {"rows": [row.to_dict() for row in rows], "best": None if winner is None else winner.name}
    show(document, table(str(policy), columns, cells, numbers=columns[2:5]), line)


def _square(title: str, values: Any, names: tuple[str, ...]) -> "Table":
    rows = [
        (name, *("" if i == j else _cell(float(values[i, j])) for j in range(len(names))))
        for i, name in enumerate(names)
    ]
    return table(title, ("", *names), rows, numbers=names)


def _cell(value: float, digits: int = 2) -> str:
    return "none" if math.isnan(value) else f"{value:z.{digits}f}"
