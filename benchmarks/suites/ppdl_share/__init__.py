"""How much must be shared, and which part of it: fractions by selections, with and without residuals.

`cases` says who has which photos, `tables` sets the figures beside a reference and judges what should hold.
"""

from benchmarks.harness import Benchmark, Method
from benchmarks.suites.ppdl_share.cases import EPOCHS, RATES, THRESHOLDS, tasks
from benchmarks.suites.ppdl_share.tables import measured_ways, sections

_HERE = "benchmarks.methods.shared_epochs"

BENCHMARK = Benchmark(
    name="ppdl-share",
    title="Selective sharing: how much, chosen how, with residuals or without",
    tasks=tasks,
    methods=(
        *(Method("unshared", f"{_HERE}:unshared", {"line": line}) for line in ("centralised", "alone")),
        *(Method("selective", f"{_HERE}:selective", arguments) for arguments in measured_ways()),
    ),
    sections=sections,
    notes=(
        "Ten participants upload in turn, after every 32 photos, and download everything; no bound, no noise. What is "
        "shared is scored by the server's model, learning alone by everyone's own.",
        f"Plain gradients: digits {EPOCHS['digits']} epochs with a learning rate of {RATES['digits']}, photos "
        f"{EPOCHS['photos']} epoch with {RATES['photos']}. For digits three rates were tried on another seed: with "
        "this one the centralised line was best, and figures came nearest to the reference.",
        f"The threshold is {THRESHOLDS['digits']} for digits and {THRESHOLDS['photos']} for photos: about what a fifth "
        "of all changes reached in one step that was looked at, of digits at half the learning rate. Of those that "
        "reach it, as many as the share allows are drawn at random.",
        "Reference: an earlier measurement on digits by other code with a network of the same size; its number of "
        "epochs and its learning rate are not known.",
    ),
    runs=3,
)
