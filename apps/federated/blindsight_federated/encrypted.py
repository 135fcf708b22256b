"""Encrypted learning on the server: wait for users, set up or resume the run, play its rounds, keep the model."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from blindsight.federated.home import Home
from flwr.common.logger import log
from flwr.serverapp import Grid

from blindsight.errors import InputError
from blindsight.federated.courses import Course, CourseSettings, classifier_course, cluster_course
from blindsight.federated.flower.gridcourier import GridCourier
from blindsight.federated.metered import Errand, MeteredCourier
from blindsight.federated.statements import statement_of
from blindsight.federated.sums.opening import find_run, gather_run, label_run
from blindsight.federated.sums.orders import ordinal
from blindsight.federated.sums.server import SumServer
from blindsight.federated.sums.serverrun import ServerRun
from blindsight.federated.teaching import Lap, Taught, teach
from blindsight.files import atomic_writer
from blindsight.learn.clustering import ClusterModel
from blindsight.learn.model import LinearModel
from blindsight.rng import science

from .data import read_features, read_pair
from .settings import Settings


def learn_encrypted(grid: Grid, settings: Settings) -> None:
    """Play the run of this label, from its beginning or from where it stopped."""
    home, members = settings.home()
    course, rounds = _course(settings), settings.whole("rounds")
    courier = GridCourier(grid, members, hello_seconds=settings.number("step-seconds"))
    run = find_run(home, settings.text("label"), seed=settings.whole("seed"))
    if run is None:
        run = _open(home, courier, course, settings)
    else:
        log(INFO, "The run %r goes on after attempt %d.", settings.text("label"), ordinal(run.progress.attempt))
        _check_terms(run, course, settings)
    seed = int(science(settings.whole("seed")).integers(2**63))  # as learning in one process draws it
    meter, errands = MeteredCourier(courier), dict[int, dict[str, Errand]]()
    server = SumServer(run, meter, settings.patience(), seed=seed, briefing=course.lesson.to_bytes())

    def on_lap(lap: Lap) -> None:
        errands[lap.round] = meter.take()
        _tell(lap)

    taught = teach(course, server, rounds=rounds, seed=seed, on_lap=on_lap)
    strangers = list(courier.directory.refused.values())
    for sentence in strangers:
        log(WARNING, "A node is not let in: %s", sentence)
    if settings.text("out"):
        report = _report(run, taught, errands) | {"not let in": strangers}
        _write(settings.path("out"), course, taught, report)


def _course(settings: Settings) -> Course:
    chosen = CourseSettings(
        scheme=settings.text("scheme"),
        sparsity=settings.number("sparsity"),
        key_bits=settings.whole("key-bits"),
        minimum_per_position=settings.whole("minimum-per-position"),
        insecure=settings.flag("insecure"),
        ridge=settings.number("ridge") or None,
        passes=settings.whole("passes") or None,
        clusters=settings.whole("clusters"),
        most_samples=settings.whole("most-samples"),
    )
    held_out = settings.text("validation")
    validation = read_pair(held_out, "validation") if held_out else None
    if settings.text("task") == "k-means":
        return cluster_course(read_features(settings.text("public"), "the public data"), validation, chosen)
    public = read_pair(settings.text("public"), "the public data")
    return classifier_course(public, validation, settings.whole("users"), chosen)


def _open(home: Home, courier: GridCourier, course: Course, settings: Settings) -> ServerRun:
    """Wait for users and set up a run with those who agree."""
    minimum = settings.whole("minimum-users")
    run = gather_run(
        home,
        courier,
        lambda name, users: course.terms(name, users, minimum=minimum),
        settings.patience(),
        wanted=settings.whole("users"),
        seconds=settings.number("wait-seconds"),
        keyed=settings.text("scheme") != "plain",
        warn=lambda sentence: log(WARNING, "%s", sentence),
    )
    label_run(home, settings.text("label"), run, seed=settings.whole("seed"))
    log(INFO, "%s learn together under %s.", ", ".join(run.terms.users), run.terms.scheme)
    return run


def _check_terms(run: ServerRun, course: Course, settings: Settings) -> None:
    if course.terms(run.terms.run, run.terms.users, minimum=settings.whole("minimum-users")) != run.terms:
        raise InputError(
            f"the run {settings.text('label')!r} began with other settings or data. Give the same, or another label."
        )


def _tell(lap: Lap) -> None:
    score = "" if lap.score is None else f"score {lap.score:.3f}, "
    log(INFO, "Round %d: %ssum of %s, %.1f s", lap.round, score, ", ".join(lap.contributors), lap.seconds)
    for name, sentence in lap.refused.items():
        log(WARNING, "Round %d: %s is not in the sum: %s", lap.round, name, sentence)


def _report(run: ServerRun, taught: Taught, errands: Mapping[int, Mapping[str, Errand]]) -> dict[str, Any]:
    """Return what there is to say about how a model was learned; of `errands`, what this process ran."""
    return {
        "scheme": run.terms.scheme,
        "users": run.terms.users,
        "weights": run.terms.dimension,
        "first score": taught.first_score,
        "rounds": [asdict(lap) for lap in taught.laps],
        "errands": {lap: {kind: asdict(errand) for kind, errand in kinds.items()} for lap, kinds in errands.items()},
        "statement": statement_of(run.terms, len(taught.laps)).to_dict(),
    }


def _write(folder: Path, course: Course, taught: Taught, report: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    standardiser, labels = course.lesson.standardiser, course.lesson.labels
    if labels is None:
        ClusterModel(taught.shared, standardiser).save(folder / "model.npz")
    else:
        LinearModel(taught.shared, standardiser, labels).save(folder / "model.npz")
    with atomic_writer(folder / "report.json") as stream:
        stream.write(json.dumps(report, indent=1).encode())
