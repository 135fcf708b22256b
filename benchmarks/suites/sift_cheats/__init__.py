"""Sifts that are made to cheat: what each verifier says of them, what the app really reads, and what is left of it.

An app builds its sift from pictures of its own. The platform attacks what the sift lets out of other people, as the
paper's verifier does and as ours does; then it takes its own version of the sift, and then few symbols of that, which
it can certify. Eight ways around a platform's verdict follow, before and after they were closed. `cases` says whose
pictures, `platform` judges, `tables` shows before and after.
"""

from benchmarks.harness import Benchmark, Method
from benchmarks.suites.sift_cheats.cases import tasks
from benchmarks.suites.sift_cheats.tables import sections

_APPS = "benchmarks.methods.sift_cheating"

BENCHMARK = Benchmark(
    name="sift-cheats",
    title="Sifts made to cheat: verdicts, and what the app really reads",
    tasks=tasks,
    methods=(
        Method("honest", f"{_APPS}:honest"),
        Method("collinear_pair", f"{_APPS}:cheating", {"cheat": "collinear_pair"}),
        Method("low_digits", f"{_APPS}:cheating", {"cheat": "low_digits"}),
        Method("xor_hash", f"{_APPS}:cheating", {"cheat": "xor_hash"}),
        Method("few_symbols", f"{_APPS}:few_symbols", {"levels": 8}),
        Method("holes", f"{_APPS}:eight_holes"),
    ),
    sections=sections,
    notes=(
        "An app decodes with its own knowledge of the trick; verifiers know nothing but the released numbers.",
        "Attackers alone, the paper's or ours, do not find what hides in low digits or behind a hash.",
        "After hardening, the app's decoder of low digits sees whole numbers and is blind by construction: what counts "
        "there is what all read, a table of the 256 levels among them, and the certificate.",
        "Verdicts at .10 and 95%: accept, if the upper limit of every attacker is at most that; reject, if the lower "
        "end of one is above; the paper's verifier here is its five attackers under the same rule.",
        "XOR with a hash takes code. A platform that takes sifts as data never runs it; as few declared symbols it is "
        "counted, and the count does not care how the attribute is hidden.",
    ),
    runs=1,
)
