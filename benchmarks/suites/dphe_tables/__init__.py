"""The accuracy tables of the DPHE paper on data we have: Tables 1 to 4, Figure 4 and the supplement's Tables 1 and 2.

`collections` reads the data, `cases` says who has which of them, `scores` judges the answers, `tables` sets them beside
the paper's figures and says which of the expected relations hold.
"""

from benchmarks.harness import Benchmark, Method
from benchmarks.results import Argument
from benchmarks.suites.dphe_tables.cases import KEY_BITS, tasks
from benchmarks.suites.dphe_tables.tables import sections


def _federated(name: str, sparsity: float, *, paper: bool = False, answer: str = "run", **more: Argument) -> Method:
    """Return a federated classifier that sends classifiers as in the paper, or one that sends blocks of updates."""
    kind = {"target": "classifier"} if paper else {"selection": "blocks"}
    arguments = {"scheme": "plain", "sparsity": sparsity, "key_bits": KEY_BITS, **kind, **more}
    return Method(name, f"benchmarks.methods.federated:{answer}", arguments)


def _scheduled(name: str, carried_on: float) -> Method:
    """Return our default: updates of the fifth of the weights whose turn it is."""
    shared: dict[str, Argument] = {"scheme": "plain", "selection": "schedule", "sparsity": 0.8}
    return Method(name, "benchmarks.methods.federated:run", {**shared, "error_feedback": carried_on})


def _sent(name: str, **arguments: Argument) -> Method:
    return Method(name, "benchmarks.methods.federated:sent", arguments)


def _noisy(name: str, clipped: bool) -> Method:
    return Method(
        name + "-clipped" * clipped,
        f"benchmarks.methods.noisy:{name}",
        {"clipped": clipped, "epsilon": 0.2, "delta": 0.05},
    )


def _clusters(name: str, **arguments: Argument) -> Method:
    shared: dict[str, Argument] = {"scheme": "plain", "sparsity": 0.9, "key_bits": KEY_BITS}
    return Method(name, "benchmarks.methods.clusters:federated", {**shared, **arguments})


BENCHMARK = Benchmark(
    name="dphe-tables",
    title="Learning together (DPHE, Tables 1 to 4, Figure 4, supplement)",
    tasks=tasks,
    methods=(
        Method("pooled", "benchmarks.methods.svm:pooled", {"C": 1e-4}),
        Method("alone", "benchmarks.methods.svm:alone", {"C": 1e-4}),
        _federated("dphe", 0.9, paper=True),
        _federated("block-dphe", 0.9),
        Method(
            "topk",
            "benchmarks.methods.federated:run",
            {"scheme": "plain", "sparsity": 0.9, "key_bits": KEY_BITS, "selection": "topk"},
        ),
        Method("everything", "benchmarks.methods.federated:run", {"scheme": "plain", "selection": "none"}),
        _scheduled("schedule", 0.7),
        _scheduled("schedule-half", 0.5),
        _scheduled("schedule-all", 1.0),
        _scheduled("schedule-none", 0.0),
        _federated("block-dphe-half", 0.9, error_feedback=0.5),
        Method(
            "block-dphe-withheld",
            "benchmarks.methods.federated:run",
            {"scheme": "block-dphe", "sparsity": 0.9, "key_bits": KEY_BITS},
        ),
        _sent("everything-sent", scheme="masks", selection="none"),
        _sent("schedule-sent", scheme="masks"),
        _sent("block-dphe-sent", scheme="block-dphe", key_bits=KEY_BITS, minimum_per_position=1),
        _sent("block-dphe-withheld-sent", scheme="block-dphe", key_bits=KEY_BITS),
        *(_noisy(name, clipped) for name in ("ra12", "prr10") for clipped in (False, True)),
        *(_federated(f"dphe-{sparsity}", round(sparsity / 100, 3), paper=True) for sparsity in (0, 75, 79.1, 95, 95.6)),
        *(_federated(f"block-dphe-{sparsity}", round(sparsity / 100, 3)) for sparsity in (0, 79.1, 95.6)),
        _federated("dphe-owners", 0.9, paper=True),
        _federated("block-dphe-owners", 0.9),
        *(
            _federated(f"{name}-model", 0.9, paper=paper, answer="model", rounds=2, scheme=s, minimum_per_position=1)
            for name, paper in (("dphe", True), ("block-dphe", False))
            for s in ("plain", name)
        ),
        Method("encryption", "benchmarks.methods.encryption:run"),
        Method("pooled-k-means", "benchmarks.methods.clusters:pooled"),
        _clusters("dphe-k-means", target="centroids"),
        _clusters("block-dphe-k-means", selection="blocks"),
        Method(
            "schedule-k-means", "benchmarks.methods.clusters:federated", {"scheme": "plain", "selection": "schedule"}
        ),
    ),
    sections=sections,
    notes=(
        "Features: ResNet-152's 2048 there; EfficientNet-lite0's 1280 and ResNet-50's 2048 here. The public "
        "data standardise them here (for the SVMs their training data); the paper does not say which did.",
        "`dphe` is the paper's learning: owners send sparse classifiers (elastic net, L1 ratio 0.5), whose mean is the "
        "next one. `block-dphe` sends the largest blocks of updates and keeps the rest for later rounds; `topk` "
        "the same with single weights; both open every sum, as the paper does. All have ten rounds and send a tenth, "
        "unless another sparsity is named. `schedule` is our default: a fifth of the weights by a public schedule.",
        "Accuracies are measured with unencrypted sums, which all schemes share bit for bit; the section on identical "
        "models shows it. Blocks are those of 2048-bit keys, 63 weights.",
        "RA12 and PRR10 prove nothing unless features are clipped to a known length. The paper does not say that it "
        "did; its figures are near ours without clipping, so both are shown. Neither paper's lambda is known.",
        "The paper's table of accuracies for Caltech-256 has no counterpart: the data are not at hand.",
        "Table 2: the paper's seconds are of a 1024-bit key. A user sends shards of a tenth of the weights each, so "
        "`dphe` at 95.6% costs as much as at 90%; block DPHE sends the blocks that are left, in one message. `dphe` is "
        "timed on 6,500 ciphertexts and extrapolated in proportion.",
        "Figure 4 has no figures in the text. Owners with copies (left) are given to our default only: the paper's "
        "search for the penalty makes every owner ten times as expensive.",
        "Table 3 has seven attributes of 3,000 UTKFace faces (64 pixels, EfficientNet-lite0) here, 40 of 202,599 "
        "CelebA faces and a face network there. Table 4 detects faces of people over 59 here, sensitive places there; "
        "132 public pictures in both. Whoever gives all UTKFace attributes their more frequent answer is 71% right; "
        "the average precision of chance is 0.11.",
        "Supplement, Table 1 ranks pictures by the largest Caltech-101 classes here, YouTube videos by labels there.",
        "The pooled SVM has one C for all data, not tuned, so it is no upper bound. A figure without ± is of one run.",
        "Supplement, Table 2: clusters are judged on the test pictures; the paper does not say on which.",
    ),
    runs=10,
)
