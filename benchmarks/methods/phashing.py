"""Every hash learner of the library, without privacy and with the flips of PHashing (Algorithm 2 of the paper).

The function is learned once and its codes are flipped for every epsilon, as `blindsight.search.published` would do it.
"""

from typing import Any

from benchmarks.methods.searching import CLAIMED_EPSILONS, Found, Searchable, by_codes
from blindsight.search.deep import ADSH, DPSH, DSH, HashNet
from blindsight.search.flipping import flip, paper_beta
from blindsight.search.function import HashLearner
from blindsight.search.hashers import ITQ, LSH, SH
from blindsight.search.published import PITQ
from blindsight.search.supervised import KSH, SDH

LEARNERS: dict[str, type[HashLearner]] = {
    learner.__name__: learner for learner in (LSH, ITQ, SH, KSH, SDH, DPSH, DSH, HashNet, ADSH)
}


def run(given: Searchable, *, seed: int, learner: str, bits: int) -> dict[str, Found]:
    """Learn from what the learner can use; answer without flips ("inf") and for every epsilon."""
    kind = LEARNERS[learner]
    seeded: dict[str, Any] = {} if kind is SH else {"random_state": seed}
    hasher = kind(bits, **seeded)
    function = hasher.fit(*(given.labelled if kind.supervised else (given.database,))).function_
    queries, codes = function(given.queries), function(given.database)
    flipped = {str(epsilon): flip(codes, bits, paper_beta(epsilon)) for epsilon in CLAIMED_EPSILONS}
    return {epsilon: by_codes(queries, items) for epsilon, items in {"inf": codes, **flipped}.items()}


def pitq(given: Searchable, *, seed: int, bits: int, epsilon: float, step: Any) -> dict[str, Found]:
    """Answer by PITQ (Algorithm 3) with the paper's rotation or with the right one."""
    hasher = PITQ(bits, epsilon, step=step, random_state=seed).fit(given.database)
    return {f"{epsilon:g}": by_codes(hasher.transform(given.queries), hasher.codes_)}
