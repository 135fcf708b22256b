"""The mechanisms of an index on trial, with its parameters, on neighbours as far apart as can be.

Of a central function it is the noisy sums behind it that are on trial. The function itself is made from them, tells far
less and takes long to learn: even with a tenth of the noise it owes, no bound on it would refute anything.
"""

import numpy as np

from blindsight.audit.epsilon import Draws
from blindsight.audit.scores import known
from blindsight.audit.subject import Claim, Draw, Subject
from blindsight.rng import ByteSource
from blindsight.search.central import CentralHasher
from blindsight.search.localmode import LocalHasher


def local_mechanism(hasher: LocalHasher, source: str) -> Subject:
    """Return the mechanism of a fitted local hasher: any two symbols are told apart as easily as any others."""
    design = hasher.design_
    cells = [int(np.argmax(design.symbol_of_cell == symbol)) for symbol in (0, 1)]
    first, second = np.log(design.probabilities()[cells])

    def released(symbol: int) -> Draw:
        return lambda runs, noise: design.release(np.full(runs, symbol, dtype=np.int64), source=noise)

    return Subject(
        claim=Claim(
            name=f"local index, {hasher.mechanism_}",
            epsilon=hasher.mechanism_.loss,
            delta=0.0,
            unit="record",
            source=source,
            proven=f"epsilon = {hasher.mechanism_.loss:g} per record and release",
        ),
        first=released(0),
        second=released(1),
        scorer=known(lambda outputs: (first - second)[outputs]),
    )


def central_sums(hasher: CentralHasher, source: str) -> Subject:
    """Return the noisy sums that a central function is learned from, of a record that moves each as far as it can.

    No collection has such a record, so this bounds the accounting of all releases together and the noise they get.
    """
    releases = hasher.plan().releases
    weights = np.array([mechanism.sensitivity / mechanism.sigma**2 for mechanism in releases])

    def released(share: float) -> Draw:
        def draw(runs: int, noise: ByteSource) -> Draws:
            columns = [one.release(np.full(runs, share * one.sensitivity), noise) for one in releases]
            return np.stack(columns, axis=1)

        return draw

    return Subject(
        claim=Claim(
            name="central mode, all noisy sums together",
            epsilon=hasher.epsilon,
            delta=hasher.delta,
            unit="record",
            source=source,
            proven=f"epsilon = {hasher.epsilon:g}, delta = {hasher.delta:g}",
        ),
        first=released(1.0),
        second=released(0.0),
        scorer=known(lambda sums: sums @ weights),
    )
