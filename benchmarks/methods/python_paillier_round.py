"""The paper's scheme with the paper's library: DPHE on python-paillier, one weight per ciphertext.

Every ciphertext costs the same, so a few places are measured: all users encrypt their weights there, the ciphertexts
are added up and the sums decrypted. How often each of that happens in a round follows from the protocol.
"""

from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray
from phe import paillier

from benchmarks.methods.rounds import FRACTION_BITS, Clock, Measured, Round, RoundAnswer

_INDEX_BYTES = 8


def run(given: Round, *, seed: int, values: int) -> RoundAnswer:
    """Measure so many places that some user touched."""
    generator = np.random.default_rng(seed)
    sent, touched = _traffic(given, generator)
    places = np.sort(generator.choice(touched, min(values, len(touched)), replace=False))
    updates = [np.rint(given.update(user)[places] * 2**FRACTION_BITS).astype(int).tolist() for user in given.users]
    public, private = paillier.generate_paillier_keypair(n_length=given.key_bits)
    users, clock = len(updates), Clock()
    with clock("encrypt"):
        encrypted = [[public.encrypt(weight) for weight in update] for update in updates]
    with clock("aggregate"):
        sums = [reduce(add, column) for column in zip(*encrypted, strict=True)]
    with clock("decrypt"):
        total = [private.decrypt(number) for number in sums]
    additions = users * sent - len(touched)
    seconds = {
        "encrypt": Measured(clock.seconds["encrypt"] / users, len(places) / sent),
        "aggregate": Measured(clock.seconds["aggregate"], (users - 1) * len(places) / additions),
        "decrypt": Measured(clock.seconds["decrypt"], len(places) / len(touched)),
        "decrypt all": Measured(clock.seconds["decrypt"], len(places) / given.weights),
    }
    return RoundAnswer(
        total=np.array(total) / 2**FRACTION_BITS,
        places=places,
        seconds=seconds,
        sent=Measured(sent * (given.key_bits // 4 + _INDEX_BYTES)),
        peak_bytes=0,
    )


def _traffic(given: Round, generator: np.random.Generator) -> tuple[int, NDArray[np.int64]]:
    """Return how many ciphertexts a user sends, and the places that some user touches with a weight or with padding."""
    touched = np.zeros(given.weights, dtype=np.bool_)
    for user in given.users:
        changed = given.update(user) != 0
        sent = given.shards(int(changed.sum())) * given.capacity
        padding = generator.permutation(np.flatnonzero(~changed))[: sent - int(changed.sum())]
        touched |= changed
        touched[padding] = True
    return sent, np.flatnonzero(touched)
