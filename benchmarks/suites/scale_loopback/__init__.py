"""How long a round takes when every party is a process of its own: the Flower app over loopback with TLS.

`cases` says what is measured, `tables` how it is shown.
"""

from benchmarks.harness import Benchmark, Method
from benchmarks.suites.scale_loopback.cases import LATENCIES, tasks
from benchmarks.suites.scale_loopback.tables import sections

_HERE = "benchmarks.methods.loopback_round:run"

BENCHMARK = Benchmark(
    name="scale-loopback",
    title="Rounds over loopback",
    tasks=tasks,
    methods=(
        *(
            Method(f"{kind}-{launcher}", "benchmarks.methods.latency_round:run", {"kind": kind, "launcher": launcher})
            for kind, launcher in LATENCIES
        ),
        *(Method(scheme, _HERE, {"scheme": scheme}) for scheme in ("block-dphe", "bfv")),
    ),
    sections=sections,
    notes=(
        "Latency: `stock` is Flower as it is (a program for every message, polls every 3 seconds), `warm` the launcher "
        "`blindsight.federated.flower.launcher`, which has the SuperLink in both. Masks and SecAgg+ take four waves of "
        "messages a round, FedAvg one. `--only '*-[sw]*' --force` measures this table alone.",
        "Real processes on one machine: a SuperLink, the server's side, a key generator and the owners, each with a "
        "SuperNode; TLS, authenticated nodes, a database on disk. All of them share the cores of the machine.",
        "Every model is checked: it is the one that the same owners learn in one process, number for number.",
        "Means of two rounds after a first one that is not counted. An owner is sent the model (8 bytes a weight) and "
        "the last sum, learns from 12 samples, encrypts and sends its contribution.",
        "`block-dphe` has 3072-bit keys and sends a tenth of the blocks; `bfv` sends all weights, 17 bytes each.",
        "Nodes ask the SuperLink for work every 3 seconds, and every message to one is handled by a process that "
        "starts for it. Of CPU seconds, those that idle processes use (measured after each run) are shown apart.",
        "Wall time is that of the machine as it was: the table says how many of its cores other work used meanwhile.",
    ),
    runs=1,
)
