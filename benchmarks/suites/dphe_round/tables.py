"""The tables of a round: first whether the targets are met, then what everything costs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.results import Result
from benchmarks.suites.dphe_round.cases import (
    CONSERVATIVE,
    CROWD,
    CROWD_SETTING,
    DENSE,
    GROWTH,
    KEY_BITS,
    NARROW,
    PAPER_BITS,
    SINGLE,
    WEIGHTS,
    Setting,
    full_cases,
    quick_cases,
)
from benchmarks.table import Cell, Grid, Row, Section

PAPER = {0.0: 620, 79.1: 186, 95.6: 62}  # Table 2: seconds of encryption by sparsity

_TOTAL = ("encrypt", "aggregate", "decrypt")
_AS_PUBLISHED = ("encrypt", "aggregate", "decrypt all")
_COLUMNS = ("", "encrypt, a user", "(table)", "aggregate", "decrypt", "total", "MB a user", "measured")

Run = tuple[int, str]


class Pick(NamedTuple):
    """Figures that belong together: those of these names, added up, of one method in one setting."""

    setting: Setting
    method: str
    names: tuple[str, ...] = _TOTAL


class Figures:
    """Scores by setting, method and run."""

    def __init__(self, results: Sequence[Result]) -> None:
        """Sort results by what they are about."""
        known = {case.dataset: case.setting for case in (*full_cases(), *quick_cases())}
        self._scores: dict[tuple[Setting, str], dict[Run, Mapping[str, float]]] = {}
        for result in results:
            runs = self._scores.setdefault((known[result.dataset], result.method), {})
            runs[result.seed, result.session] = result.score

    def settings(self, *methods: str) -> list[Setting]:
        """Return the settings in which one of these methods was measured."""
        return list(dict.fromkeys(setting for setting, method in self._scores if method in methods))

    def of(self, setting: Setting, method: str, *names: str) -> tuple[float, ...]:
        """Return the sum of the named figures in every run."""
        return tuple(self._by_run(Pick(setting, method, names)).values())

    def ratios(self, above: Pick, below: Pick) -> tuple[float, ...]:
        """Return how much more one takes than the other, in every run that measured both."""
        top, bottom = self._by_run(above), self._by_run(below)
        return tuple(top[run] / bottom[run] for run in top if run in bottom)

    def _by_run(self, pick: Pick) -> dict[Run, float]:
        runs = self._scores.get((pick.setting, pick.method), {})
        return {run: sum(score[name] for name in pick.names) for run, score in runs.items()}


def sections(results: Sequence[Result]) -> list[Section | Grid]:
    """Return all tables that have a row."""
    figures = Figures(results)
    costs = [_costs(figures, bits) for bits in KEY_BITS]
    rest = [_dense(figures), _growth(figures), _crowd(figures)]
    tables: list[Section | Grid] = [_targets(figures), _paper(figures), *costs, *rest]
    return [table for table in tables if table.rows]


def _targets(figures: Figures) -> Grid:
    rows = [
        *_encryption_targets(figures),
        *(row for bits in KEY_BITS for row in _block_targets(figures, bits)),
        _target("bfv / TenSEAL's BFV", _between(figures, Setting(WEIGHTS), "bfv", "TenSEAL-BFV"), most=1.3),
        _target(
            "block-dphe, 1,000,000 / 100,000 weights",
            figures.ratios(*(Pick(Setting(size, 90.0), "block-dphe") for size in GROWTH[:0:-1])),
            most=11,
        ),
        _target(
            "block-dphe, 1,000,000 weights of 100 users, peak megabytes",
            figures.of(CROWD_SETTING, CROWD, "peak megabytes"),
            most=2000,
        ),
    ]
    note = "The targets are for the full size alone."
    return Grid("Targets, each within one run", ("", "target", "measured", "met"), tuple(rows), note)


def _encryption_targets(figures: Figures) -> list[tuple[Cell, ...]]:
    rows = []
    for bits, least in zip(KEY_BITS, (12, 15), strict=True):
        peer, ours = (Pick(Setting(WEIGHTS, 90.0, bits), method, ("encrypt",)) for method in SINGLE)
        name = f"{bits} bits, encryption a value: python-paillier / dphe"
        rows.append(_target(name, figures.ratios(peer, ours), least=least))
    return rows


def _block_targets(figures: Figures, bits: int) -> list[tuple[Cell, ...]]:
    rows = []
    for setting in (Setting(WEIGHTS, 90.0, bits), Setting(WEIGHTS, 90.0, bits, shared=True)):
        where = f"{bits} bits, {_where(setting)}"
        touched = 300 if bits == 2048 and not setting.shared else 600
        for names, what, least in ((_TOTAL, "touched", touched), (_AS_PUBLISHED, "all", touched)):
            ratios = figures.ratios(Pick(setting, "python-paillier", names), Pick(setting, "block-dphe"))
            rows.append(_target(f"{where}: python-paillier, {what} places / block-dphe", ratios, least=least))
        for name in NARROW:
            ratios = _between(figures, setting, "block-dphe", name)
            rows.append(_target(f"{where}: block-dphe / {name}", ratios, least=1.3))
        sent = figures.of(setting, "block-dphe", "megabytes")
        rows.append(_target(f"{where}: block-dphe, megabytes a user", sent, most=0.2))
    return rows


def _between(figures: Figures, setting: Setting, above: str, below: str) -> tuple[float, ...]:
    return figures.ratios(Pick(setting, above), Pick(setting, below))


def _target(
    name: str, values: tuple[float, ...], *, least: float | None = None, most: float | None = None
) -> tuple[Cell, ...]:
    bound = f"at most {most:g}" if least is None else f"at least {least:g}"
    met = [(least is None or value >= least) and (most is None or value <= most) for value in values]
    verdict = "-" if not met else "yes" if all(met) else f"in {sum(met)} of {len(met)} runs" if any(met) else "no"
    return name, bound, values, verdict


def _paper(figures: Figures) -> Section:
    rows = []
    for setting in figures.settings(*SINGLE):
        if setting.key_bits == PAPER_BITS:
            paper = PAPER[setting.sparsity] if setting.weights == WEIGHTS else None
            for method in (*SINGLE, "block-dphe"):
                seconds = figures.of(setting, method, "encrypt")
                rows.append(Row(f"{setting.sparsity:g}% zero: {method}", seconds, paper))
    title = "Table 2 of the paper: one user's encryption with a 1024-bit key (seconds)"
    return Section(
        title, tuple(rows), digits=1, note="The paper's column is the same for all: it used python-paillier."
    )


def _costs(figures: Figures, bits: int) -> Grid:
    rows = []
    for setting in figures.settings(*SINGLE):
        if setting.key_bits == bits:
            name = f"{_where(setting)}: python-paillier"
            rows += [
                _cost_row(figures, Pick(setting, "python-paillier", _AS_PUBLISHED), f"{name}, all places"),
                _cost_row(figures, Pick(setting, "python-paillier"), f"{name}, touched places"),
                _cost_row(figures, Pick(setting, "dphe"), f"{_where(setting)}: dphe"),
                *(
                    _cost_row(figures, Pick(setting, method), f"{_where(setting)}: {method}")
                    for method in ("block-dphe", CONSERVATIVE, *NARROW)
                    if method == "block-dphe" or figures.of(setting, method, "encrypt")
                ),
            ]
    note = "Where less than all was measured, the figures are extrapolated in proportion."
    return Grid(f"A round with a {bits}-bit key (CPU seconds)", _COLUMNS, tuple(rows), note)


def _dense(figures: Figures) -> Grid:
    settings = figures.settings(*DENSE)
    rows = [_cost_row(figures, Pick(setting, method), method) for setting in settings for method in DENSE]
    return Grid("A round of dense schemes (CPU seconds)", _COLUMNS, tuple(rows))


def _growth(figures: Figures) -> Grid:
    compared = figures.settings(*SINGLE)
    rows: list[tuple[Cell, ...]] = []
    for setting in figures.settings("block-dphe"):
        if setting not in compared:
            changed = setting.weights * (1 - setting.sparsity / 100)
            each = tuple(1e6 * seconds / changed for seconds in figures.of(setting, "block-dphe", *_TOTAL))
            rows.append((*_cost_row(figures, Pick(setting, "block-dphe"), f"{setting.weights:,}")[:-1], each))
    title = "block-dphe by size: 2048 bits, 90% zero, own supports (CPU seconds)"
    return Grid(title, ("weights", *_COLUMNS[1:-1], "microseconds a non-zero"), tuple(rows))


def _crowd(figures: Figures) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for setting in figures.settings(CROWD):
        name = f"{setting.users} users, {setting.weights:,} weights"
        peak = figures.of(setting, CROWD, "peak megabytes")
        rows.append((*_cost_row(figures, Pick(setting, CROWD), name)[:-1], peak))
    note = (
        "block-dphe with 2048 bits, 99% zeros and room for no more, to save time. Every contribution is made, added up "
        "and dropped before the next. All roles share the process whose peak is shown."
    )
    return Grid("Memory of a large round (CPU seconds)", (*_COLUMNS[:-1], "peak MB"), tuple(rows), note)


def _cost_row(figures: Figures, pick: Pick, name: str) -> tuple[Cell, ...]:
    setting, method, names = pick
    steps = [figures.of(setting, method, step) for step in names]
    steps.insert(1, figures.of(setting, method, "table"))
    share = figures.of(setting, method, "share")
    measured = "-" if not share else "all" if min(share) == 1 else f"{100 * min(share):.2g}%"
    return name, *steps, figures.of(*pick[:2], *names), figures.of(setting, method, "megabytes"), measured


def _where(setting: Setting) -> str:
    if not setting.sparsity:
        return "dense"
    return f"{setting.sparsity:g}% zero, {'shared' if setting.shared else 'own'} supports"
