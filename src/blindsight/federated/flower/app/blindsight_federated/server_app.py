"""The server: it waits for members, sets the run up or goes on with it, plays its rounds, and keeps the model."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from blindsight.data.sites import check_pair, error_context
from blindsight.errors import InputError, UnknownNameError
from blindsight.federated.flower.transport import GridTransport
from blindsight.federated.invite import registered_names
from blindsight.federated.server import RemoteSums, await_and_set_up, load_run
from blindsight.files import atomic_writer
from blindsight.learn.classifier import FEEDBACK, USUAL_SHARE, classifier_task
from blindsight.learn.clustering import ClusterLearner, ClusterModel, ClusterTraining
from blindsight.learn.kmeans import cluster_task
from blindsight.learn.linear import LinearLearner, LinearTraining
from blindsight.learn.model import Attributes, Classes, Labels, LinearModel
from blindsight.learn.private import PrivateLearner, private_task
from blindsight.rng import science
from blindsight.rounds import Privacy, RoundReport, Run, Sums, Task
from blindsight.rounds.task import Pair
from blindsight.sums import DpheOptions, Terms
from blindsight.validation import check_features

from .settings import Settings, read_features, read_pair

app = ServerApp()

TASKS = ("classifier", "k-means")

_LOG = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play the run of the run-config's label, from its beginning or from where it stopped."""
    settings = Settings(dict[str, Any](context.run_config))
    label, number, rounds = settings.text("label"), settings.whole("seed"), settings.whole("rounds")
    store, parties = settings.store()
    sums, make_task, validation = learning(settings)

    def terms(run: str, members: tuple[str, ...]) -> Terms:
        task = make_task(len(members))
        found = task.terms(sums, run=run, members=members)
        task.check(found)  # as members do
        return found

    names = registered_names(settings.path("home"))
    transport = GridTransport(grid, parties, hello_seconds=settings.number("step-seconds"), names=names)
    run = load_run(store, label, seed=number)
    if run is None:
        run = await_and_set_up(
            store,
            transport,
            terms,
            settings.patience(),
            wanted=settings.whole("members"),
            seconds=settings.number("wait-seconds"),
            keyed=sums.traits.hides,
            warn=_LOG.warning,
        )
        run.label(label, seed=number)
        _LOG.info("%s learn together under %s.", ", ".join(run.terms.members), run.terms.scheme)
    elif terms(run.terms.run, run.terms.members) != run.terms:
        raise InputError(f"the run {label!r} began with other settings or data. Give the same, or another label.")
    else:
        _LOG.info("The run %r goes on in round %d.", label, run.round)
    task, traffic = make_task(len(run.terms.members)), dict[int, Any]()

    def on_round(report: RoundReport) -> None:
        traffic[report.round] = {kind: asdict(part) for kind, part in transport.traffic.items()}
        transport.traffic.clear()
        score = "" if report.score is None else f"score {report.score:.3f}, "
        seconds = sum(report.seconds.values())
        _LOG.info("Round %d: %ssum of %s, %.1f s", report.round, score, ", ".join(report.contributors), seconds)
        for name, reason in report.missing.items():
            _LOG.warning("Round %d: %s is not in the sum: %s", report.round, name, reason)

    played = Run(
        task,
        RemoteSums(run, transport, settings.patience(), task),
        rounds=rounds,
        validation=validation,
        path=run.folder / "state.npz",
        identity=run.terms.digest.hex(),
        on_round=on_round,
    )
    played.play()
    for reason in (strangers := transport.refusals()):
        _LOG.warning("A node is not let in: %s", reason)
    if settings.text("out"):
        _write(settings.path("out"), played, {"traffic": traffic, "not let in": strangers})


