"""Where one owner alone changed a weight, the sum of all owners is that owner's weight.

For N owners who each change a weight with probability q = 1 - sparsity, independently, the share of the touched weights
that a single one changed is

    N q (1 - q)^(N - 1) / (1 - (1 - q)^N)

(`sums.statements.single_contributor_share`), 91% at the sparsity of 95.6% and N = 5 that Yonetani et al. (2017)
report: DPHE hides *whose* these weights are, and publishes what they are. `open_session(..., minimum_per_position=m)`
withholds weights that fewer than m owners changed.

That protects against whoever sees only the sum. An owner subtracts its own update first, so for it every count is one
less: with m = 2 it still reads the other's weight wherever the two of them were alone. m = 3 is needed against members.

In block DPHE the rule counts who changed the *block*. Owners that send whole blocks, as `learn.sparsity.top_blocks`
makes them, are protected alike; a weight that one owner alone changed in a block of several is shown.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.finding import Finding, Verdict
from blindsight.audit.rates import rate
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.sums.session import open_session
from blindsight.sums.statements import single_contributor_share
from blindsight.sums.terms import SPARSE_SCHEMES


@dataclass(frozen=True, kw_only=True)
class SinglesLeak:
    """Counts of weights in one round of a sparse scheme.

    Of the `touched` weights one owner alone changed `singles`; of these the sum shows `exposed`, exactly. The last
    owner and one other were alone in `pairs`; in `subtracted` of them it reads the other's weight. `shown` weights of
    the sum are not zero. `scattered` tells that owners changed single weights where the scheme counts blocks.
    """

    scheme: str
    members: int
    sparsity: float
    minimum: int
    scattered: bool
    touched: int
    singles: int
    exposed: int
    shown: int
    pairs: int
    subtracted: int

    @property
    def expected_share(self) -> float:
        """The share of singles that independent supports would have."""
        return single_contributor_share(self.members, 1 - self.sparsity)

    @property
    def share(self) -> float:
        """The measured share of singles among touched weights."""
        return self.singles / max(self.touched, 1)

    @property
    def precision(self) -> float:
        """How often one is right who takes each weight of the sum for that of a single owner."""
        return self.exposed / max(self.shown, 1)


def attack_singles(
    *,
    members: int = 5,
    dimension: int = 1000,
    sparsity: float = 0.956,
    minimum_per_position: int = 1,
    scheme: str = "dphe",
    whole_blocks: bool = True,
    key_bits: int = 3072,
    insecure: bool = False,
    random_state: int | np.random.Generator | None = None,
    source: ByteSource = system_bytes,
    progress: Progress = silent,
) -> SinglesLeak:
    """Play a round of owners with independent supports and read single owners' weights from its sum.

    In block DPHE each owner changes `whole_blocks` or, if not, single weights.
    """
    if scheme not in SPARSE_SCHEMES:
        raise InputError(f"singles are those of a sparse scheme, {' or '.join(SPARSE_SCHEMES)}; got {scheme!r}.")
    if not 0 < sparsity < 1:
        raise InputError(f"sparsity must be in (0, 1); got {sparsity}.")
    names = tuple(f"owner {number}" for number in range(members))
    session = open_session(
        scheme,
        members=names,
        dimension=dimension,
        minimum_per_position=minimum_per_position,
        key_bits=key_bits,
        insecure=insecure,
        source=source,
    )
    block = session.block if whole_blocks else 1
    updates = _independent_updates((members, dimension), block, sparsity, science(random_state))
    progress("a round of sparse updates", 0, 1)
    total = session.round(dict(zip(names, updates, strict=True)), 0).total
    progress("a round of sparse updates", 1, 1)
    counts = count_singles(np.array([session.terms.integers(update) for update in updates]), total)
    return SinglesLeak(
        scheme=scheme,
        members=members,
        sparsity=sparsity,
        minimum=minimum_per_position,
        scattered=block < session.block,
        **counts,
    )


def _independent_updates(
    shape: tuple[int, int], block: int, sparsity: float, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Return one row per owner, who changes each block of so many weights independently."""
    members, dimension = shape
    changed = generator.random((members, -(-dimension // block))) >= sparsity
    return np.where(np.repeat(changed, block, axis=1)[:, :dimension], generator.normal(size=shape), 0.0)


def count_singles(integers: NDArray[np.int64], total: NDArray[np.int64]) -> dict[str, int]:
    """Compare the sum with what everybody sent."""
    contributors = np.count_nonzero(integers, axis=0)
    singles = contributors == 1
    own = integers[-1]
    pairs = (contributors == 2) & (own != 0)
    marks = {
        "touched": contributors > 0,
        "singles": singles,
        "exposed": singles & (total == integers.sum(axis=0)),
        "shown": total != 0,
        "pairs": pairs,
        "subtracted": pairs & (total - own == integers[:-1].sum(axis=0)),
    }
    return {name: int(np.count_nonzero(mark)) for name, mark in marks.items()}


def single_findings(leaks: Iterable[SinglesLeak]) -> tuple[Finding, ...]:
    """Return two rows per round: what the sum shows to everyone, and what it shows to one of the owners.

    A round without such weights has nothing to show.
    """
    return tuple(
        _finding(leak, insider=insider)
        for leak in leaks
        for insider in (False, True)
        if (leak.pairs if insider else leak.singles)
    )


def _verdict(leak: SinglesLeak, hits: int, *, insider: bool) -> Verdict:
    """Return what follows if so many weights are read: the theorem admits none, the rule those of fewer contributors.

    Block DPHE makes no promise for weights that owners scatter over blocks.
    """
    if hits == 0:
        return "not refuted"
    if leak.minimum >= (3 if insider else 2):
        return "leaks" if leak.scattered else "refuted"
    return "refuted" if leak.minimum == 1 else "as stated"


def _finding(leak: SinglesLeak, *, insider: bool) -> Finding:
    hits, of = (leak.subtracted, leak.pairs) if insider else (leak.exposed, leak.singles)
    enough = leak.minimum >= (3 if insider else 2) and not leak.scattered
    who = "a member cannot read a weight that one other" if insider else "nobody reads from the sum a weight that one"
    return Finding(
        claim=f"{who} owner changed ({leak.scheme}, minimum_per_position = {leak.minimum})",
        source="Yonetani et al. 2017, Theorem 8" if leak.minimum == 1 else "the rule of minimum contributors",
        proven="withheld by the key generator" if enough else "false: there the sum is that owner's weight",
        measure=f"share of {of} such weights that the sum shows exactly",
        measured=rate(hits, of),
        verdict=_verdict(leak, hits, insider=insider),
        attack="a member subtracts its own update" if insider else "reading the sum",
        details={
            "members": leak.members,
            "minimum": leak.minimum,
            "scattered": leak.scattered,
            "single_share": leak.share,
            "expected_single_share": leak.expected_share,
            "precision": leak.precision,
        },
    )
