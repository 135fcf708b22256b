"""Noise per parameter as published, put to the test (PPDL, after Shokri and Shmatikov 2015).

The document adds Laplace noise to each shared value (section 6) and calls epsilon = 1 "the privacy budget" (Table 3).
Whose, it does not say. That of a parameter it is not, as changes are cut after the noise and not before; that of a
participant it is not even where they are (`Laplace`), as an upload has thousands of values. Changes of the model are as
far apart as a mode allows, and where nothing bounds a change, as far as we like.
"""

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.epsilon import Draws, known
from blindsight.audit.subject import Claim, OnTrial, Subject, as_released
from blindsight.papers.selective.noise import Laplace, PublishedLaplace, Sharing, protect
from blindsight.rng import ByteSource, science

SOURCE = "Bu 2019"
BOUND = 0.1
"""The paper's gamma."""
_SEED = 0  # of synthetic records, public features and places
_UPLOAD_EXPENSE = 20  # an upload takes some hundred times as long as a number; some thousand uploads are enough
_THRESHOLD_EXPENSE = 5  # what tells most is rare
Rows = NDArray[np.float32]


def _parameter(claim: Claim, noise: Laplace | PublishedLaplace, change: float) -> Subject:
    """Return all parameters of one large upload, each of which is a run of its own."""
    sharing = Sharing(1.0, select="random", bound=BOUND, noise=noise)

    def shared(value: float, runs: int, source: ByteSource) -> Draws:
        return protect(np.full(runs, value, dtype=np.float32), sharing, rng=science(_SEED), source=source).values

    return Subject(claim=claim, release=shared, inputs=(change, -change), scorer=known(as_released))


def one_upload(claim: Claim, sharing: Sharing, first: Rows, second: Rows) -> Subject:
    """Return one upload as a run, of which the sum of the values is looked at."""

    def shared(change: Rows, runs: int, source: ByteSource) -> Draws:
        rng = science(_SEED)
        return np.array([protect(change, sharing, rng=rng, source=source).values.sum() for _ in range(runs)])

    return Subject(
        claim=claim, release=shared, inputs=(first, second), scorer=known(as_released), expense=_UPLOAD_EXPENSE
    )


def published_parameter(epsilon: float, change: float = 10.0) -> Subject:
    """Return one parameter as published; its change is plus or minus `change`."""
    proven = f"nothing: a change is cut to {BOUND:g} after the noise, and not before"
    source = f"{SOURCE}, read per parameter"
    claim = Claim("Laplace noise, then the cut", epsilon, 0.0, "parameter", source, proven)
    return _parameter(claim, PublishedLaplace(epsilon), change)


def laplace_parameter(epsilon: float) -> Subject:
    """Return one parameter, cut before the noise."""
    return _parameter(Claim("the cut, then Laplace noise", epsilon, 0.0, "parameter"), Laplace(epsilon), BOUND)


def laplace_participant(epsilon: float, parameters: int = 2560) -> Subject:
    """Return one upload of a tenth of the parameters, cut before the noise, as a release about its participant."""
    sharing = Sharing(0.1, select="random", bound=BOUND, noise=Laplace(epsilon))
    values = sharing.count(parameters)
    proven = f"epsilon = {epsilon * values:g} per upload of {values} values"
    source = f"{SOURCE}, read per participant"
    rising = np.full(parameters, BOUND, dtype=np.float32)
    claim = Claim("Laplace noise per parameter", epsilon, 0.0, "participant", source, proven)
    return one_upload(claim, sharing, rising, -rising)


def threshold_upload(epsilon: float, parameters: int = 6) -> Subject:
    """Return the sparse-vector technique with one value at most: the parameter that is visited last, or not.

    The order of the visits is public, and one order is used in all runs. One input is zero up to the last parameter,
    the other at the last alone: that all others stay below the noisy threshold and the last reaches it tells most. The
    proof counts twice what magnitudes can move (`sparsevector`), so a sound mechanism loses half of epsilon at most.
    """
    sharing = Sharing(1 / parameters, select="threshold", bound=BOUND, threshold=BOUND / 5, noise=Laplace(epsilon))
    last = int(science(_SEED).permutation(parameters)[-1])
    only_last = np.zeros(parameters, dtype=np.float32)
    only_last[last] = BOUND

    def shared(change: Rows, runs: int, source: ByteSource) -> Draws:
        uploads = (protect(change, sharing, rng=science(_SEED), source=source) for _ in range(runs))
        return np.array([upload.indices.tolist() == [last] for upload in uploads])

    proven = f"epsilon = {epsilon:g} per upload of one value"
    return Subject(
        claim=Claim("random above a threshold, one value", epsilon, 0.0, "participant", proven=proven),
        release=shared,
        inputs=(only_last, BOUND - only_last),
        scorer=known(as_released),
        expense=_THRESHOLD_EXPENSE,
    )


def published_uploads() -> tuple[OnTrial, ...]:
    """Return what a participant uploads of a network: as published, cut before the noise, above a threshold."""
    return published_parameter(1.0), laplace_parameter(1.0), laplace_participant(1.0), threshold_upload(2.0)
