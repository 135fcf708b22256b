"""How `blindsight sift` shows what it found: tables and sentences for a person, one document for a program."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blindsight.cli.terminal import show, table

if TYPE_CHECKING:
    from rich.table import Table

    from blindsight.sift.compare import SiftRow
    from blindsight.sift.policy import Policy
    from blindsight.sift.policymatrix import PolicyMatrix
    from blindsight.sift.study import SiftResult
    from blindsight.sift.verdict import Verification


def show_fit(result: "SiftResult", out: Path) -> None:
    """Show the policy's ceiling, what the sift costs and leaks at a quick look, and where everything lies."""
    (found,) = result.sifted
    seen = found.losses.verification
    document = {
        "sift": str(out / "sift.npz"),
        "report": str(out / "report.html"),
        "digest": found.sift.digest,
        "policy": {"public": list(result.policy.public), "private": list(result.policy.private)},
        "ceilings": dict(result.check.ceilings),
        "raw_accuracy": dict(result.raw),
        "raw_guess": result.before.best.balanced_accuracy,
        "accuracy": dict(found.losses.accuracies),
        "pub_loss": found.losses.pub_loss,
        "priv_loss": seen.priv_loss,
        "bound": seen.bound,
        "verdict": seen.verdict,
        "certificates": [one.to_dict() for one in seen.certificates],
        "statement": seen.statement.to_dict(),
    }
    rows = [
        (f"told: {name}", f"{result.raw[name]:.3f}", f"{accuracy:.3f}", f"{result.check.ceilings[name]:.3f}")
        for name, accuracy in found.losses.accuracies.items()
    ]
    for name in result.policy.private:
        raw, left = (f"{_best(verification, name):.3f}" for verification in (result.before, seen))
        rows.append((f"hidden: {name}", raw, left, f"{0.5 + result.threshold:.3f}"))
    columns = ("balanced accuracy", "raw features", "sifted", "at most")
    show(
        document,
        table(f"{result.policy} by {found.name}", columns, rows, numbers=columns[1:]),
        f"PubLoss {found.losses.pub_loss:.3f}, PrivLoss {seen.priv_loss:.3f}. {seen.sentence}",
        *(f"Certificate: {one.sentence}." for one in seen.certificates),
        f"A quick look; `blindsight sift verify {out}` decides. Sift, policy, statement and report are in {out}.",
    )


def show_verification(found: "Verification", written: Path | None) -> None:
    """Show every attacker with its interval, the certificates, and the verdict."""
    columns = ("attacker", "accuracy", "interval", "PrivLoss", "Eq. 5")
    several = len({result.attribute for result in found.results}) > 1
    rows = [
        (
            f"{result.attribute}: {result.attacker}" if several else result.attacker,
            f"{result.balanced_accuracy:.3f}",
            f"{result.interval.low:.3f} to {result.interval.high:.3f}",
            f"{result.priv_loss:.3f}",
            f"{result.mean_precision:.3f}",
        )
        for result in found.results
    ]
    setting = found.setting
    title = f"Balanced accuracies; {setting.train:,} rows to learn from, {setting.test:,} to be judged by"
    show(
        found.to_dict() | {"accepted": None if written is None else str(written)},
        table(title, columns, rows, numbers=columns[1:]),
        *(f"Certificate: {one.sentence}." for one in found.certificates),
        *(_pub_loss(name, one.summary()) for name, one in (found.public or {}).items()),
        found.sentence,
        "" if written is None else f"Apply this version of the sift: {written}",
    )


def show_matrix(matrix: "PolicyMatrix", report: Path) -> None:
    """Show the four matrices, their averages, and what explains the losses."""
    from blindsight.report.sifting import FEWEST_POLICIES

    tied = matrix.entanglement
    figures = {
        "Correlation of labels": tied.correlation,
        "Overlap of features (the largest is 1)": tied.overlap,
        "PubLoss (rows told, columns hidden)": matrix.figures("pub_loss"),
        "PrivLoss (rows told, columns hidden)": matrix.figures("priv_loss"),
    }
    averages = {"pub_loss": matrix.average("pub_loss"), "priv_loss": matrix.average("priv_loss")}
    sifts = sum(not cell.problem for cell in matrix.cells)
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


def show_comparison(policy: "Policy", rows: "list[SiftRow]") -> None:
    """Show what every method costs and leaks, and which accepted one costs least."""
    from blindsight.sift.compare import best

    columns = ("sift", "lets out", "PubLoss", "PrivLoss", "at most", "verdict")
    cells = [
        (
            row.method,
            _let_out(row),
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
        else f"Of the accepted ones, {winner.method} costs the app least: PubLoss {winner.pub_loss:.3f} at PrivLoss "
        f"{winner.priv_loss:.3f}."
    )
    document = {"rows": [row.to_dict() for row in rows], "best": None if winner is None else winner.method}
    show(document, table(str(policy), columns, cells, numbers=columns[2:5]), line)


def _let_out(row: "SiftRow") -> str:
    if row.sift is None:
        return "-" if row.problem else "everything"
    if row.alphabet is not None and row.alphabet <= _FEW:
        return f"1 of {row.alphabet}"
    return f"{row.numbers} number{'s' * ((row.numbers or 0) > 1)}"


_FEW = 256  # symbols that are told as such


def _square(title: str, values: Any, names: tuple[str, ...]) -> "Table":
    rows = [
        (name, *("" if i == j else _cell(float(values[i, j])) for j in range(len(names))))
        for i, name in enumerate(names)
    ]
    return table(title, ("", *names), rows, numbers=names)


def _cell(value: float, digits: int = 2) -> str:
    return "none" if math.isnan(value) else f"{value:z.{digits}f}"


def _best(found: "Verification", attribute: str) -> float:
    """Return the best guess of one attribute: of those that were tried, or of anybody where it is certified."""
    tried = [one.balanced_accuracy for one in found.results if one.attribute == attribute]
    return max([*tried, *(0.5 + one.estimate for one in found.certificates if one.attribute == attribute)])


def _pub_loss(name: str, summary: dict[str, Any]) -> str:
    return (
        f"The app reads {name} with {summary['balanced_accuracy']:.3f} (raw features "
        f"{summary['raw_balanced_accuracy']:.3f}): PubLoss {summary['pub_loss']:.3f}."
    )
