"""The server: it waits for members, sets the run up or goes on with it, plays its rounds, and keeps the model."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from blindsight.errors import InputError, UnknownNameError
from blindsight.federated.flower.transport import GridTransport
from blindsight.federated.invite import registered_names
from blindsight.federated.server import SumServer, find_run, gather_run, statement_of
from blindsight.federated.task import (
    RoundReport,
    ServedTask,
    Task,
    TaskOptions,
    TaskState,
    classifier_task,
    cluster_task,
    run_task,
)
from blindsight.files import atomic_writer
from blindsight.learn.clustering import ClusterModel
from blindsight.learn.model import LinearModel
from blindsight.rng import science
from blindsight.sums import Terms

from .settings import Settings, read_features, read_pair

app = ServerApp()

TASKS = ("classifier", "k-means")

_LOG = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play the run of the run-config's label, from its beginning or from where it stopped."""
    settings = Settings(dict[str, Any](context.run_config))
    if (task := settings.text("task")) == "sharing":
        raise InputError(
            "task='sharing' is no longer played across machines: its server read every upload. Use task='classifier' "
            "(share=0.1 sends a tenth of the weights a round), or `blindsight learn selective` in one process."
        )
    if task not in TASKS:
        raise UnknownNameError("task", task, TASKS)
    store, members = settings.store()
    label, number, rounds = settings.text("label"), settings.whole("seed"), settings.whole("rounds")
    served = _served(settings, int(science(number).integers(2**63)))  # as learning in one process draws it
    names = registered_names(settings.path("home"))
    transport = GridTransport(grid, members, hello_seconds=settings.number("step-seconds"), names=names)
    run = find_run(store, label, seed=number)
    if run is None:
        run = gather_run(
            store,
            transport,
            served.terms,
            settings.patience(),
            wanted=settings.whole("users"),
            seconds=settings.number("wait-seconds"),
            keyed=settings.text("scheme") != "plain",
            warn=_LOG.warning,
        )
        run.label(label, seed=number)
        _LOG.info("%s learn together under %s.", ", ".join(run.terms.members), run.terms.scheme)
    elif served.terms(run.terms.run, run.terms.members) != run.terms:
        raise InputError(f"the run {label!r} began with other settings or data. Give the same, or another label.")
    else:
        _LOG.info("The run %r goes on in round %d.", label, run.round)
    traffic: dict[int, Any] = {}
    server = SumServer(run, transport, settings.patience(), config=served.task.to_bytes())

    def on_report(report: RoundReport) -> None:
        traffic[report.round] = {kind: asdict(part) for kind, part in transport.traffic.items()}
        transport.traffic.clear()
        score = "" if report.score is None else f"score {report.score:.3f}, "
        names = ", ".join(report.contributors)
        _LOG.info("Round %d: %ssum of %s, %.1f s", report.round, score, names, report.seconds)
        for name, sentence in report.refused.items():
            _LOG.warning("Round %d: %s is not in the sum: %s", report.round, name, sentence)

    state = run_task(served, server, rounds=rounds, on_report=on_report)
    strangers = transport.refusals()
    for sentence in strangers:
        _LOG.warning("A node is not let in: %s", sentence)
    if settings.text("out"):
        _write(settings.path("out"), served.task, run.terms, state, {"traffic": traffic, "not let in": strangers})


def _served(settings: Settings, seed: int) -> ServedTask:
    chosen = TaskOptions(
        seed=seed,
        scheme=settings.text("scheme"),
        sparsity=None if settings.number("sparsity") < 0 else settings.number("sparsity"),
        share=settings.number("share"),
        key_bits=settings.whole("key-bits"),
        minimum_per_position=settings.whole("minimum-per-position") or None,
        insecure=settings.flag("insecure"),
        minimum=settings.whole("minimum-users"),
        sample=settings.whole("sample"),
        absences=settings.whole("absences"),
        ridge=settings.number("ridge") or None,
        passes=settings.whole("passes") or None,
        clusters=settings.whole("clusters"),
        most_samples=settings.whole("most-samples"),
    )
    held_out = settings.text("validation")
    validation = read_pair(held_out, "validation") if held_out else None
    if settings.text("task") == "k-means":
        return cluster_task(read_features(settings.text("public"), "the public data"), validation, chosen)
    public = read_pair(settings.text("public"), "the public data")
    return classifier_task(public, validation, settings.whole("users"), chosen)


def _write(folder: Path, task: Task, terms: Terms, state: TaskState, carried: Mapping[str, Any]) -> None:
    """Write the model, and what there is to say about how it was learned; `carried` is what this process knows."""
    folder.mkdir(parents=True, exist_ok=True)
    if task.labels is None:
        ClusterModel(state.shared, task.standardiser).save(folder / "model.npz")
    else:
        LinearModel(state.shared, task.standardiser, task.labels).save(folder / "model.npz")
    report = {
        "scheme": terms.scheme,
        "members": terms.members,
        "weights": terms.dimension,
        "first score": state.first_score,
        "rounds": [asdict(report) for report in state.rounds],
        **carried,
        "statement": statement_of(terms, len(state.rounds)).to_dict(),
    }
    with atomic_writer(folder / "report.json") as stream:
        stream.write(json.dumps(report, indent=1).encode())
