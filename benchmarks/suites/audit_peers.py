"""Strength and time of audits: membership beside the Adversarial Robustness Toolbox, pictures from gradients beside
breaching, epsilon of Opacus's DP-SGD.
"""

import warnings
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.auditing import Releases, SeenGradient, Suspects, network, wrapped
from benchmarks.table import Table, cpu
from blindsight.audit.membership import measure
from blindsight.errors import InputError
from blindsight.papers.selective.gradients import MatchedBatch

_MULTIPLIER, _DELTA = 1.2, 1e-5


def tasks(settings: Settings) -> list[Task]:
    """Pose all tasks; breaching is asked where it is installed."""
    rows, runs = (200, 200) if settings.quick else (1200, 2000)
    here = settings.recorded or (not settings.quick and find_spec("breaching") is not None)
    asked = tuple(method.name for method in GRADIENTS if here or method.name != "breaching")
    return [
        *(
            Task(
                f"gradient-faces-{batch}",
                f"the gradient of {batch} drawn face{'s' * (batch > 1)} of 32x32 in colour, of different classes, at "
                "the first weights of the network of Zhu, Liu and Han (2019). Every run draws others.",
                partial(_gradient, batch),
                asked,
            )
            for batch in ((1,) if settings.quick else BATCHES)
        ),
        Task(
            f"members-digits-{rows}",
            f"{rows:,} of the bundled digits; a perceptron of 64 units was trained on half. Every run draws others.",
            partial(_members, rows),
            tuple(method.name for method in MEMBERS),
        ),
        Task(
            f"epsilon-opacus-{runs}",
            f"{runs:,} steps of Opacus's DPOptimizer with a record whose gradient is as long as the clip, and as many "
            f"without it; noise multiplier {_MULTIPLIER:g}, delta {_DELTA:g}, 95% confidence.",
            partial(_epsilon, runs),
            tuple(method.name for method in BOUNDS),
        ),
    ]


def _members(rows: int, seed: int) -> Problem:
    from blindsight.data import load

    digits = load("digits")
    images, labels = np.asarray(digits.images), np.asarray(digits.labels)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(digits))[:rows]
    X = images[chosen].reshape(rows, -1).astype(np.float32) / np.float32(255)
    y, member = labels[chosen], rng.permutation(rows) < rows // 2
    given = Suspects(X, y, network(X[member], y[member], seed))
    wrapped(given.model)  # ART takes a second to import, which is nobody's time
    return Problem(given, partial(_found, member))


def _found(member: NDArray[np.bool_], scores: NDArray[np.float64]) -> dict[str, float]:
    if np.shape(scores) != member.shape:
        raise InputError(f"an attack gives a score for each of {len(member)} rows; got {np.shape(scores)}.")
    roc = measure(scores[member], scores[~member], fprs=(0.01,))
    return {"auc": roc.auc.value, "tpr": roc.points[0].tpr.value}


def _gradient(batch: int, seed: int) -> Problem:
    import torch

    from blindsight.data import load

    drawn = load("faces", count=40, random_state=0).images
    assert drawn is not None
    rng, classes = np.random.default_rng(seed), 4
    pictures = drawn[rng.permutation(len(drawn))[:batch]].astype(np.float64) / 255
    pictures = pictures.reshape(batch, 32, 2, 32, 2, 3).mean(axis=(2, 4)).transpose(0, 3, 1, 2)
    truth, labels = (pictures - 0.5) / 0.25, tuple(range(batch))
    model = _zhu_network(classes, rng)
    loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(truth)), torch.tensor(labels))
    parts = torch.autograd.grad(loss, list(model.parameters()))
    gradient = torch.cat([part.flatten() for part in parts]).numpy()
    return Problem(SeenGradient(model, gradient, truth.shape[1:], labels), partial(_likeness, truth))


def _zhu_network(classes: int, rng: np.random.Generator) -> Any:
    """Return the network of "Deep leakage from gradients": three convolutions, smooth activations, uniform weights."""
    from torch import from_numpy, nn, no_grad

    sizes = ((3, 2), (12, 2), (12, 1))  # channels and stride
    layers = [part for size, step in sizes for part in (nn.Conv2d(size, 12, 5, step, 2), nn.Sigmoid())]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(12 * 8 * 8, classes)).double()
    with no_grad():
        for parameter in model.parameters():
            parameter.copy_(from_numpy(rng.uniform(-0.5, 0.5, tuple(parameter.shape))))
    return model


def _likeness(truth: NDArray[np.float64], pictures: NDArray[np.float64]) -> dict[str, float]:
    if np.shape(pictures) != truth.shape:
        raise InputError(f"an attack gives pictures of shape {truth.shape}; got {np.shape(pictures)}.")
    cosines = MatchedBatch(pictures, 0.0).cosines(truth)
    return {"cosine": float(cosines.mean())}


