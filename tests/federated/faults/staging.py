"""A small federation of real processes, some of which misbehave, and what its owners learn without any of that."""

import json
import os
import time
import tomllib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from apps.federated.deployment.federation import LocalFederation
from blindsight.federated.commands import APP
from blindsight.federated.flower.app.blindsight_federated.server_app import learning
from blindsight.federated.flower.app.blindsight_federated.settings import Settings
from blindsight.learn.model import LinearModel
from blindsight.rounds import Member
from blindsight.rounds.member import member_seed
from blindsight.sums.terms import AGGREGATOR

ROOT = Path(__file__).resolve().parents[3]
FEATURES, CLASSES, SAMPLES = 20, 3, 60
SEED = 5
PUBLIC, VALIDATION = 100, 101  # seeds of their samples
SECONDS = 240.0  # to wait for what takes a few on a machine that does nothing else

# Flower starts several programs on a node: all have its clock, one runs the app, or is the launcher's, forked for it.
SITE = """
import sys
if {skew}:
    from tests.federated.faults.skew import skew_clock
    skew_clock({skew})
if "supernode" in sys.orig_argv or any("flwr-clientapp" in word for word in sys.orig_argv):
    from tests.federated.faults import sabotage
    for name, argument in {faults}:
        getattr(sabotage, name)(argument)
"""

Pair = tuple[np.ndarray, np.ndarray]


def samples(seed, features=FEATURES):
    centres = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))[:, :features]
    labels = np.arange(SAMPLES) % CLASSES
    return centres[labels] + np.random.default_rng(seed).normal(size=(SAMPLES, features)), labels


@dataclass(frozen=True)
class Stage:
    """A federation that is ready to start; each member keeps a diary of what it contributed."""

    federation: LocalFederation

    @classmethod
    def build(cls, folder, names, **others):
        """Prepare these members, and others that have data of their own."""
        shares = {name: samples(number) for number, name in enumerate(names)} | others
        return cls(LocalFederation.prepare(folder, shares, samples(PUBLIC), samples(VALIDATION), insecure=True))

    def mark(self, name):
        """Return a file by which a saboteur and the test tell each other how far they are."""
        return self.federation.folder / f"mark-{name}"

    def diary(self, name):
        path = self.federation.folder / "diaries" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def member(self, name, skew=0.0, config=None, **faults):
        """Return a member's node that keeps a diary, and in which these functions of `sabotage` are called."""
        node = self.federation.node(name, **(config or {}))
        return self.spoilt(node, skew, keep_diary=self.diary(name), **faults)

    def spoilt(self, node, skew=0.0, **faults):
        folder = self.federation.folder / "sites" / f"{node.name}{skew:+g}"
        folder.mkdir(parents=True)
        site = SITE.format(skew=skew, faults=[(name, str(argument)) for name, argument in faults.items()])
        (folder / "sitecustomize.py").write_text(site)
        paths = [str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return replace(node, env={"PYTHONPATH": os.pathsep.join(paths)})

    def config(self, **settings):
        """Return the settings of a run; nobody who answers is waited for in vain, so deadlines may be long."""
        chosen = {"scheme": "block-dphe", "key_bits": 1024, "sparsity": 0.5, "rounds": 3, "seed": SEED}
        chosen["minimum_per_position"] = 1  # what is withheld only members know
        patience = {"round_seconds": 60.0, "step_seconds": 90.0, "key_generator_seconds": SECONDS}
        return self.federation.run_config(**{**chosen, **patience, "wait_seconds": SECONDS, **settings})

    @property
    def round_is_kept(self):
        """Tell whether the server has finished a round."""
        return any(self.federation.home(AGGREGATOR).glob("runs/*/state.npz"))

    def report(self):
        return json.loads((self.federation.out / "report.json").read_text())

    def weights(self):
        return LinearModel.load(self.federation.out / "model.npz").weights

    def replayed(self, config):
        """Return what the same members learn here, from plain sums of those whom the report names for each round.

        What a member learned and did not get into the sum of its round, as its diary tells, it sends later.
        """
        report, defaults = self.report(), tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
        sums, make_task, _ = learning(Settings({**defaults["config"], **config}))
        task = make_task(len(report["members"]))
        terms, learner = task.terms(sums, run="replayed", members=report["members"]), task.learner()
        shared, members = learner.first(task.seed), {name: Member(name, terms) for name in report["members"]}
        for row in report["rounds"]:
            total, number = np.zeros(terms.dimension, dtype=np.int64), row["round"]
            for place, (name, member) in enumerate(members.items()):
                if not (self.diary(name) / str(number)).exists():
                    assert name not in row["contributors"]
                    continue
                seed = member_seed(task.seed, number, place)
                integers = member.contribute(number, partial(_updated, learner, self._data(name), shared, seed))
                counted = name in row["contributors"]
                member.settle(number, np.full(terms.dimension, counted))
                total += integers if counted else 0
            moved = terms.support(number).scatter(terms.values(total)) / len(row["contributors"])
            shared = shared + moved.reshape(shared.shape)
        return shared

    def _data(self, name):
        with np.load(self.federation.home(name) / "data.npz") as arrays:
            return arrays["features"], arrays["labels"]


def _updated(learner, data, shared, seed, memory):
    return learner.update(data, shared, memory, seed)


def wait_for(happened, what):
    until = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < until, f"{what} has not happened"
        time.sleep(0.1)


def contributors(report):
    return [set(row["contributors"]) for row in report["rounds"]]
