"""The whole story on bundled data: what `blindsight demo` runs and writes."""

import platform
from dataclasses import dataclass
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from blindsight.audit.checks import Audit, run_checks
from blindsight.audit.papers import PAPERS, glance
from blindsight.data import Dataset, PixelFeatures, Thumbnails, extract, load
from blindsight.data.partition import train_test
from blindsight.dp import Census, Ledger, census
from blindsight.files import as_path
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.comparison import round_costs
from blindsight.learn.study import Study, divide
from blindsight.metrics import balanced_accuracy, balanced_accuracy_interval, mean_precision
from blindsight.progress import Progress, silent
from blindsight.report import Chapter, Table, write_report
from blindsight.report.auditing import audit_chapter
from blindsight.report.foundations import Reading, census_chapter, features_chapter, pictures_chapter
from blindsight.report.learning import LearningResult, learning_chapter, sharing_chapter
from blindsight.report.searching import search_chapter
from blindsight.report.sifting import sift_chapter
from blindsight.search.compare import SearchResult, SearchStudy, contest
from blindsight.search.compare import divide as divide_for_search
from blindsight.selective.study import PhotoStudy, SharingOptions, SharingResult, Training
from blindsight.sift.study import sift_demo

SHOWN = ("smiling", "eyeglasses", "male", "outdoors")
EPSILON = 1.0
"""What the demo's census spends per person."""

LEARNED_COMPONENTS = 200
"""Standardised features need components that carry more than noise: only the first ones are learned from."""


@dataclass(frozen=True)
class DemoSize:
    """How much is drawn, learned, shared, searched and attacked; what is smaller is faster and shows less."""

    pictures: int = 4000
    rounds: int = 8
    key_bits: int = 3072
    days: int = 14
    epsilons: tuple[float, ...] = (1.0, 2.0, 8.0)
    """Of the proven noise in selective sharing."""
    queries: int = 200
    searched: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    """The budgets per record at which searches are measured."""
    effort: float = 0.5
    """Of the audit, whose full effort is 1."""


FULL = DemoSize()


@dataclass(frozen=True)
class Demo:
    """Where the report lies, and what was found, as plain data."""

    report: Path
    findings: dict[str, Any]


def run_demo(
    out: str | PathLike[str],
    size: DemoSize = FULL,
    *,
    random_state: int = 0,
    cache: Path | None = None,
    progress: Progress = silent,
) -> Demo:
    """Run every chapter on drawn faces and bundled digits, and write `out`/report.html."""
    begun = perf_counter()
    dataset = load("faces", count=size.pictures, random_state=random_state, pictures_per_person=5, progress=progress)
    train, test = train_test(dataset, test=0.3, random_state=random_state)
    assert dataset.images is not None
    pipeline = PixelFeatures(random_state=random_state)
    raw = extract(dataset, pipeline, fit_to=train, cache=cache, progress=progress)
    readings = _read_attributes(raw, dataset, train, test, progress)
    ledger = Ledger()
    result, truth = _take_census(dataset, ledger)
    learned = _learn_together(dataset, size, random_state, cache, progress)
    shared = _share_selectively(dataset, size, random_state, cache, progress)
    searched = _search_privately(size, random_state, progress)
    sifted = sift_demo(dataset, raw, pipeline=pipeline, random_state=random_state, progress=progress)
    audited = _audit(dataset, size, random_state, progress)
    chapters = [
        pictures_chapter(dataset, SHOWN),
        features_chapter(
            readings,
            dimensions=raw.shape[1],
            raw=6 * dataset.images[0, :, :, 0].size,
            energy=pipeline.energy_,
            tested=len(test),
        ),
        census_chapter(result, truth, _spent_table(ledger)),
        learning_chapter(learned),
        sharing_chapter(shared),
        search_chapter(searched),
        sift_chapter(sifted),
        audit_chapter(audited),
    ]
    seconds = perf_counter() - begun
    findings = {
        "pictures": len(dataset),
        "feature_dimensions": raw.shape[1],
        "balanced_accuracy": {r.attribute: r.balanced_accuracy for r in readings},
        "census": dict(result.shares),
        "statement": result.statement.to_dict(),
        "learned": {"public": learned.public_score, "rounds": [report.score for report in learned.history]},
        "shared": {line.name: line.accuracy[-1] for line in shared.timeline.methods},
        "searched": [{"method": r.method, "epsilon": r.epsilon, "score": r.score} for r in searched.rows],
        "audited": {finding.claim: finding.verdict for finding in audited.findings},
        "seconds": round(seconds, 1),
        "seed": random_state,
    }
    return Demo(_write(as_path(out), chapters, random_state, seconds), findings)


def _read_attributes(
    features: NDArray[np.float32],
    dataset: Dataset,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    progress: Progress,
) -> list[Reading]:
    """Train a plain classifier per attribute on some people and test it on others."""
    readings = []
    for done, name in enumerate(dataset.attribute_names):
        progress("reading attributes", done, len(dataset.attribute_names))
        truth = dataset.attribute(name)
        classifier = LogisticRegression(C=1e-3, class_weight="balanced", max_iter=300)
        guess = classifier.fit(features[train], truth[train]).predict(features[test])
        interval = balanced_accuracy_interval(
            truth[test], guess, confidence=0.95, comparisons=len(dataset.attribute_names)
        )
        readings.append(
            Reading(name, balanced_accuracy(truth[test], guess), interval, mean_precision(truth[test], guess))
        )
    progress("reading attributes", len(readings), len(readings))
    return readings


