"""Ways to make a sift, side by side: what each costs and leaks under the paper's attackers and under all.

`cases` says which policies, `tables` sets the figures beside a reference and the targets; people and judges are those
of `sift_matrix`.
"""

from benchmarks.harness import Benchmark, Method
from benchmarks.suites.sift_peers import symbols
from benchmarks.suites.sift_peers.cases import tasks
from benchmarks.suites.sift_peers.tables import sections

_LEARNERS = "benchmarks.methods.sift_learners"

BENCHMARK = Benchmark(
    name="sift-peers",
    title="Sifts and their peers: PubLoss at PrivLoss <= .10",
    tasks=tasks,
    methods=(
        Method("pls", f"{_LEARNERS}:ppls", {"components": 5, "privacy": 0}),
        Method("ppls", f"{_LEARNERS}:ppls", {"components": 5, "privacy": 1}),
        Method("ppls", f"{_LEARNERS}:ppls", {"components": 5, "privacy": "inf"}),
        Method("ppls", f"{_LEARNERS}:ppls", {"components": 1, "privacy": "inf"}),
        Method("leace", f"{_LEARNERS}:leace", {"components": 5}),
        Method("inlp", "benchmarks.methods.sift_inlp:run", {"rounds": 15, "components": 5}),
        Method("correlation-remover", "benchmarks.methods.sift_correlation_remover:run", {"components": 5}),
        Method("adversarial", f"{_LEARNERS}:adversarial", {"components": 5}),
        Method("adversarial", f"{_LEARNERS}:adversarial", {"components": 1}),
        Method("symbols", f"{_LEARNERS}:symbols", {"kinds": "label capped parity"}),
        *symbols.methods(),
    ),
    sections=lambda results: sections(results) + symbols.grids(results),
    notes=(
        "Makers of symbols all aim at the leak that should be certified within .10 on the judged rows. Two private "
        "attributes are hidden jointly: every question about both. FARE's kind: a tree grown by Gini impurities of "
        "both attributes (Jovanovic et al., ICML 2023), written anew, gamma chosen on a quarter of the rows. "
        "Its bound is of the paper's kind (Clopper-Pearson for all cells, Hoeffding), for one private attribute.",
        "PubLoss by the best of all classifiers asked, from the best raw classifier, which learns from the same 30% of "
        "people; the strict one is measured from a raw classifier that learns from 70%, the developer's people "
        "included. PrivLoss by the best attacker: of the paper's five, or of all 13 of the verifier.",
        "Symbols are read by a table, which no attacker can beat; their certificate is counted on 60% of the people.",
        "Passes: the estimate is at most .10. Accepted: the upper limit (95%) is, of the best attacker asked or, where "
        "there is a certificate, of every attacker there can be.",
        "Reference: an earlier measurement by other code with nine attackers and four policies, not all of them these.",
        "CorrelationRemover cannot be applied without the private label of the person, which an app's platform lacks.",
        "INLP is Ravfogel et al.'s with 15 logistic regressions. PLS follows LEACE, INLP and CorrelationRemover, which "
        "by themselves release all dimensions.",
        "The adversarial encoder has the library's default weight of privacy, 1.",
        "The label is the public attribute as well as the features tell it; capped, the best bit that should be "
        "certified within .10; parity, as frequent with the private attribute as without.",
        "Policies are few and share people and attributes: differences of a point or two between means say little.",
    ),
    runs=1,
)
