"""All lines of the figure for both models, and what was tried before, on other seeds, to tune them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.harness import Method
from benchmarks.results import Argument
from benchmarks.suites.ppdl_days.cases import RATES
from blindsight.selective.study import Model

EPSILONS = (2, 8, 32)
_ADAPTER = "benchmarks.methods.daylines:run"


@dataclass(frozen=True)
class Played:
    """One line: what tables call it, and the arguments it is played with."""

    said: str
    arguments: dict[str, Argument] = field(default_factory=dict)


SAID = {
    "photo": "noise per photo, largest 10%",
    "participant": "noise per participant, random 10%",
    "dp-fedavg": "DP-FedAvg, equal uploads",
    "dp-fedavg-bytes": "DP-FedAvg, equal bytes",
    "masks": "sums under masks, noise shared among 10",
}
CLIPS = {  # by kind, for each epsilon: best on the tuning seed
    "photo": (0.3, 3.0, 10.0),
    "participant": (0.00003, 0.0001, 0.0001),
    "dp-fedavg": (0.0003, 0.001, 0.003),
    "dp-fedavg-bytes": (0.001, 0.001, 0.01),
}
TRIED_CLIPS = {
    "photo": (0.3, 1.0, 3.0, 10.0),
    "participant": (0.00003, 0.0001, 0.0003, 0.001),
    "dp-fedavg": (0.0003, 0.001, 0.003, 0.01),
    "dp-fedavg-bytes": (0.001, 0.003, 0.01, 0.03),
}
SERVER_RATES: Mapping[Model, Mapping[str, float]] = {
    "head": {"fedavg": 10.0, "fedavg-bytes": 3.0},
    "cnn": {"fedavg": 1.0, "fedavg-bytes": 0.3},
}
TRIED_RATES: Mapping[Model, tuple[float, ...]] = {"head": (1.0, 3.0, 10.0), "cnn": (0.3, 1.0, 3.0)}


def _unproven(model: Model) -> tuple[Played, ...]:
    rates = SERVER_RATES[model]
    return (
        Played("centralised", {"kind": "centralised"}),
        Played("never updated", {"kind": "never"}),
        Played("local only", {"kind": "local"}),
        *(Played(f"largest {share:.0%}", {"kind": "largest", "share": share}) for share in (0.1, 0.2)),
        *(Played(f"the paper's noise, {share:.0%}", {"kind": "published", "share": share}) for share in (0.1, 0.2)),
        Played(
            "the paper's noise, 10%, on gradients instead of changes",
            {"kind": "published", "share": 0.1, "step": RATES[model]},
        ),
        Played("random 10%", {"kind": "random", "share": 0.1}),
        Played("largest 10% with residuals (top-k)", {"kind": "residuals", "share": 0.1}),
        Played("FedAvg, equal uploads", {"kind": "fedavg", "server_rate": rates["fedavg"]}),
        Played("FedAvg, equal bytes", {"kind": "fedavg-bytes", "share": 0.1, "server_rate": rates["fedavg-bytes"]}),
    )


def _proven() -> tuple[Played, ...]:
    played = []
    for kind, clips in CLIPS.items():
        for epsilon, clip in zip(EPSILONS, clips, strict=True):
            arguments: dict[str, Argument] = {"kind": kind, "epsilon": epsilon, "clip": clip}
            played.append(Played(f"{SAID[kind]}, epsilon {epsilon}", arguments))
    for epsilon, clip in zip(EPSILONS, CLIPS["dp-fedavg"], strict=True):
        arguments = {"kind": "masks", "epsilon": epsilon, "clip": round(clip / 10, 9)}  # ten are added up
        played.append(Played(f"{SAID['masks']}, epsilon {epsilon}", arguments))
    return tuple(played)


LINES = {model: _unproven(model) for model in SERVER_RATES}
LAPLACE = Played("Laplace noise on changes cut first, random 10%", {"kind": "laplace", "share": 0.1})
LINES["head"] = (*LINES["head"], LAPLACE, *_proven())


def _tried_rates(model: Model) -> list[dict[str, Argument]]:
    return [{"kind": kind, "server_rate": rate} for kind in ("fedavg", "fedavg-bytes") for rate in TRIED_RATES[model]]


def _tried_clips() -> list[dict[str, Argument]]:
    return [
        {"kind": kind, "epsilon": epsilon, "clip": clip}
        for kind, clips in TRIED_CLIPS.items()
        for epsilon in EPSILONS
        for clip in clips
    ]


TRIED = {"head": [*_tried_rates("head"), *_tried_clips()], "cnn": _tried_rates("cnn")}


def methods() -> tuple[Method, ...]:
    """Return what is measured on the days of both models, candidates of tuning included."""
    asked = [Method(_name(model, line), _ADAPTER, line.arguments) for model, lines in LINES.items() for line in lines]
    tried = [Method(f"{model}-tune", _ADAPTER, arguments) for model, every in TRIED.items() for arguments in every]
    return (*asked, *tried)


def _name(model: Model, line: Played) -> str:
    """Name the method: sums under masks, which take long, can be asked for alone."""
    return f"{model}-masks" if line.arguments["kind"] == "masks" else model
