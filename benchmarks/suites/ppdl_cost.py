"""What selective sharing costs: bytes by how much is shared, and CPU time beside a plain torch loop."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.selective import BATCH, SHARES, Answer, Steps
from benchmarks.results import Argument, Result
from benchmarks.table import Cell, Grid, heads, verdict
from blindsight.errors import InputError
from blindsight.selective.networks import small_cnn

Values = tuple[float, ...]

MOST_RATIO, MOST_BYTES = 1.10, 0.16
EPOCH = 20_000  # photos


def tasks(settings: Settings) -> list[Task]:
    """Pose the steps of the network from scratch on drawn photos: what they show does not matter to the cost."""
    side, block, blocks = (8, 2, 2) if settings.quick else (32, 5, 16)
    text = (
        f"{block * blocks} steps of {BATCH} drawn photos of {side} x {side} pixels by the network from scratch, timed "
        f"in blocks of {block}, in turn with a plain loop."
    )
    return [Task("small-cnn", text, partial(_pose, side, block, blocks))]


def _pose(side: int, block: int, blocks: int, seed: int) -> Problem:
    rng, count = np.random.default_rng(seed), BATCH * block * blocks
    photos = rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    network = small_cnn(4, side, random_state=seed)
    return Problem(Steps(network, photos, rng.integers(0, 4, count), block), partial(score, block))


def score(block: int, answer: Answer) -> dict[str, float]:
    """Return medians of times and their ratio, mean bytes, and how far apart both results are."""
    if answer["plain"].shape != answer["shared"].shape:
        raise InputError(f"both must learn {answer['plain'].shape} parameters; got {answer['shared'].shape}.")
    figures = {"difference": float(np.abs(answer["plain"] - answer["shared"]).max())}
    if "receive" in answer:
        cpu, wall = np.median(answer["receive"], axis=0)
        return {**figures, "receive cpu": float(cpu), "receive wall": float(wall)}
    plain, shared = answer["seconds"].T / block
    dense = 4 * answer["plain"].size
    return {
        **figures,
        "plain": float(np.median(plain)),
        "ours": float(np.median(shared)),
        "ratio": float(np.median((shared - answer["served"] / block) / plain)),
        "whole ratio": float(np.median(shared / plain)),
        "upload": float(np.mean(answer["uploads"])),
        "download": float(np.mean(answer["downloads"])),
        "dense": float(dense),
        "of dense": float(np.mean(answer["uploads"])) / dense,
    }


def sections(results: Sequence[Result]) -> list[Grid]:
    """Return the targets, the table of steps, and that of receiving."""
    steps, received = ([r for r in results if r.method == name] for name in ("steps", "receive"))
    return [_targets(steps), _steps(steps), _received(received)]


def _values(results: Sequence[Result], arguments: Mapping[str, Argument], measure: str, scale: float = 1.0) -> Values:
    return tuple(scale * r.score[measure] for r in results if r.arguments == arguments)


def _targets(results: Sequence[Result]) -> Grid:
    main = {"share": 0.1}
    size, ratio = (_values(results, main, measure) for measure in ("of dense", "ratio"))
    everything = _values(results, {"share": 1.0}, "difference")
    rows: tuple[tuple[Cell, ...], ...] = (
        (
            "bytes of an upload at share 0.1, of a dense one in float32",
            size,
            f"{MOST_BYTES}",
            _at_most(size, MOST_BYTES),
        ),
        (
            "CPU time of a participant's step at share 0.1, of a plain loop's",
            ratio,
            f"{MOST_RATIO}",
            _at_most(ratio, MOST_RATIO),
        ),
        ("everything shared: distance from the plain loop's result", everything, "0", _at_most(everything, 0.0)),
    )
    return Grid("Targets", ("", "measured", "at most", "verdict"), rows)


def _at_most(values: Values, most: float) -> str:
    return verdict([-value for value in values], -most, ("reached", "missed"))


def _steps(results: Sequence[Result]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for arguments in VARIANTS:
        said = f"share {arguments['share']:g}" + "".join(
            f", {name}" for name in ("half", "journal") if name in arguments
        )
        figures = [
            _values(results, arguments, "upload", 1e-3),
            _values(results, arguments, "of dense"),
            _values(results, arguments, "upload", EPOCH / BATCH / 1e6),
            _values(results, arguments, "plain", 1e3),
            _values(results, arguments, "ours", 1e3),
            _values(results, arguments, "ratio"),
            _values(results, arguments, "whole ratio"),
            tuple(1 / value for value in _values(results, arguments, "ours")),
        ]
        rows.append((said, *figures))
    columns = heads(
        f" | upload, kB | of dense float32 | MB up in an epoch of {EPOCH:,} photos | plain, CPU ms a step | "
        "ours, CPU ms a step | participant to plain | with the server to plain | our steps a CPU second"
    )
    dense = sorted({result.score["dense"] for result in results})
    note = (
        "Ratios are medians over blocks of steps that were timed in turn. Half: values of 16 bits. Journal: the server "
        "writes every upload to disk before it answers."
    )
    if len(dense) == 1:
        note += f" A dense float32 update, and about what every step downloads, is {dense[0] / 1e3:.1f} kB."
    return Grid("Steps", columns, tuple(rows), note)


def _received(results: Sequence[Result]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for journal, said in ((False, "in memory"), (True, "with a journal on disk")):
        arguments = {"share": 0.1, "journal": journal}
        rows.append((said, *(_values(results, arguments, f"receive {clock}", 1e3) for clock in ("cpu", "wall"))))
    title = "A server receives an upload (share 0.1)"
    return Grid(title, ("", "CPU ms, median", "wall ms, median"), tuple(rows))


VARIANTS: tuple[dict[str, Argument], ...] = (
    *(dict[str, Argument](share=share) for share in SHARES),
    {"share": 0.1, "half": True},
    {"share": 0.1, "journal": True},
)

BENCHMARK = Benchmark(
    name="ppdl-cost",
    title="What selective sharing costs beside plain training",
    tasks=tasks,
    methods=(
        *(Method("steps", "selective:both", arguments) for arguments in VARIANTS),
        *(Method("receive", "selective:receive", {"share": 0.1, "journal": journal}) for journal in (False, True)),
    ),
    sections=sections,
    notes=(
        "A step is one batch of 32 photos. Ours is all that a participant and the server do for it: a download of all "
        "parameters, training, selection, upload, addition and receipt, in one process on one thread. A participant's "
        "part of it is without what the server does, which is another machine's. The plain loop is torch's, from bytes "
        "to parameters.",
        "CPU time of a step depends on what else the machine does; the ratio is of blocks next to each other.",
        "With everything shared the result must be that of the plain loop bit for bit.",
    ),
    runs=3,
)
