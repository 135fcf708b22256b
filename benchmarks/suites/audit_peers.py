"""Strength and time of audits: membership beside the Adversarial Robustness Toolbox, epsilon of Opacus's DP-SGD."""

import warnings
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.auditing import Releases, Suspects, network, wrapped
from benchmarks.table import Table
from blindsight.audit.membership import measure
from blindsight.errors import InputError

_MULTIPLIER, _DELTA = 1.2, 1e-5


def tasks(settings: Settings) -> list[Task]:
    """Pose both tasks."""
    rows, runs = (200, 200) if settings.quick else (1200, 2000)
    return [
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
BENCHMARK = Benchmark(
    name="audit-peers",
    title="Audits beside their peers",
    tasks=tasks,
    methods=(*MEMBERS, *BOUNDS),
    tables=(
        Table(
            "Who was trained on",
            {method.name: {"method": method.name} for method in MEMBERS},
            "attack | AUC = auc | TPR at 1% FPR = tpr | CPU s = cpu_seconds",
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
    ),
)
