"""Learners and data that the tests of the loop play with."""

from dataclasses import replace

import numpy as np

from blindsight.learn.classifier import CLASSIFIER, classifier_task
from blindsight.learn.clustering import ClusterTraining
from blindsight.learn.kmeans import cluster_task
from blindsight.learn.linear import LinearTraining
from blindsight.learn.model import Attributes, Classes
from blindsight.learn.private import private_task
from blindsight.papers.dphe.learning import PublishedLearner
from blindsight.rounds import Memory, Privacy, Sums, Task, Update
from blindsight.rounds.task import LEARNERS
from blindsight.sums import DpheOptions

NAMES = ("ann", "bob", "cem", "dan")
PAILLIER = DpheOptions(key_bits=1024, insecure=True, minimum_per_position=1)


class Constant:
    """A member learns the same vector in every round and sends what it holds, all of it or its first half."""

    largest, additive = 64.0, True

    def __init__(self, task, validation):
        self.size, self.half, self.always = task.settings["size"], task.settings["half"], task.settings["always"]

    def first(self, seed):
        return np.zeros(self.size)

    def update(self, data, shared, memory, seed):
        pending = data + (0 if memory.held is None else memory.held)
        sent = np.where(np.arange(self.size) < self.size // 2, pending, 0.0) if self.half else pending
        return Update(sent, Memory(pending - sent))

    def combine(self, shared, total):
        return shared + total.average

    def score(self, shared):
        return None


LEARNERS["constant"] = Constant


def constant(size=6, *, half=False, always=0):
    return Task(kind="constant", settings={"size": size, "half": half, "always": always})


def examples(seed, n=40):
    generator = np.random.default_rng(seed)
    y = np.concatenate([np.arange(4), generator.integers(4, size=n - 4)])
    centres = 2 * np.random.default_rng(7).normal(size=(4, 12))
    return centres[y] + generator.normal(size=(n, 12)), y


DATA = {name: examples(seed) for seed, name in enumerate(NAMES)}
PUBLIC, TEST = examples(9, 20), examples(10, 100)
FOUR = Classes(np.arange(4))


def attributes_of(y):
    """Return two attributes by class; of the last class the second is not known (0)."""
    return np.array([[1, 1], [1, -1], [-1, 1], [-1, 0]])[y]


def sums(scheme="plain", share=None, **options):
    return Sums(scheme=scheme, share=share, options=replace(PAILLIER, **options) if "dphe" in scheme else None)


def training(chosen, **others):
    return LinearTraining(**chosen.selection, ridge=0.1, **others)


def task_of(kind, chosen):
    """Return a task of this kind, and what each member loads."""
    if kind == CLASSIFIER:
        return classifier_task(PUBLIC, FOUR, training(chosen)), DATA
    if kind == "attributes":
        data = {name: (X, attributes_of(y)) for name, (X, y) in DATA.items()}
        return classifier_task((PUBLIC[0], attributes_of(PUBLIC[1])), Attributes(2), training(chosen)), data
    if kind == "private classifier":
        privacy = Privacy(epsilon=8.0, delta=1e-5, unit="record")
        return private_task(PUBLIC, FOUR, privacy, sizes=[40] * 4, rounds=4, scheme=chosen.scheme), DATA
    if kind == "k-means":
        how = ClusterTraining(**chosen.selection)
        return cluster_task(PUBLIC[0], 4, how, most_samples=200), {name: X for name, (X, _) in DATA.items()}
    net = {"target": "update", "sparsity": 0.5, "l1_ratio": 0.5}
    assert LEARNERS[kind] == PublishedLearner.of
    return classifier_task(PUBLIC, FOUR, training(sums()), kind=kind, net=net), DATA


def loaders(data):
    return {name: (lambda held=held: held) for name, held in data.items()}
