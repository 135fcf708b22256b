"""The whole story on bundled data: what `blindsight demo` runs and writes."""

import platform
from dataclasses import dataclass, replace
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from blindsight.audit.checks import Audit, run_checks
from blindsight.audit.inversion import picture_strip
from blindsight.audit.run_audit import RebuiltRun, plan_rebuilt
from blindsight.data import Dataset, PixelFeatures, extract, load
from blindsight.data.partition import train_test
from blindsight.data.sites import Study, divide
from blindsight.dp import Census, Ledger, census
from blindsight.files import as_path, atomic_writer
from blindsight.learn.classifier import FederatedClassifier
from blindsight.metrics import balanced_accuracy, balanced_accuracy_interval, mean_precision
from blindsight.progress import Progress, silent
from blindsight.report import Chapter, Picture, Table, write_report
from blindsight.report.auditing import audit_chapter
from blindsight.report.foundations import Reading, census_chapter, features_chapter, pictures_chapter
from blindsight.report.learning import LearningResult, learning_chapter
from blindsight.report.searching import search_chapter
from blindsight.report.sifting import sift_chapter
from blindsight.rounds import Sums
from blindsight.search.trial import SearchResult, SearchStudy, contest
from blindsight.search.trial import divide as divide_for_search
from blindsight.sift.fit import SiftResult, best_guess, sift_demo
from blindsight.sums import DpheOptions

SHOWN = ("smiling", "eyeglasses", "male", "outdoors")
EPSILON = 1.0
"""What the demo's census spends per person."""

LEARNED_COMPONENTS = 200
"""Standardised features need components that carry more than noise: only the first ones are learned from."""


_OWNERS, _SPARSITY = 5, 0.7  # who learns together, and what they keep back
_PEOPLE = 10  # on the photos that are searched
_SEARCHED_COMPONENTS = 64


@dataclass(frozen=True)
class DemoSize:
    """How much is drawn, learned, searched and attacked; what is smaller is faster and shows less."""

    pictures: int = 4000
    rounds: int = 8
    key_bits: int = 3072
    photos: int = 1500
    """That are searched, public ones and queries among them."""
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
    """Run every chapter on drawn faces, and write `out`/report.html and `out`/pictures.jpg.

    With the extra `deep` and CIFAR-10 fetched, real photographs are searched.
    """
    begun = perf_counter()
    dataset = load("faces", count=size.pictures, random_state=random_state, pictures_per_person=5, progress=progress)
    train, test = train_test(dataset, test=0.3, random_state=random_state)
    assert dataset.images is not None
    pipeline = PixelFeatures(random_state=random_state)
    raw = extract(dataset, pipeline, fit_to=train, cache=cache, progress=progress)
    readings = _read_attributes(raw, dataset, train, test, progress)
    ledger = Ledger()
    result, truth = _take_census(dataset, ledger)
    learner, learned = _learn_together(dataset, size, random_state, cache, progress)
    searched = _search_privately(size, random_state, cache, progress)
    sifted = sift_demo(dataset, raw, random_state=random_state, progress=progress)
    audited = _audit(dataset, learner, size, random_state, progress)
    chapters = [
        _summary(learned, searched, sifted, audited),
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
        "searched": [{"method": r.method, "epsilon": r.epsilon, "score": r.score} for r in searched.rows],
        "audited": {finding.claim: finding.verdict for finding in audited.findings},
        "seconds": round(seconds, 1),
        "seed": random_state,
    }
    with atomic_writer(as_path(out) / "pictures.jpg") as stream:
        picture_strip(audited.pictures[-1:]).save(stream, format="JPEG", quality=88)
    return Demo(_write(as_path(out), chapters, random_state, seconds), findings)


