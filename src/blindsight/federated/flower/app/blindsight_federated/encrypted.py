"""Encrypted learning on the server: wait for members, set up or resume the run, play its rounds, keep the model."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from blindsight.errors import InputError
from blindsight.federated.flower.transport import GridTransport, Traffic
from blindsight.federated.identity import KeyStore
from blindsight.federated.server import RunStore, SumServer, find_run, gather_run, statement_of
from blindsight.federated.task import (
    RoundReport,
    ServedTask,
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

from .settings import Settings, read_features, read_pair

_LOG = logging.getLogger("flwr")


def learn_encrypted(grid: Grid, settings: Settings) -> None:
    """Play the run of this label, from its beginning or from where it stopped."""
    store, members = settings.store()
    served, rounds = _served(settings), settings.whole("rounds")
    transport = GridTransport(grid, members, hello_seconds=settings.number("step-seconds"))
    run = find_run(store, settings.text("label"), seed=settings.whole("seed"))
    if run is None:
        run = _open(store, transport, served, settings)
    else:
        _LOG.info("The run %r goes on in round %d.", settings.text("label"), run.round)
        _check_terms(run, served, settings)
    seed = int(science(settings.whole("seed")).integers(2**63))  # as learning in one process draws it
    traffic = dict[int, dict[str, Traffic]]()
    server = SumServer(run, transport, settings.patience(), seed=seed, config=served.task.to_bytes())

    def on_report(report: RoundReport) -> None:
        traffic[report.round] = dict(transport.traffic)
        transport.traffic.clear()
        _tell(report)

    state = run_task(served, server, rounds=rounds, seed=seed, on_report=on_report)
    strangers = list(transport.directory.refused.values())
    for sentence in strangers:
        _LOG.warning("A node is not let in: %s", sentence)
    if settings.text("out"):
        report = _report(run, state, traffic) | {"not let in": strangers}
        _write(settings.path("out"), served, state, report)


def _served(settings: Settings) -> ServedTask:
    chosen = TaskOptions(
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


def _open(store: KeyStore, transport: GridTransport, served: ServedTask, settings: Settings) -> RunStore:
    run = gather_run(
        store,
        transport,
        served.terms,
        settings.patience(),
        wanted=settings.whole("users"),
        seconds=settings.number("wait-seconds"),
        keyed=settings.text("scheme") != "plain",
        warn=lambda sentence: _LOG.warning("%s", sentence),
    )
    run.label(settings.text("label"), seed=settings.whole("seed"))
    _LOG.info("%s learn together under %s.", ", ".join(run.terms.members), run.terms.scheme)
    return run


def _check_terms(run: RunStore, served: ServedTask, settings: Settings) -> None:
    if served.terms(run.terms.run, run.terms.members) != run.terms:
        raise InputError(
            f"the run {settings.text('label')!r} began with other settings or data. Give the same, or another label."
        )


def _tell(report: RoundReport) -> None:
    score = "" if report.score is None else f"score {report.score:.3f}, "
    _LOG.info("Round %d: %ssum of %s, %.1f s", report.round, score, ", ".join(report.contributors), report.seconds)
    for name, sentence in report.refused.items():
        _LOG.warning("Round %d: %s is not in the sum: %s", report.round, name, sentence)


def _report(run: RunStore, state: TaskState, traffic: Mapping[int, Mapping[str, Traffic]]) -> dict[str, Any]:
    """Return what there is to say about how a model was learned; of `traffic`, what this process carried."""
    return {
        "scheme": run.terms.scheme,
        "members": run.terms.members,
        "weights": run.terms.dimension,
        "first score": state.first_score,
        "rounds": [asdict(report) for report in state.rounds],
        "traffic": {round: {kind: asdict(part) for kind, part in kinds.items()} for round, kinds in traffic.items()},
        "statement": statement_of(run.terms, len(state.rounds)).to_dict(),
    }


def _write(folder: Path, served: ServedTask, state: TaskState, report: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    standardiser, labels = served.task.standardiser, served.task.labels
    if labels is None:
        ClusterModel(state.shared, standardiser).save(folder / "model.npz")
    else:
        LinearModel(state.shared, standardiser, labels).save(folder / "model.npz")
    with atomic_writer(folder / "report.json") as stream:
        stream.write(json.dumps(report, indent=1).encode())
