"""Every hash learner of the library, without privacy and with the flips of PHashing (Algorithm 2 of the paper).

The function is learned once and its codes are flipped for every epsilon, as `blindsight.search.phashing` would do it.
"""

from typing import Any

from benchmarks.methods.searching import CLAIMED_EPSILONS, Found, Searchable, by_codes
from blindsight.search.deep.adsh import ADSH
from blindsight.search.deep.pairwise import DPSH, DSH, HashNet
from blindsight.search.discrete import SDH
from blindsight.search.flipping import flip, paper_beta
from blindsight.search.itq import ITQ
from blindsight.search.kernel import KSH
from blindsight.search.learner import HashLearner
from blindsight.search.lsh import LSH
from blindsight.search.pitq import PITQ
from blindsight.search.spectral import SH

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
