"""Selective sharing on the server: the parameter server of the run, in turns or without."""

import json
import logging
import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from blindsight.data.features import Standardiser
from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.federated.flower.transport import GridTransport
from blindsight.federated.server import wait_for_members
from blindsight.federated.sharing import (
    JOIN,
    SharingServer,
    SharingTask,
    Turn,
    play_asynchronous,
    play_synchronous,
    sharing_statement_of,
)
from blindsight.files import atomic_writer
from blindsight.selective.server import ParameterServer
from blindsight.selective.terms import SelectiveTerms
from blindsight.selective.timeline import Photos, train_initial
from blindsight.selective.trainers import SoftmaxTrainer

from .settings import Settings, read_pair

_LOG = logging.getLogger("flwr")

ORDERS = ("synchronous", "asynchronous")
_FIRST_EPOCHS = 20
_SPENT = "its privacy budget is spent."


def learn_selectively(grid: Grid, settings: Settings) -> None:
    """Play the run of this label, from its beginning or from where it stopped."""
    order = settings.text("sharing")
    if order not in ORDERS:
        raise UnknownNameError("sharing", order, ORDERS)
    store, members = settings.store()
    transport = GridTransport(grid, members, hello_seconds=settings.number("step-seconds"))
    folder = store.run(f"sharing {settings.text('label')}")
    server, task = _server(folder, transport, settings)
    with closing(server):
        held_out = settings.text("validation")
        validation = read_pair(held_out, "validation") if held_out else None
        watch = _Watch(folder, server, task.trainer(), validation)
        _join(transport, task, settings)
        _play(order, SharingServer(server, task.terms.participants), transport, watch, settings)
        if settings.text("out"):
            watch.write(settings.path("out"))


def _play(order: str, server: SharingServer, transport: GridTransport, watch: "_Watch", settings: Settings) -> None:
    deadline = settings.number("round-seconds")
    if order == "synchronous":
        left, minimum = settings.whole("rounds") - watch.turns, settings.whole("minimum-users")
        if left > 0:
            play_synchronous(server, transport, turns=left, deadline=deadline, minimum=minimum, on_turn=watch.turn)
    else:
        left = settings.whole("uploads") - watch.uploads
        if left > 0:
            play_asynchronous(server, transport, uploads=left, deadline=deadline, on_turn=watch.upload)


def _server(folder: Path, transport: GridTransport, settings: Settings) -> tuple[ParameterServer, SharingTask]:
    """Begin with a model of the public data, or go on with the run in this folder."""
    X, y = read_pair(settings.text("public"), "the public data")
    if y.ndim != 1 or y.dtype.kind not in "iu" or (y < 0).any():
        raise InputError("selective sharing learns classes: whole numbers from 0, one for each sample.")
    standardiser, classes = Standardiser.fit(X), int(y.max()) + 1
    shape: dict[str, Any] = {
        "standardiser": standardiser,
        "classes": classes,
        "learning_rate": settings.number("learning-rate"),
    }
    epochs, batch = settings.whole("epochs"), settings.whole("batch")
    trainer = SoftmaxTrainer(**shape, epochs=epochs, batch=batch)
    if (folder / "snapshot.npz").exists():
        server = ParameterServer.resume(folder)
        _LOG.info("The run %r goes on after %d uploads.", settings.text("label"), server.version)
        return server, SharingTask(server.terms, **shape, epochs=epochs)
    users = wait_for_members(
        transport,
        wanted=settings.whole("users"),
        seconds=settings.number("wait-seconds"),
        keyed=False,
    )
    stale, most = settings.whole("max-staleness"), settings.whole("max-values")
    terms = SelectiveTerms.of(
        trainer.layout,
        run=secrets.token_hex(8),
        participants=users,
        batch=batch,
        download=settings.number("download"),
        max_staleness=None if stale < 0 else stale,
        max_values=most or None,
    )
    first = train_initial(trainer, Photos(X, y), epochs=_FIRST_EPOCHS, random_state=settings.whole("seed"))
    return ParameterServer(terms, first, folder=folder), SharingTask(terms, **shape, epochs=epochs)


def _join(transport: GridTransport, task: SharingTask, settings: Settings) -> None:
    """Tell every participant that is there what is learned; too few who agree end the run."""
    present = transport.present()
    tickets = {
        transport.send(name, JOIN, (task.to_bytes(),)): name for name in task.terms.participants if name in present
    }
    joined = []
    for ticket, reply in transport.collect(tickets, seconds=settings.number("step-seconds")):
        if reply.error:
            _LOG.warning("%s does not take part: %s", tickets[ticket], reply.error)
        else:
            joined.append(tickets[ticket])
    if len(joined) < settings.whole("minimum-users"):
        raise PrivacyError(f"{len(joined)} participants have joined; {settings.whole('minimum-users')} are needed.")


class _Watch:
    """What is known of a run while it goes on."""

    def __init__(
        self,
        folder: Path,
        server: ParameterServer,
        trainer: SoftmaxTrainer,
        validation: tuple[NDArray[Any], NDArray[Any]] | None,
    ) -> None:
        self._server, self._trainer, self._validation = server, trainer, validation
        self._path = folder / "events.json"
        self._events: list[dict[str, Any]] = json.loads(self._path.read_text()) if self._path.exists() else []
        self._first = self._events[0]["first score"] if self._events else self._score()

    @property
    def turns(self) -> int:
        return len(self._events)

    @property
    def uploads(self) -> int:
        return self._server.version

    def turn(self, turn: Turn) -> None:
        self._note("Turn", self.turns + 1, turn)

    def upload(self, turn: Turn) -> None:
        self._note("Upload", self._server.version, turn)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_writer(folder / "parameters.npy") as stream:
            np.save(stream, self._server.parameters, allow_pickle=False)
        statement = sharing_statement_of(self._server.terms, self.uploads).to_dict()
        report = {
            "first score": self._first,
            "score": self._score(),
            "events": self._events,
            "statement": statement,
        }
        with atomic_writer(folder / "report.json") as stream:
            stream.write(json.dumps(report, indent=1).encode())

    def _note(self, what: str, number: int, turn: Turn) -> None:
        score, uploaded = self._score(), turn.uploaded
        refused = {**turn.refused, **dict.fromkeys(turn.late, "it was late."), **dict.fromkeys(turn.spent, _SPENT)}
        event = {"number": number, "first score": self._first, "score": score, "uploaded": uploaded, "refused": refused}
        self._events.append(event)
        with atomic_writer(self._path, private=True) as stream:
            stream.write(json.dumps(self._events).encode())
        told = "" if score is None else f"score {score:.3f}, "
        _LOG.info("%s %d: %suploads of %s", what, number, told, ", ".join(uploaded) or "nobody")
        for name, sentence in refused.items():
            _LOG.warning("%s %d: %s: %s", what, number, name, sentence)

    def _score(self) -> float | None:
        if self._validation is None:
            return None
        features, labels = self._validation
        return float((self._trainer.scores(self._server.parameters, features).argmax(axis=1) == labels).mean())
