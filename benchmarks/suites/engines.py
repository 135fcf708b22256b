"""Engines that search binary codes, and what it costs to ask so that nobody learns the query.

`hash-engines`: ours beside raw faiss, usearch and pgvector, one thread, codes clean and flipped. Codes are drawn, not
learned: a mixture of 1,000 Gaussians in 32 dimensions (standard deviation 0.5 around centres of standard deviation 1),
projected on 64 random directions; a bit is the sign of a projection. Queries are drawn alike. "Flipped" codes then have
every bit turned over with probability 0.27, as randomised response at epsilon 1 per bit does; their queries stay clean.
Engines are judged by what they return: a hit is right if it is no farther than the true 100th neighbour, by distances
computed here.

`hash-asking`: encrypted queries to drawn codes of 128 bits, beside faiss in the clear on the same codes; both
must find the true nearest. Indexes that are taken home hold random symbols of a codebook: what they weigh does not
depend on what they show.
"""

from functools import partial
from typing import Any

import faiss
import numpy as np

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.engines import Album, Codes, EngineAnswer, Questions
from benchmarks.table import Claim, Claims, Found, Table
from blindsight.errors import InputError
from blindsight.search.codes import blocks, pack

BITS, K, QUERIES = 64, 100, 1_000
FLIPS = 0.27
SIZES, QUICK_SIZES = {"1M": 1_000_000, "10M": 10_000_000}, {"4k": 4_000}
LARGE = ("Blindsight", "faiss-flat", "faiss-ivf")  # asked at 10M too
OVERHEAD = "overhead"
RATIOS = {"exact": 1.05, "lists": 1.05, "lists, one query": 1.15}  # and how large they may be
_GROUPS, _DIMENSIONS, _SPREAD = 1_000, 32, 0.5
_ROWS = 100_000  # codes drawn at once


def engine_tasks(settings: Settings) -> list[Task]:
    """Pose every size with clean and with flipped codes."""
    sizes, queries = (QUICK_SIZES, 50) if settings.quick else (SIZES, QUERIES)
    everyone = tuple(dict.fromkeys(method.name for method in ENGINES.methods))
    found = []
    for name, rows in sizes.items():
        for flips in (0.0, FLIPS):
            methods = LARGE if rows > SIZES["1M"] else everyone if not flips else everyone[:-1]
            noise = f", {flips:.0%} of their bits flipped" if flips else ""
            about = f"{rows:,} drawn codes of {BITS} bits{noise}; {queries:,} clean queries, {K} hits each."
            label = f"{name}-{'flipped' if flips else 'clean'}"
            found.append(Task(label, about, partial(_pose, rows, queries, flips), methods))
    return found


def _pose(rows: int, queries: int, flips: float, seed: int) -> Problem:
    codes, asked = drawn(rows, [seed, 0]), drawn(queries, [seed, 1])
    if flips:
        rng = np.random.default_rng([seed, 2])
        for span in blocks(rows, _ROWS):
            codes[span] ^= pack(rng.random((span.stop - span.start, BITS), dtype=np.float32) < flips)
    return Problem(Questions(codes, asked, K), partial(score, codes, asked))