def _take_census(dataset: Dataset, ledger: Ledger) -> tuple[Census, dict[str, float]]:
    assert dataset.persons is not None
    ledger.set_budget("faces", unit="person", neighbours="replace", epsilon=2 * EPSILON, delta=0.0)
    answers = {name: dataset.attribute(name) for name in dataset.attribute_names}
    result = census(answers, persons=dataset.persons, epsilon=EPSILON, ledger=ledger, scope="faces")
    _, index = np.unique(dataset.persons, return_inverse=True)
    pictures = np.bincount(index)
    truth = {name: float((np.bincount(index, weights=column) / pictures).mean()) for name, column in answers.items()}
    return result, truth


def _learn_together(
    dataset: Dataset, size: DemoSize, random_state: int, cache: Path | None, progress: Progress
) -> LearningResult:
    """Let five owners learn all attributes by the paper's protocol, each person's pictures with one owner."""
    division = divide(dataset, owners=5, random_state=random_state)
    pipeline = PixelFeatures(max_components=LEARNED_COMPONENTS, random_state=random_state)
    study = Study.prepare(dataset, division, pipeline, cache=cache, progress=progress)
    learner = FederatedClassifier(
        "block-dphe",
        rounds=size.rounds,
        sparsity=0.7,
        key_bits=size.key_bits,
        multilabel=True,
        random_state=random_state,
        record=True,
    )
    learner.fit(
        study.owners,
        public=study.public,
        validation=study.test,
        on_round=lambda report: progress("learning together", report.round, learner.rounds),
    )
    weights, sparsity = learner.model_.weights.size, learner.sparsity
    costs = round_costs(
        weights, 5, sparsity=sparsity, key_bits=size.key_bits, random_state=random_state, progress=progress
    )
    return LearningResult.of(learner, owners=5, costs=costs)


def _share_selectively(
    dataset: Dataset, size: DemoSize, random_state: int, cache: Path | None, progress: Progress
) -> SharingResult:
    """Keep a smile detector up to date from ten people's photos for two weeks, with and without proven noise."""
    study = PhotoStudy.prepare(
        dataset,
        PixelFeatures(max_components=LEARNED_COMPONENTS, random_state=random_state),
        Training(),
        participants=10,
        days=size.days,
        initial=0.05,
        attribute="smiling",
        random_state=random_state,
        cache=cache,
        progress=progress,
    )
    options = SharingOptions(share=0.1, epsilons=size.epsilons, delta=1e-5, clip=4.0, upload_clip=0.2)
    return SharingResult.of(study, options, progress=progress)


def _search_privately(size: DemoSize, random_state: int, progress: Progress) -> SearchResult:
    """Search handwritten digits by every method at every budget."""
    middle = size.searched[len(size.searched) // 2]
    digits = load("digits")
    division = divide_for_search(digits, queries=size.queries, random_state=random_state)
    study = SearchStudy.prepare(digits, division, Thumbnails())
    rows = contest(study, epsilons=size.searched, delta=1e-6, random_state=random_state, progress=progress)
    return SearchResult.of(digits, study, rows, "a grey thumbnail of unit length", epsilon=middle)


def _audit(dataset: Dataset, size: DemoSize, random_state: int, progress: Progress) -> Audit:
    """Attack what the papers claim, as far as that takes seconds; `blindsight audit papers` does the rest."""
    faces = dataset.take(range(min(len(dataset), 3000)))
    checks = glance(faces, random_state, progress)
    rest = "A glance; `blindsight audit papers` attacks encryption, coalitions and our own mechanisms as well."
    return run_checks(
        PAPERS, checks, minutes=10, effort=size.effort, seed=random_state, notes=(rest,), progress=progress
    )


def _spent_table(ledger: Ledger) -> Table:
    rows = tuple(
        (row.scope, row.unit, str(row.releases), f"{row.spent.epsilon:.2f}", f"{row.budget.epsilon:.2f}")
        for row in ledger.table(delta=0.0)
        if row.budget is not None
    )
    return Table(
        ("data", "unit", "releases", "epsilon spent", "budget"),
        rows,
        caption="The ledger refuses what exceeds the budget.",
    )


def _write(out: Path, chapters: list[Chapter], random_state: int, seconds: float) -> Path:
    facts = {
        "Version": f"blindsight {version('blindsight-vision')}",
        "Python": platform.python_version(),
        "Libraries": ", ".join(f"{name} {version(name)}" for name in ("numpy", "scikit-learn", "dp-accounting")),
        "Machine": f"{platform.system()} {platform.machine()}",
        "Seed of pictures and splits": str(random_state),
        "Noise": "from the operating system; differs from run to run",
        "Time": f"{seconds:.0f} s",
        "Command": "blindsight demo",
    }
    return write_report(out / "report.html", "What pictures give away, and what they need not", chapters, facts=facts)
