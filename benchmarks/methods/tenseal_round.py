"""TenSEAL itself: encrypt, serialise, add, decrypt, and no protocol around it. BFV is exact, CKKS approximates."""

from typing import Any

import numpy as np
import tenseal
from numpy.typing import NDArray

from benchmarks.methods.rounds import FRACTION_BITS, Clock, Measured, Round, RoundAnswer


def run(given: Round, *, seed: int, scheme: str, degree: int, rounds: int) -> RoundAnswer:
    """Play so many rounds with the same updates and take the mean cost; the seed has no say in keys and masks."""
    secret = _bfv_context(degree) if scheme == "bfv" else _ckks_context(degree)
    public = secret.copy()
    public.make_context_public()
    read = tenseal.bfv_vector_from if scheme == "bfv" else tenseal.ckks_vector_from
    updates = [_slots(given.update(user), scheme, degree) for user in given.users]
    clock = Clock()
    for _ in range(rounds):
        with clock("encrypt"):
            sent = [[_encrypt(public, scheme, part).serialize() for part in update] for update in updates]
        with clock("aggregate"):
            sums = [read(public, part) for part in sent[0]]
            for message in sent[1:]:
                for place, part in zip(sums, message, strict=True):
                    place.add_(read(public, part))
            request = [place.serialize() for place in sums]
        with clock("decrypt"):
            parts = [np.array(read(secret, part).decrypt()) for part in request]
    total = np.concatenate(parts)
    clock.seconds["encrypt"] /= len(updates)
    return RoundAnswer(
        total=total / 2**FRACTION_BITS if scheme == "bfv" else total,
        places=np.arange(given.weights),
        seconds={step: Measured(seconds / rounds) for step, seconds in clock.seconds.items()},
        sent=Measured(sum(map(len, sent[0]))),
        peak_bytes=0,
    )


def _bfv_context(degree: int) -> Any:
    """Return the parameters that Blindsight's `bfv` has at degree 4096, for sums of 32 bits."""
    return tenseal.context(
        tenseal.SCHEME_TYPE.BFV, degree, plain_modulus=4295049217, coeff_mod_bit_sizes=[32, 32, 33], n_threads=1
    )


def _ckks_context(degree: int) -> Any:
    """Return the parameters of TenSEAL's own tutorials, for sums only."""
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=[60, 40, 60], n_threads=1)
    context.global_scale = 2**40
    return context


def _slots(update: NDArray[np.float64], scheme: str, degree: int) -> list[NDArray[Any]]:
    """Split an update into what one ciphertext holds."""
    values = np.rint(update * 2**FRACTION_BITS).astype(np.int64) if scheme == "bfv" else update
    size = degree if scheme == "bfv" else degree // 2
    return [values[start : start + size] for start in range(0, len(values), size)]


def _encrypt(context: Any, scheme: str, values: NDArray[Any]) -> Any:
    return (tenseal.bfv_vector if scheme == "bfv" else tenseal.ckks_vector)(context, values)