def drawn(rows: int, seed: list[int]) -> Codes:
    """Draw codes of the mixture; centres and directions are the same for every seed."""
    common, rng = np.random.default_rng(99), np.random.default_rng(seed)
    centres = common.standard_normal((_GROUPS, _DIMENSIONS), dtype=np.float32)
    directions = common.standard_normal((_DIMENSIONS, BITS), dtype=np.float32)
    codes = np.empty((rows, BITS // 8), dtype=np.uint8)
    for span in blocks(rows, _ROWS):
        size = span.stop - span.start
        points = centres[rng.integers(0, _GROUPS, size)]
        points += _SPREAD * rng.standard_normal(points.shape, dtype=np.float32)
        codes[span] = pack(points @ directions)
    return codes


def score(codes: Codes, queries: Codes, answer: Any) -> dict[str, float]:
    """Judge an engine's hits, or pass on the ratios of ours to faiss."""
    if "positions" not in answer:
        return {name: float(answer[name]) for name in RATIOS}
    given: EngineAnswer = answer
    figures = {"recall": recall(codes, queries, given["positions"]), "build": given["build"]}
    figures |= {"queries/s": len(queries) / max(given["search"], 1e-9), "disk": given["disk"] / 1e6}
    return figures | ({"memory": given["memory"] / 1e6} if "memory" in given else {})


def recall(codes: Codes, queries: Codes, positions: Any) -> float:
    """Return the share of hits that are no farther than the true k-th neighbour; a hit counts once."""
    k = min(K, len(codes))
    hits = np.asarray(positions)
    if hits.shape != (len(queries), K) or hits.dtype != np.int64 or hits.max() >= len(codes):
        raise InputError(f"hits must be int64 positions below {len(codes)}, {(len(queries), K)}; got {hits.shape}.")
    truth, _ = faiss.knn_hamming(queries, codes, k)
    distances = np.bitwise_count(codes[hits] ^ queries[:, None]).sum(axis=2, dtype=np.int64)
    ordered = np.sort(hits, axis=1)
    doubles = np.count_nonzero((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0))
    if doubles:
        raise InputError(f"{doubles} hits were returned twice.")
    return float(np.count_nonzero((hits >= 0) & (distances <= truth[:, -1:])) / (len(queries) * k))


ENGINES = Benchmark(
    name="hash-engines",
    title="Engines that search binary codes",
    tasks=engine_tasks,
    methods=(
        *Method.over("Blindsight", "engines:hamming_index", kind=("auto", "exact", "ivf")),
        Method("faiss-flat", "engines:faiss_codes"),
        *Method.over("faiss-ivf", "engines:faiss_codes", probes=(4, 16)),
        Method("usearch", "engines:usearch_codes"),
        Method("pgvector", "engines:pgvector_codes", {"kind": "ivfflat"}),
        Method(OVERHEAD, "engines:index_overhead", {"turns": 5}),
    ),
    tables=(
        Table(
            "{}",
            "method exactly",
            f" | | build, CPU s = build | queries / CPU s = queries/s | recall@{K} = recall | memory, MB = memory | "
            "disk, MB = disk",
            each="dataset",
            of=lambda found: Found(r for r in found if r.method != OVERHEAD),
        ),
        Claims(
            "CPU time of a batch of queries, and of one after the other",
            [Claim(f"{what}: Blindsight / raw faiss", {"figure": what}, most=most) for what, most in RATIOS.items()],
            ("reached", "missed"),
            "The same queries by turns in one process, the same lists and probes; ours returns ids, faiss positions.",
        ),
    ),
    notes=(
        "One thread each; queries a second of CPU time, in one batch of 1,000 (pgvector: of 256). Run with "
        "OMP_NUM_THREADS=1.",
        "A single earlier measurement on a million other codes, queries/s (recall): faiss-flat 800 (1.000), faiss-ivf "
        "with 4 probes 21,000 (.970), with 16 probes 14,000 (.998), usearch 3,300 (.994), pgvector's ivfflat 319 "
        "(.992), its hnsw 221 (.982), which took 541 s to build and is left out here.",
        "Blindsight's `build` includes making the lists and measuring how many of them to open for a recall of .99 on "
        "the index's own codes: noisy ones if they were flipped, so harder than the clean queries asked here. `auto` "
        "compares all codes up to a million.",
        "faiss-ivf opens a fixed number of sqrt(n) lists. Memory is by how much a process grows when the index is "
        "built, the given codes not counted; ours includes the ids.",
        "pgvector is reached through Blindsight's PostgresIndex, its lists tuned to a recall of .99 in the same way. "
        "Its CPU time is the server's and the client's together, its memory the server's cache of 256 MB.",
    ),
    runs=1,
)

ASKED_BITS, ASKED_DIMENSIONS = 128, 32
SCANNERS = ("encrypted", "encrypted-numbers", "faiss-flat")


def asking_tasks(settings: Settings) -> list[Task]:
    """Pose scans of two sizes, and two sizes to take home."""
    scans = {"1k": 1_000} if settings.quick else {"10k": 10_000, "100k": 100_000}
    pulls = {"pull-5k": 5_000} if settings.quick else {"pull-1M": 1_000_000, "pull-10M": 10_000_000}
    queries = 1 if settings.quick else 5
    said = f"{{:,}} drawn codes of {ASKED_BITS} bits; {queries} queries, {K} hits each."
    home = "{:,} drawn releases of a local index."
    return [
        *(Task(name, said.format(rows), partial(_scan, rows, queries), SCANNERS) for name, rows in scans.items()),
        *(Task(name, home.format(rows), partial(_pull, rows), ("pull",)) for name, rows in pulls.items()),
    ]


def _scan(rows: int, queries: int, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    codes, asked = (rng.integers(0, 256, (n, ASKED_BITS // 8), dtype=np.uint8) for n in (rows, queries))

    def judged(answer: Any) -> dict[str, float]:
        if recall(codes, asked, answer["positions"]) != 1:
            raise InputError("a full scan must find the true nearest.")
        return {name: float(value) for name, value in answer.items() if name != "positions"}

    return Problem(Questions(codes, asked, K), judged)


def _pull(rows: int, seed: int) -> Problem:
    def judged(answer: Any) -> dict[str, float]:
        if not answer["same"]:
            raise InputError("what was taken home is not what was given.")
        return {name: float(value) for name, value in answer.items() if name != "same"} | {"records": float(rows)}

    return Problem(Album(rows, ASKED_DIMENSIONS), judged)


ASKING = Benchmark(
    name="hash-asking",
    title="Asking without being heard",
    tasks=asking_tasks,
    methods=(
        Method("encrypted", "engines:encrypted"),
        Method("encrypted-numbers", "engines:encrypted", {"number_bits": 4}),
        Method("faiss-flat", "engines:plain"),
        *Method.over("pull", "engines:pull", epsilon=(4.0, 8.0)),
    ),
    tables=(
        Table(
            f"One query to codes of {ASKED_BITS} bits",
            "method dataset",
            " | records | up, MB = up * 1e-6 | down, MB = down * 1e-6 | search, CPU s = answer | "
            "encode once, CPU s = build | memory, MB = memory * 1e-6",
            more={"asker, CPU s": {"figure": lambda r: sum(r.score.get(step, 0.0) for step in ("encrypt", "decrypt"))}},
            of=lambda found: found(method=SCANNERS),
        ),
        Table(
            "The whole index, taken home",
            "dataset epsilon",
            " | epsilon | symbols = symbols | MB = bytes * 1e-6 | give, CPU s = give | receive, CPU s = receive | "
            "first, CPU s = first | rank, CPU s = rank",
            more={"bytes a record": {"figure": lambda r: r.score["bytes"] / r.score["records"]}},
            of=lambda found: found(method="pull"),
        ),
    ),
    notes=(
        "One thread each, CPU time a query. Targets of an encrypted query at 100,000 records: at most 1 s and 15 MB.",
        "Before the first encrypted query the asker takes the hash function and the pictures' numbers, eight bytes "
        "each; the search encodes its codes once.",
        f"encrypted-numbers: {ASKED_BITS} numbers of 4 bits in place of bits.",
        "The first query to an index that was taken home sorts its records by symbol.",
    ),
    runs=1,
)
