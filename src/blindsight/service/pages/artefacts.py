"""The tabs Learn, Search and Audit: what the operator put into the service's folder, in the blocks of a report.

``runs/NAME`` is what `blindsight learn` wrote, ``indexes/NAME`` what `blindsight search build` wrote, ``audits/NAME``
what `blindsight audit` wrote; each may be a link. A run that goes on is shown as far as its ``history.json`` is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blindsight.errors import BlindsightError
from blindsight.files import storage_errors
from blindsight.report.page import Chapter, StatementBlock, Table, Text
from blindsight.service.errors import told
from blindsight.service.pages.rendering import LineChart
from blindsight.service.routes import Library, RunRecord, document, names_in
from blindsight.statement import PrivacyStatement

_AUDIT = "audit.json"


@dataclass(frozen=True)
class Artefact:
    """One chapter of a tab, with a chart of its rounds, and whether there is more to come."""

    chapter: Chapter
    chart: LineChart | None = None
    going: bool = False


def runs(library: Library) -> list[Artefact]:
    return [_or_why_not(name, lambda name=name: _run(library.run(name))) for name in library.runs()]


def indexes(library: Library) -> list[Artefact]:
    return [_or_why_not(name, lambda name=name: _index(library, name)) for name in library.indexes()]


def audits(folder: Path) -> list[Artefact]:
    folder = folder / "audits"
    found = names_in(folder, lambda one: (one / _AUDIT).is_file())
    return [_or_why_not(name, lambda name=name: _audit(name, document(folder / name / _AUDIT, dict))) for name in found]


def _or_why_not(name: str, made: Any) -> Artefact:
    """Return an artefact, or a chapter that says why it cannot be shown: the others are."""
    try:
        with storage_errors("read", Path(name)):
            found: Artefact = made()
        return found
    except (BlindsightError, KeyError, TypeError, ValueError) as error:
        why = told(error) if isinstance(error, BlindsightError) else "it is of another kind or version."
        return Artefact(Chapter(name, f"This cannot be shown: {why}", ()))


def _run(run: RunRecord) -> Artefact:
    history = run.history
    facts = {"data": run.about.get("data"), "owners": run.about.get("owners"), "features": run.about.get("features")}
    said = ", ".join(f"{name}: {value}" for name, value in facts.items() if value)
    lead = f"{said}. {len(history)} round{'s' if len(history) != 1 else ''}{'' if run.statement else ', not finished'}."
    rows = tuple((str(one.get("round", place)), _figure(one.get("score"))) for place, one in enumerate(history, 1))
    blocks: list[Any] = [Table(("round", "score"), rows, "The score of the model after each round.")] if rows else []
    if run.statement is not None:
        blocks.append(StatementBlock(run.statement))
    return Artefact(Chapter(run.name, lead, tuple(blocks)), _scores(history), going=run.statement is None)


def _scores(history: Sequence[Mapping[str, Any]]) -> LineChart | None:
    scores = [one.get("score") for one in history]
    known = [float(one) for one in scores if isinstance(one, int | float)]
    if len(known) < 2:
        return None
    numbers = list(range(1, len(scores) + 1))
    low, high = min(0.9, *known), max(1.0, *known)
    return LineChart(
        x=numbers,
        ticks=[str(number) for number in numbers],
        lines={"score": scores},
        levels={},
        x_label="round",
        y_label="score",
        low=int(10 * low) / 10,
        high=high,
        alt=f"The score by rounds, from {known[0]:.3f} to {known[-1]:.3f}.",
    )


def _index(library: Library, name: str) -> Artefact:
    index = library.index(name)
    lead = f"{len(index):,} pictures, mode {index.mode}. {index.statement.headline()}."
    return Artefact(Chapter(name, lead, (StatementBlock(index.statement),)))


def _audit(name: str, found: Mapping[str, Any]) -> Artefact:
    counts = ", ".join(f"{verdict}: {count}" for verdict, count in found["verdicts"].items() if count)
    rows = tuple((one["check"], one["claim"], one["verdict"], _figure(one["measured"])) for one in found["findings"])
    blocks: list[Any] = [Table(("check", "claim", "verdict", "measured"), rows, "What was attacked, and how it ended.")]
    blocks += [Text(note) for note in found["notes"]]
    if found["statement"] is not None:
        blocks.append(StatementBlock(PrivacyStatement.from_dict(found["statement"])))
    return Artefact(Chapter(name, f"An audit of {found['subject']}. {counts}.", tuple(blocks)))


def _figure(value: Any) -> str:
    if isinstance(value, Mapping):  # an interval
        value = value.get("estimate", value.get("value"))
    return f"{value:.3g}" if isinstance(value, int | float) else "-" if value is None else str(value)
