"""A round in regions below a root, with real ciphertexts in one process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.rounds import FRACTION_BITS, Clock, Round
from blindsight.crypto import bfv, paillier
from blindsight.crypto.signing import SigningKey
from blindsight.federated.costmodel import Scheme
from blindsight.federated.hierarchy import LatticeRoot, Region, Root, SparseRoot, regional_setup
from blindsight.learn.dphe import Aggregator, set_up
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.lattice.aggregator import LatticeAggregator
from blindsight.learn.lattice.keygenerator import LatticeKeyGenerator
from blindsight.learn.lattice.user import LatticeUser
from blindsight.learn.roster import Roster
from blindsight.learn.schemes.paillier import sparse_terms
from blindsight.learn.sumterms import SumTerms


class RegionsAnswer(TypedDict):
    """The exact sum, and CPU seconds of one region (on average), the root and the key generator."""

    total: NDArray[np.float64]
    measured: dict[str, float]


@dataclass(frozen=True)
class _Run:
    """All parties after set-up."""

    users: Mapping[str, Any]
    regions: list[Region]
    root: Root
    answer: Callable[[bytes], bytes]


def run(given: Round, *, seed: int, scheme: Scheme, regions: int) -> RegionsAnswer:
    """Play the round with owners dealt out to the regions; the seed has no say in keys, permutations and masks."""
    groups = {f"region-{number}": given.users[number::regions] for number in range(regions)}
    sums = SumTerms(run="benchmark", users=given.users, dimension=given.weights, fraction_bits=FRACTION_BITS)
    parties, clock = (_lattice(sums, groups) if scheme == "bfv" else _sparse(sums, given, groups)), Clock()
    for region in parties.regions:
        for owner in groups[region.name]:
            messages = parties.users[owner].contribute(given.update(owner), 0)
            with clock("region seconds"):
                for message in messages:
                    region.receive(message)
        with clock("region seconds"):
            partial_sum = region.close()
        with clock("root seconds"):
            parties.root.receive(region.name, partial_sum)
    with clock("root seconds"):
        request = parties.root.close()
    with clock("shard seconds"):
        answer = parties.answer(request)
    clock.seconds["region seconds"] /= regions
    total = parties.users[given.users[0]].read(answer, 0).values
    return RegionsAnswer(total=total, measured=dict(clock.seconds))


def _sparse(sums: SumTerms, given: Round, groups: Mapping[str, tuple[str, ...]]) -> _Run:
    terms = sparse_terms(
        sums,
        blocks=True,
        capacity=given.capacity,
        key_bits=given.key_bits,
        minimum_per_position=1,
        insecure=given.insecure,
    )
    parties = set_up(terms, key=paillier.generate_keys(given.key_bits, insecure=given.insecure))
    setup, regions = parties.generator.setup()[AGGREGATOR], []
    for name, owners in groups.items():
        aggregator = Aggregator(terms)
        aggregator.accept(regional_setup(setup, terms, owners))
        aggregator.open(0)
        regions.append(Region(name, owners, aggregator))
    root = SparseRoot(groups, 0, terms=terms, setup=setup)
    return _Run(parties.users, regions, root, partial(parties.generator.answer, threads=1))


def _lattice(sums: SumTerms, groups: Mapping[str, tuple[str, ...]]) -> _Run:
    identities = {party: SigningKey.generate() for party in (*sums.users, AGGREGATOR, KEY_GENERATOR)}
    roster = Roster(sums, {party: identity.public for party, identity in identities.items()})
    secret = bfv.generate_keys(max_sum=sums.max_integer * len(sums.users))
    generator = LatticeKeyGenerator(roster, identities[KEY_GENERATOR], secret=secret)
    setup, regions = generator.setup(), []
    users = {name: LatticeUser(name, roster, identities[name]) for name in sums.users}
    for user in users.values():
        user.accept(setup)
    for name, owners in groups.items():
        aggregator = LatticeAggregator(roster, identities[AGGREGATOR])
        aggregator.accept(setup)
        aggregator.open(0)
        regions.append(Region(name, owners, aggregator))
    root = LatticeRoot(groups, 0, roster=roster, key=identities[AGGREGATOR], setup=setup)
    return _Run(users, regions, root, generator.answer)
