"""Selective sharing: participants keep their photos and upload a small, chosen part of what their networks learned.

R. Shokri, V. Shmatikov, "Privacy-Preserving Deep Learning", CCS 2015; M. Bu, "Privacy Preserving Deep Learning for
Image Classification", 2019. `SelectiveClassifier` is all of it as one estimator. `Participant` and `ParameterServer`
exchange bytes (`terms`); `Sharing` says what a participant uploads, under which noise; `simulate` and `EncryptedTurns`
let many learn together::

    terms = SelectiveTerms.of(trainer.layout, run="photos", participants=("ann", "bob"))
    server = ParameterServer(terms, trainer.initial(), folder=Path("server"))
    ann = Participant("ann", terms, trainer, Sharing(0.1, select="largest", residual=True))
    ann.gather(photos, labels)
    for exchange in simulate(server, [ann, ...], round_robin):
        ...

    paper                          here
    theta_u, gamma, tau            `Sharing.share`, `Sharing.bound`, `Sharing.threshold`
    theta_d, batch size            `SelectiveTerms.download`, `SelectiveTerms.batch`
    w_global, stat                 `ParameterServer.parameters`, `ParameterServer.counters`
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from blindsight.selective.codec import ParameterLayout
from blindsight.selective.participant import Participant
from blindsight.selective.protection import Sharing
from blindsight.selective.server import ParameterServer
from blindsight.selective.simulation import EncryptedTurns, Exchange, asynchronous, random_order, round_robin, simulate
from blindsight.selective.terms import SelectiveTerms
from blindsight.selective.trainers import Trainer

if TYPE_CHECKING:  # scikit-learn, which a participant does not need
    from blindsight.selective.estimator import NetworkModel, SelectiveClassifier

__all__ = [
    "EncryptedTurns",
    "Exchange",
    "NetworkModel",
    "ParameterLayout",
    "ParameterServer",
    "Participant",
    "SelectiveClassifier",
    "SelectiveTerms",
    "Sharing",
    "Trainer",
    "asynchronous",
    "random_order",
    "round_robin",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in ("NetworkModel", "SelectiveClassifier"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.estimator"), name)
