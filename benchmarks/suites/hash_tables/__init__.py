"""The private hashing paper's tables on CIFAR-10: every learner with and without flips, PITQ, and ITQ beside faiss.

`pictures` finds the data, `cases` says what is asked, `scores` judges the answers, `paper` has the paper's figures,
`relations` what should hold between them, `tables` sets all side by side.
"""

from benchmarks.harness import Benchmark, Method
from benchmarks.suites.hash_tables.cases import LABELLED, QUERIES, ROTATIONS, tasks
from benchmarks.suites.hash_tables.paper import LENGTHS
from benchmarks.suites.hash_tables.relations import EVERYTHING, PITQ_EPSILONS
from benchmarks.suites.hash_tables.tables import sections

_STEPS = {"pitq": "published", "pitq-right": "procrustes"}
_ADAPTERS = dict(zip(ROTATIONS, ("blindsight", "by_faiss"), strict=True))

BENCHMARK = Benchmark(
    name="hash-tables",
    title="Hash learners, flipped codes and PITQ (private hashing, Tables 1 and 2)",
    tasks=tasks,
    methods=(
        *(
            Method(name, f"benchmarks.methods.itq:{adapter}", {"bits": bits})
            for bits in (16, 32, 64)
            for name, adapter in _ADAPTERS.items()
        ),
        *(
            Method(learner.lower(), "benchmarks.methods.phashing:run", {"learner": learner, "bits": bits})
            for learner in EVERYTHING
            for bits in LENGTHS
        ),
        *(
            Method(name, "benchmarks.methods.phashing:pitq", {"bits": bits, "epsilon": epsilon, "step": step})
            for name, step in _STEPS.items()
            for bits in LENGTHS
            for epsilon in PITQ_EPSILONS
        ),
    ),
    sections=sections,
    notes=(
        "Features: the paper gives its shallow learners VGG's 4096 features and its deep ones the pictures, to train a "
        "whole network on. Here all have EfficientNet-lite0's 1280 features, and the deep learners train a "
        "perceptron of one hidden layer on them. So relations are compared, not figures: good ready features raise the "
        "shallow learners and leave the deep ones little to add.",
        f"Supervised learners learn from {10 * LABELLED:,} labelled pictures, {LABELLED} a class, as is usual on "
        "CIFAR-10; the paper does not say from how many. Unsupervised ones learn from the whole database. ADSH hashes "
        "the database with its network, as it has labels for a tenth of it only.",
        f"Queries: {QUERIES:,} of the 10,000 test pictures, others in every run; all of them with --full. mAP is over "
        "the whole ranking, ties averaged over all orders; chance is 0.10.",
        "The paper marks rows without privacy by epsilon = 0; it should read infinity.",
        "PITQ: the paper's R = N N' is no rotation that depends on the data if taken by the letter. `PITQ` multiplies "
        "the two factors in the printed order, `PITQ, right rotation` solves the Procrustes problem.",
        "Shallow learners have five runs; the deep ones and PITQ, which take most of the time, have two, as has the "
        "comparison with faiss.",
    ),
    runs=5,
)
