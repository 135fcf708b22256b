"""Privacy facts: one page about one artefact, as HTML and as Markdown, for people who decide whether to use it. Nothing
that speaks against it is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, get_args

from blindsight.audit.checks import Audit
from blindsight.audit.finding import MEANINGS, Finding, Verdict
from blindsight.report.page import environment
from blindsight.statement import PrivacyStatement, rounded_up

_TONES: dict[Verdict, str] = {
    "refuted": "bad",
    "leaks": "bad",
    "as stated": "warn",
    "undecided": "warn",
    "not run": "warn",
    "not refuted": "good",
    "at chance": "good",
}
_SILENT = "Nothing: whoever made it promised nothing that could be broken."


@dataclass(frozen=True)
class Fact:
    """Rows of one verdict, in the order of their gravity."""

    verdict: Verdict
    tone: str
    meaning: str
    rows: Sequence[Finding]


@dataclass(frozen=True)
class PrivacyFacts:
    """What the page shows of an audit; `made` tells when, by which versions and on which machine."""

    audit: Audit
    made: Mapping[str, Any]

    @property
    def statement(self) -> PrivacyStatement | None:
        return self.audit.statement

    @property
    def verdict(self) -> tuple[str, str]:
        refuted, leaks, missing = (self.audit.count(each) for each in ("refuted", "leaks", "not run"))
        more = f" {missing} {'check was' if missing == 1 else 'checks were'} not run." if missing else ""
        if not self.audit.tested:
            return "warn", f"Nothing could be tested.{more}"
        if refuted:
            return "bad", f"{_count(refuted, 'promise')} broken by attacks.{more}"
        if leaks:
            return "bad", f"No promise was broken; {_count(leaks, 'attack')} worked where nothing was promised.{more}"
        return "good", f"No attack broke a promise. That proves nothing beyond the attacks that were made.{more}"

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        said = self.statement
        if said is None:
            return (("guarantee", "none stated"),)
        figures: list[tuple[str, str]] = [("guarantee", said.guarantee)]
        if said.epsilon is not None:
            figures.append(("epsilon", rounded_up(said.epsilon)))
        if said.delta:
            figures.append(("delta", f"{said.delta:.2g}"))
        if said.unit is not None:
            figures.append(("protects one", said.unit))
        return tuple(figures)

    @property
    def promise(self) -> str:
        return _SILENT if self.statement is None else self.statement.headline()

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The findings about claims, the worst first."""
        order = get_args(Verdict)
        rows = sorted(self.audit.claims, key=lambda row: order.index(row.verdict))
        return tuple(
            Fact(verdict, _TONES[verdict], MEANINGS[verdict], tuple(group))
            for verdict, group in groupby(rows, key=lambda row: row.verdict)
        )

    @property
    def circumstances(self) -> dict[str, str]:
        machine = self.made["machine"]
        return {
            "Audited": f"{self.made['made']}, for {self.audit.seconds:.0f} s",
            "By": ", ".join(f"{name} {number}" for name, number in self.made["versions"].items()),
            "On": f"{machine['system']} {machine['processor']}, {machine['cores']} cores",
            "Seed": f"{self.audit.seed}, effort {self.audit.effort:.3g}",
        }

    def to_html(self) -> str:
        """Return the page as one file, without script or network."""
        return environment().get_template("facts.html").render(page=self)

    def to_markdown(self) -> str:
        """Return the page as Markdown, for a repository or a model card."""
        lines = [f"# Privacy facts: {self.audit.subject}", "", f"**{self.verdict[1]}**", "", "| | |", "| --- | --- |"]
        lines += [f"| {name} | {value} |" for name, value in self.headline]
        lines += ["", "## What is promised", "", self.promise]
        if self.statement is not None:
            lines += ["", "## Who sees what", ""]
            lines += [f"- **{role}**: {sees}" for role, sees in self.statement.who_sees.items()]
            lines += ["", "## Not protected", "", *(f"- {text}" for text in self.statement.not_protected)]
            lines += ["", "## Assumed", "", *(f"- {text}" for text in self.statement.assumptions)]
        lines += ["", "## What attackers found"]
        for fact in self.facts:
            lines += ["", f"### {fact.verdict.capitalize()} ({len(fact.rows)}): {fact.meaning}", ""]
            lines += [f"- {row.claim}. {cell(row)}" for row in fact.rows]
        lines += ["", "## How it was measured", "", *(f"- {key}: {text}" for key, text in self.circumstances.items())]
        return "\n".join(lines) + "\n"


def cell(row: Finding) -> str:
    return row.measure if row.measured is None else f"{row.figure}: {row.measure}. Attack: {row.attack}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
