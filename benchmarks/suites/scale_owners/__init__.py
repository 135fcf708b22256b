"""How the cost of a round grows with the number of owners, and whether the cost model foretells it.

101 x 2048 weights; 10, 100 and 1,000 owners in one process, one at a time. `cases` says what is measured, `tables` how
it is shown.
"""

from benchmarks.harness import Benchmark, Method
from benchmarks.suites.scale_owners.cases import tasks
from benchmarks.suites.scale_owners.tables import sections

_ROUND, _MODEL = (f"benchmarks.methods.scale_{name}:run" for name in ("round", "model"))

BENCHMARK = Benchmark(
    name="scale-owners",
    title="Rounds of many owners",
    tasks=tasks,
    methods=(
        Method("block-dphe", _ROUND, {"scheme": "block-dphe"}),
        Method("bfv", _ROUND, {"scheme": "bfv"}),
        *(
            Method("model", _MODEL, {"scheme": scheme, "slot_bits": slot_bits})
            for scheme in ("block-dphe", "bfv")
            for slot_bits in (32, 40)
        ),
    ),
    sections=sections,
    notes=(
        "All sums are checked: each is that of the owners' updates, bit for bit.",
        "All roles are in one process. An owner draws its update, contributes and is dropped before the next; the peak "
        "is that of the whole process, with Python and its libraries.",
        "`block-dphe` has 3072-bit keys; owners change their own tenth of the blocks of 95 weights. `bfv` sends all.",
        "An owner is charged for the window table or the lattice key that it prepares, as in a process of its own. "
        "Its seconds are the median over all owners; those of reading the answer, over ten.",
        "Making the Paillier or lattice key is not counted. Seconds are CPU seconds of one core.",
        "The model is calibrated once for each scheme, on rounds of 3, 9 and 60 owners, and foretells all others. That "
        "is not at the time of the measurements: on a busy machine, CPU seconds of the two differ by that alone.",
        "The plan is predicted, not measured. Its machines have 8 cores and 1 Gbit/s, owners 10 Mbit/s; nodes ask for "
        "work every 3 seconds; nothing overlaps but what different machines do.",
    ),
    runs=1,
)