def learning(settings: Settings) -> tuple[Sums, Callable[[int], Task], Pair | None]:
    """Return how updates are added up, what makes the task for a number of members, and validation data."""
    if (task := settings.text("task")) == "sharing":
        raise InputError(
            "task='sharing' is no longer played across machines: its server read every upload. Use task='classifier' "
            "(share=0.1 sends a tenth of the weights a round), or `blindsight learn network` in one process."
        )
    if task not in TASKS:
        raise UnknownNameError("task", task, TASKS)
    privacy = _privacy(settings)
    sums = _sums(settings).with_share(USUAL_SHARE if privacy is None else 1.0)
    seed = int(science(settings.whole("seed")).integers(2**63))  # as learning in one process draws it
    rounds, records = settings.whole("rounds"), settings.whole("member-records")
    if rounds < 1 or records < 0:
        raise InputError(f"rounds must be at least 1 and member-records at least 0; got {rounds} and {records}.")
    if task == "k-means":
        if privacy is not None:
            raise InputError("privacy-epsilon goes with task='classifier'; got task='k-means'.")
        with error_context("the public data"):
            features = check_features(read_features(settings.text("public"), "the public data"), precision="wide")
        training = ClusterTraining(**sums.selection, passes=settings.whole("passes") or 1)
        clusters, most = settings.whole("clusters"), settings.whole("most-samples")
        clustering = replace(cluster_task(features, clusters, training, most_samples=most), seed=seed)
        return sums, lambda members: clustering, _validation(settings, features.shape[1])
    with error_context("the public data"):
        X, y = check_pair(read_pair(settings.text("public"), "the public data"))
        labels: Labels = Attributes(y.shape[1]) if y.ndim == 2 else Classes(np.unique(y))
    records = records or len(X)

    @cache
    def make(members: int) -> Task:
        if privacy is not None:
            sizes = [records] * members
            task = private_task((X, y), labels, privacy, sizes=sizes, rounds=rounds, scheme=sums.scheme)
            return replace(task, seed=seed)
        training = LinearTraining(
            **sums.selection,
            ridge=settings.number("ridge") or X.shape[1] / (len(X) + records * settings.whole("members")),
            passes=settings.whole("passes") or 3,
            error_feedback=FEEDBACK if sums.scheduled else 1.0,
        )
        return replace(classifier_task((X, y), labels, training), seed=seed)

    return sums, make, _validation(settings, X.shape[1])


def _sums(settings: Settings) -> Sums:
    sums = Sums(
        scheme=settings.text("scheme"),
        share=settings.number("share") or None,
        quorum=settings.whole("quorum"),
        sample=settings.whole("sample"),
        max_absences=settings.whole("max-absences") or None,
    )
    if sums.traits.options is not DpheOptions:
        return sums
    sparsity = settings.number("sparsity")
    options = DpheOptions(
        sparsity=0.9 if sparsity < 0 else sparsity,
        minimum_per_position=settings.whole("minimum-per-position"),
        key_bits=settings.whole("key-bits"),
        insecure=settings.flag("insecure"),
    )
    return replace(sums, options=options)


def _privacy(settings: Settings) -> Privacy | None:
    given: dict[str, Any] = {"unit": settings.text("privacy-unit")}
    given |= {name: settings.number(f"privacy-{name}") for name in ("epsilon", "delta", "clip")}
    if not given["epsilon"]:
        if any(given.values()):
            raise InputError("privacy-delta, privacy-unit and privacy-clip go with privacy-epsilon. Name it, too.")
        return None
    for name in ("colluders", "drop-outs"):
        count = settings.whole(f"privacy-{name}")
        given[name.replace("-", "_")] = None if count < 0 else count
    return Privacy(**given | {"clip": given["clip"] or None})


def _validation(settings: Settings, dimensions: int) -> Pair | None:
    if not (held_out := settings.text("validation")):
        return None
    with error_context("the validation data"):
        found: tuple[NDArray[Any], NDArray[Any]] = check_pair(read_pair(held_out, "validation"), dimensions)
    return found


def _write(folder: Path, run: Run, carried: Mapping[str, Any]) -> None:
    """Write the model, and what there is to say about how it was learned; `carried` is what this process knows."""
    folder.mkdir(parents=True, exist_ok=True)
    learner, state, terms = run.learner, run.state, run.backend.terms
    if isinstance(learner, ClusterLearner):
        ClusterModel(state.shared, learner.standardiser).save(folder / "model.npz")
    elif isinstance(learner, LinearLearner | PrivateLearner):
        weights = learner.weights(state.shared)
        LinearModel(weights, learner.standardiser, learner.labels).save(folder / "model.npz")
    report = {
        "scheme": terms.scheme,
        "members": terms.members,
        "weights": terms.dimension,
        "first score": state.first_score,
        "rounds": [report.to_dict() for report in state.history],
        **carried,
        "statement": run.statement.to_dict(),
    }
    with atomic_writer(folder / "report.json") as stream:
        stream.write(json.dumps(report, indent=1).encode())
