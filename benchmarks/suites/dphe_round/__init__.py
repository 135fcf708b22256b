"""One round of encrypted averaging as in the DPHE paper: our schemes beside python-paillier and TenSEAL.

101 x 2048 weights, five users. What counts is the CPU time of one user's encryption, the aggregation and the
decryption, and what a user sends. `cases` says what is measured, `tables` how it is shown.
"""

from benchmarks.harness import Benchmark, Method
from benchmarks.suites.dphe_round.cases import NARROW, tasks
from benchmarks.suites.dphe_round.tables import sections

BENCHMARK = Benchmark(
    name="dphe-round",
    title="One round of encrypted averaging (DPHE, Table 2)",
    tasks=tasks,
    methods=(
        Method("plain", "benchmarks.methods.dense_round:run", {"scheme": "plain", "rounds": 5}),
        Method("masks", "benchmarks.methods.dense_round:run", {"scheme": "masks", "rounds": 5}),
        Method("bfv", "benchmarks.methods.dense_round:run", {"scheme": "bfv", "rounds": 5}),
        Method("TenSEAL-BFV", "benchmarks.methods.tenseal_round:run", {"scheme": "bfv", "degree": 4096, "rounds": 5}),
        Method("TenSEAL-CKKS", "benchmarks.methods.tenseal_round:run", {"scheme": "ckks", "degree": 8192, "rounds": 5}),
        Method("python-paillier", "benchmarks.methods.python_paillier_round:run", {"values": 32}),
        Method("dphe", "benchmarks.methods.sparse_round:run", {"blocks": False}),
        Method("block-dphe", "benchmarks.methods.sparse_round:run", {"blocks": True}),
        Method(
            "block-dphe-conservative",
            "benchmarks.methods.sparse_round:run",
            {"blocks": True, "keys": "conservative"},
        ),
        *(Method(name, "benchmarks.methods.sparse_round:run", {"blocks": True}) for name in NARROW),
        Method("block-dphe-crowd", "benchmarks.methods.crowd_round:run"),
    ),
    sections=sections,
    notes=(
        "The paper times the encryption alone, with a 1024-bit key, on one CPU of a MacBook Pro (2.9 GHz Core i7). "
        "Ours are CPU seconds on the machine below; keys of 1024 bits serve that comparison only.",
        "The weights are random numbers here, classifiers there; the cost of a round does not depend on them.",
        "A user sends a tenth of the weights per shard, as in the paper (M): 10, 3, 1 and 1 shards at 0, 79.1, 90 and "
        "95.6% zeros. So 95.6% costs as much as 90%.",
        "python-paillier is measured on a few places, `dphe` on a 32nd of the weights, and both are extrapolated in "
        "proportion; everything else is measured whole.",
        "python-paillier and `dphe` encrypt weight by weight, zeros anywhere; `block-dphe` encrypts blocks of 63 "
        "weights (95 at 3072 bits), zeros in whole blocks.",
        "Our keys are subgroup keys, but for `block-dphe-conservative`. `block-dphe-24` and `-16` have slots of 24, 16 "
        "bits, 85 and 127 of them at 2048 bits: weights below 1/4 keep 20 and 14 fraction bits.",
        "Users with supports of their own touch up to five tenths of all places together (41%), users with shared "
        "supports a tenth. The paper decrypts all places.",
        "`dphe` packs 63 (95) sums into one ciphertext before they are decrypted: that is its aggregation's time.",
        "Encryption includes the table that a user makes once per key, as if there were a single round. Key generation "
        "and other set-up are not counted for anyone.",
        "TenSEAL's BFV has the parameters of our `bfv`; it neither signs nor checks anything.",
        "All sums are checked. All are exact but those of CKKS, which err by less than 1e-6.",
    ),
    runs=2,
)
