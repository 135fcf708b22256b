"""A network small enough for numpy, photos it can learn from, and runs made of them."""

from dataclasses import dataclass

import numpy as np
import pytest

from blindsight.learn.modules import ParameterLayout
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.noise import Sharing
from blindsight.papers.selective.protocol import ParameterServer, Participant, Trainer

SIDE, CLASSES = 5, 3


@dataclass
class LogisticTrainer(Trainer):
    """Softmax regression in float32 by one step of gradient descent for each batch and epoch."""

    learning_rate: float = 0.1
    record_noise: RecordGaussian | None = None
    epochs: int = 1
    names: tuple[str, str] = ("weight", "bias")

    @property
    def layout(self):
        return ParameterLayout(self.names, ((SIDE * SIDE, CLASSES), (CLASSES,)))

    def initial(self):
        return np.random.default_rng(7).normal(scale=0.1, size=self.layout.dimension).astype(np.float32)

    def train(self, parameters, inputs, labels, seed):
        rows = np.column_stack([inputs.reshape(len(inputs), -1), np.ones(len(inputs))]).astype(np.float32)
        weights, truth = parameters.reshape(-1, CLASSES), np.eye(CLASSES, dtype=np.float32)[labels]
        for _ in range(self.epochs):
            logits = rows @ weights
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            gradient = rows.T @ (odds / odds.sum(axis=1, keepdims=True) - truth) / np.float32(len(rows))
            weights = weights - np.float32(self.learning_rate) * gradient
        return weights.ravel()

    def scores(self, parameters, inputs):
        rows = np.column_stack([inputs.reshape(len(inputs), -1), np.ones(len(inputs))])
        return rows @ parameters.reshape(-1, CLASSES)


@pytest.fixture
def trainer():
    return LogisticTrainer()


@pytest.fixture(scope="session")
def make_trainer():
    return LogisticTrainer


@pytest.fixture(scope="session")
def make_photos():
    """Return a function that makes photos of three classes, each with an average of its own."""
    averages = np.random.default_rng(1).normal(size=(CLASSES, SIDE, SIDE))

    def make(count, seed):
        rng = np.random.default_rng(seed)
        labels = rng.integers(CLASSES, size=count)
        return (averages[labels] + rng.normal(size=(count, SIDE, SIDE))).astype(np.float32), labels

    return make


@pytest.fixture
def make_server(trainer):
    """Return a function that makes a server of the trainer's network."""
    return lambda **options: ParameterServer(trainer.initial(), **options)


@pytest.fixture
def join(make_photos):
    """Return a function that lets a participant join a server's run, with parameters and photos for some batches."""

    def make(server, name="ann", sharing=None, *, batches=1, **options):
        seed = sum(name.encode())
        options = {"random_state": seed, "trainer": LogisticTrainer(), "batch": 4} | options
        participant = Participant(name, sharing=sharing or Sharing(0.2), **options)
        participant.gather(*make_photos(batches * participant.batch, seed))
        participant.take(server.answer(), server.version)
        return participant

    return make