def _epsilon(runs: int, seed: int) -> Problem:
    from blindsight.dp.accounting import gaussian_epsilon

    inside, outside = (_opacus_steps(runs, gradient, seed) for gradient in (1.0, 0.0))
    truth = gaussian_epsilon(_MULTIPLIER, _DELTA)
    return Problem(
        Releases(inside, outside, _DELTA), lambda lower: {"lower": lower, "share": lower / truth, "true": truth}
    )


def _opacus_steps(runs: int, gradient: float, seed: int) -> NDArray[np.float64]:
    """Return the noisy gradient of one parameter in each step, for a record with this gradient."""
    import torch
    from opacus.optimizers import DPOptimizer

    weight = torch.nn.Parameter(torch.zeros(1))
    generator = torch.Generator().manual_seed(2 * seed + int(gradient))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimiser = DPOptimizer(
            torch.optim.SGD([weight], lr=1.0),
            noise_multiplier=_MULTIPLIER,
            max_grad_norm=1.0,
            expected_batch_size=1,
            generator=generator,
        )
    released = np.empty(runs)
    for run in range(runs):
        weight.grad_sample = torch.full((1, 1), gradient)
        optimiser.pre_step()
        assert weight.grad is not None
        released[run] = weight.grad.item()
        optimiser.zero_grad()
    return released


MEMBERS = (
    Method("loss-threshold", "auditing:by_loss"),
    *(Method(f"LiRA-{n}", "auditing:lira", {"shadows": n}) for n in (4, 16)),
    *(Method(f"RMIA-{n}", "auditing:rmia", {"shadows": n}) for n in (4, 16)),
    Method("ART-rule", "auditing:art_rule"),
    *(Method(f"ART-rf-{n}", "auditing:art_black_box", {"shadows": n, "kind": "rf"}) for n in (4, 16)),
)
BOUNDS = (
    Method("events", "auditing:events"),
    Method("one-run", "auditing:one_run"),
    Method("gaussian-trade-off", "auditing:trade_off"),
)
BATCHES = (1, 4)
GRADIENTS = (
    Method("matching", "auditing:matched", {"smoothness": 1e-3, "iterations": 1000}),
    Method("matching-unsmoothed", "auditing:matched", {"smoothness": 0.0, "iterations": 1000}),
    Method("breaching", "auditing:breaching", {"attack": "invertinggradients"}),
)
BENCHMARK = Benchmark(
    name="audit-peers",
    title="Audits beside their peers",
    tasks=tasks,
    methods=(*MEMBERS, *GRADIENTS, *BOUNDS),
    tables=(
        Table(
            "Who was trained on",
            {method.name: {"method": method.name} for method in MEMBERS},
            "attack | AUC = auc | TPR at 1% FPR = tpr | CPU s = cpu_seconds",
        ),
        Table(
            "Pictures from the gradient of a batch: mean cosine of what is found with the pictures",
            {method.name: {"method": method.name} for method in GRADIENTS},
            "attack",
            more={
                f"{said}, batch of {batch}": {"dataset": f"gradient-faces-{batch}", "figure": figure}
                for said, figure in (("cosine", "cosine"), ("CPU s", cpu))
                for batch in BATCHES
            },
        ),
        Table(
            "Epsilon of a step of DP-SGD (Opacus)",
            {method.name: {"method": method.name} for method in BOUNDS},
            "bound | epsilon, at least = lower | share of the truth = share | CPU s = cpu_seconds",
        ),
    ),
    notes=(
        "LiRA, RMIA and ART take as many shadow models as their names say. ART is the Adversarial Robustness Toolbox "
        "with its own shadow models, trained like ours on parts of the rows under attack, and a random forest that "
        "looks at outputs and labels; ours look at each row's fit in every shadow.",
        "Opacus has no auditor of its own: its optimiser is on trial. Bounds are those of the literature (events: "
        "Jagielski et al. 2020; one run: Steinke et al. 2023, each run a canary) and ours for Gaussian noise.",
        "breaching is measured where it is installed (`pip install hydra-core; pip install --no-deps "
        "breaching==0.1.2`: it asks for torchvision, which its attacks do not need), with the settings of its file for "
        "Inverting Gradients (24,000 steps), in double precision. Ours takes 1,000 of L-BFGS. Both are given the "
        "labels. A cosine of 0.99 counts as recovered in an audit.",
        "privacy-meter 1.0.1 was not measured: it does nothing without TensorFlow.",
    ),
)