def _summary(learned: LearningResult, searched: SearchResult, sifted: SiftResult, audited: Audit) -> Chapter:
    """Say what was done, what it reached and what is known about it, a line for each, under the four pictures."""
    last = learned.history[-1].score
    found, chance = searched.row("labelled codebook", searched.epsilon), searched.study.chance
    sift = next(one for one in sifted.sifted if one.found.certificates)
    assert last is not None
    assert found is not None
    assert found.statement is not None
    rows = (
        (
            f"{learned.owners} owners train one classifier; nobody sees their pictures or updates",
            f"{last:.1%} right; from public pictures alone {learned.public_score:.1%}",
            learned.statement.headline(),
        ),
        (
            f"{len(searched.study.indexed):,} photos are searched by codes that may be given away",
            f"mean average precision {found.score:.2f}; chance {chance:.2f}",
            found.statement.headline(),
        ),
        (
            f"An app learns “{sifted.policy.public[0]}” of a face and not “{sifted.policy.private[0]}”",
            f"the app is right in {next(iter(sift.accuracies.values())):.0%} of cases, a guess of the other in "
            f"{best_guess(sift.found):.0%}",
            sift.found.statement.headline(),
        ),
        (
            "The run of the five owners is attacked, with what its aggregator received",
            f"{audited.count('refuted')} of {len(audited.claims)} claims about it refuted",
            "Measured, with confidence limits",
        ),
    )
    strip = Picture(
        picture_strip(audited.pictures[-1:]),
        caption="A drawn face; what an attacker draws from one plain update; from what the aggregator of encrypted "
        "learning holds, which is a face that the decoder makes of noise, and nobody's; from what a sift lets out. "
        "SSIM is the likeness with the original; “blind” is that of the average face.",
        alt="A row of four pictures: the original, a clear likeness, a face that is not its, a blur.",
    )
    table = Table(("what was done here", "what it reached", "what is known about privacy"), rows, caption="")
    return Chapter(
        title="In short",
        lead="Pictures were learned from, searched and shared here without being shown. Every line below is a chapter.",
        blocks=(strip, table),
    )


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
) -> tuple[FederatedClassifier, LearningResult]:
    """Let the owners learn all attributes by the paper's protocol, each person's pictures with one owner."""
    division = divide(dataset, owners=_OWNERS, random_state=random_state)
    pipeline = PixelFeatures(max_components=LEARNED_COMPONENTS, random_state=random_state)
    study = Study.prepare(dataset, division, pipeline, cache=cache, progress=progress)
    sums = Sums(scheme="block-dphe", options=DpheOptions(sparsity=_SPARSITY, key_bits=size.key_bits))
    learner = FederatedClassifier(sums, rounds=size.rounds, multilabel=True, random_state=random_state)
    learner.fit(
        study.owners,
        public=study.public,
        validation=study.test,
        record=True,
        on_round=lambda report: progress("learning together", report.round, learner.rounds),
    )
    return learner, LearningResult.of(learner, owners=_OWNERS)


def _search_privately(size: DemoSize, random_state: int, cache: Path | None, progress: Progress) -> SearchResult:
    """Search drawn faces for the same person, by every method at every budget."""
    middle = size.searched[len(size.searched) // 2]
    pipeline = PixelFeatures(max_components=_SEARCHED_COMPONENTS, random_state=random_state)
    features = f"{_SEARCHED_COMPONENTS} principal components of colour and edges"
    drawn = load("faces", count=size.photos, random_state=random_state, pictures_per_person=size.photos // _PEOPLE)
    assert drawn.persons is not None
    _, persons = np.unique(drawn.persons, return_inverse=True)
    photos = replace(drawn, labels=persons, label_names=tuple(f"person {n + 1}" for n in range(_PEOPLE)))
    division = divide_for_search(photos, queries=size.queries, random_state=random_state)
    study = SearchStudy.prepare(photos, division, pipeline, cache=cache, progress=progress)
    rows = contest(study, epsilons=size.searched, delta=1e-6, random_state=random_state, progress=progress)
    return SearchResult.of(photos, study, rows, features, epsilon=middle)


def _audit(
    dataset: Dataset, learner: FederatedClassifier, size: DemoSize, random_state: int, progress: Progress
) -> Audit:
    """Attack the run that was learned, as `blindsight audit` does with a run that was recorded."""
    about = {
        "data": dataset.name,
        "owners": _OWNERS,
        "attributes": "",
        "sharing": None,
        "features": "pixels",
        "components": LEARNED_COMPONENTS,
        "seed": random_state,
        "protocol": {"rounds": size.rounds, "sparsity": _SPARSITY},
    }
    run = RebuiltRun(about, learner.model_, learner.recorded_, None, learner.statement_, dataset, progress)
    plan = plan_rebuilt(run, random_state=random_state)
    found = run_checks(plan.subject, plan.checks, minutes=10, effort=size.effort, seed=random_state, progress=progress)
    return replace(found, statement=plan.statement)


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
