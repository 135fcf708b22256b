"""The platform's own version of an app's linear sift: the same span, in a basis that hides nothing.

A linear sift tells as much as the span of its columns, whatever basis the app chose. A dishonest app chooses a basis
that fools a verifier: a pair [a, a + 1e-4 b] looks like two copies of a harmless score until somebody takes the
difference, and a + 1e-4 b on whole-number features carries b in digits that no classifier looks at. `harden` chooses
the basis itself, from reference data of its own, none of which are counted when the result is verified:

1. features that never vary on the reference data get weight zero: verification could not see what they would say;
2. the outputs become uncorrelated and of unit variance, where attackers find what they tell;
3. directions with less than 1/256 of the deviation of the largest, once each output counts the same, are dropped:
   they are below what step 4 leaves of the others;
4. outputs are rounded to 256 levels over 4 deviations either side.

What an honest sift tells survives all four. What fits into the levels themselves is bounded only by a small alphabet
with a certificate (Enev et al., "SensorSift", ACSAC 2012, has neither). K numbers of L levels are one of L^K symbols,
with edges at quantiles of reference rows, so that levels are equally frequent there; those must not be the rows that a
certificate is counted on.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.sift.attackers import train_public_classifier
from blindsight.sift.labels import Labels, label_columns
from blindsight.sift.personal import PersonalSift
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import SiftLearner
from blindsight.sift.sift import (
    Features,
    LayeredSift,
    LinearSift,
    Quantiser,
    Sift,
    SymbolSift,
    finite_blocks,
    without_negligible,
)
from blindsight.sift.union import certifiable
from blindsight.sift.verificationset import VerificationSet

BITS = 8
RANGE = 4.0
"""Outputs are rounded over this many standard deviations either side of their mean."""

Array = NDArray[np.float64]

_FEW_NUMBERS = 3


def harden(sift: LinearSift, X: Features) -> LinearSift:
    """Return a sift of the same span in a basis fitted to reference features X (n, d), rounded to 8 bits. It has an
    output per distinguishable direction, never more than the original, whose own quantiser is dropped.
    """
    mean, varies, samples = _reference(X, sift.dimension)
    if samples <= sift.width:
        raise InputError(f"hardening {sift.width} outputs needs more reference samples than that; got {samples}.")
    matrix = np.where(varies[:, None], sift.matrix, 0)
    told = np.flatnonzero(np.abs(matrix).max(axis=0) > 0)
    if not told.size:
        raise InputError("this sift reads only features that never vary on the reference data: it tells nothing.")
    visible = replace(sift, mean=mean.astype(np.float32), matrix=matrix[:, told], quantiser=None)
    turn = _whitening(visible.project(X).astype(np.float64))
    turned = without_negligible(visible.matrix @ turn)
    quantiser = Quantiser.uniform([-RANGE] * turn.shape[1], [RANGE] * turn.shape[1], BITS)
    return replace(visible, matrix=turned.astype(np.float32), quantiser=quantiser)


def hardened(sift: Sift) -> bool:
    """Tell whether a sift has the form that `harden` gives it."""
    one = sift.certain if isinstance(sift, PersonalSift) else sift
    return isinstance(one, LinearSift) and one.levels == (1 << BITS,) * one.width


def _reference(X: Features, dimension: int) -> tuple[Array, NDArray[np.bool_], int]:
    """The mean of every feature, whether it varies, and the number of samples."""
    total, samples = np.zeros(dimension), 0
    low, high = np.full(dimension, np.inf, dtype=np.float32), np.full(dimension, -np.inf, dtype=np.float32)
    for block in finite_blocks(X, dimension):
        total += block.sum(axis=0, dtype=np.float64)
        samples += len(block)
        np.minimum(low, block.min(axis=0), out=low)
        np.maximum(high, block.max(axis=0), out=high)
    return total / samples, low < high, samples


def _whitening(outputs: Array) -> Array:
    """(outputs, kept): to uncorrelated outputs of unit variance, strongest first."""
    deviation = outputs.std(axis=0)
    if not deviation.any():
        raise InputError("this sift lets out the same numbers for every reference sample: it tells nothing.")
    inverse = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    values, vectors = np.linalg.eigh(np.cov(outputs * inverse, rowvar=False, bias=True).reshape(2 * deviation.shape))
    kept = values > values[-1] / 4**BITS  # variances: the square of 1 / 2^BITS
    basis = vectors[:, kept][:, ::-1]
    basis = basis * np.sign(np.take_along_axis(basis, np.abs(basis).argmax(axis=0)[None], axis=0))
    return np.asarray(inverse[:, None] * basis / np.sqrt(values[kept][::-1]))


def with_few_levels(sift: LinearSift, X: Features, levels: int) -> LinearSift:
    """Return the sift with `levels` levels per number, equally frequent on reference features X."""
    if levels < 2:
        raise InputError(f"a number needs at least 2 levels to say anything; got {levels}.")
    numbers = replace(sift, quantiser=None).apply(X)
    edges = np.quantile(numbers, np.arange(1, levels) / levels, axis=0).T.astype(np.float32)
    if not (np.diff(edges) > 0).all():
        raise InputError(
            f"the sift's numbers take fewer than {levels} different values often enough. Use fewer levels."
        )
    return replace(sift, quantiser=Quantiser(edges))


def prepare(sift: Sift, private: Mapping[str, Labels], data: VerificationSet) -> Sift:
    """Return what may be verified of an app's sift: its symbols if they are few, else its hardened version.

    Symbols are few if those of a single frame can be certified. Hardening is fitted to the reference rows of the data.
    Refused: sifts of another pipeline, sifts that read what never varies, and releases that are neither linear nor of
    few symbols. More frames of a sift that is not linear, and such a sift together with others, are certified or
    refused by `union`.
    """
    check_fits(sift, data)
    if isinstance(sift, PersonalSift):
        return PersonalSift(prepare(sift.certain, private, data), sift.epsilon)
    if certifiable([sift.alphabet], private):
        _refuse_unseen(sift, data)
        return sift
    if isinstance(sift, LinearSift):
        if data.reference is None:
            raise InputError(
                "a sift is hardened on rows that do not judge it, and these verification rows have no reference. Use "
                "data.with_reference()."
            )
        own = harden(sift, data.seen(data.reference.features))
        _refuse_unseen(own, data)
        return own
    raise PrivacyError(
        f"a sift of kind {sift.kind!r} is verified by certificate only, and its alphabet is too large for that. "
        "Release fewer symbols, or a linear sift."
    )


def check_fits(sift: Sift, data: VerificationSet) -> None:
    """Refuse a sift of another pipeline or dimension; this looks at no verification rows."""
    if sift.pipeline != data.pipeline:
        raise InputError(
            f"this sift belongs to feature pipeline {sift.pipeline!r}, the platform's features come from "
            f"{data.pipeline!r}. Fit it to the platform's features and name their pipeline."
        )
    if sift.dimension != data.dimension:
        raise InputError(f"this sift takes {sift.dimension} features; the platform has {data.dimension}.")


def coarser(sift: Sift, reference: VerificationSet) -> Sift:
    """Return a sift that tells less: one bit per number, of three numbers at most; then one number fewer."""
    if not isinstance(sift, LinearSift) or (sift.width == 1 and sift.levels == (2,)):
        raise PrivacyError("there are no fewer details than these. Allow or refuse.")
    bits = sift.levels == (2,) * sift.width
    kept = min(_FEW_NUMBERS, sift.width - 1 if bits else sift.width)
    fewer = replace(sift, matrix=sift.matrix[:, :kept], quantiser=None)
    return with_few_levels(fewer, reference.features, 2)


def _refuse_unseen(sift: Sift, data: VerificationSet) -> None:
    """No certificate speaks of features that never vary on the verification rows."""
    if isinstance(sift, LinearSift):
        weights = sift.matrix
    elif isinstance(sift, LayeredSift | SymbolSift):
        weights = sift.layers.weights[0]
    else:
        raise PrivacyError(f"nobody can tell which features a sift of kind {sift.kind!r} reads. Bring another kind.")
    constant = data.features.min(axis=0) == data.features.max(axis=0)
    if np.any(weights[constant] != 0):
        raise PrivacyError("this sift reads features that never vary on the verification rows. Give them weight zero.")


def included_sift(learner: SiftLearner, policy: Policy, development: VerificationSet) -> Sift:
    """Return a sift that lets out 1 or 0 for each public attribute: the platform's sift and classifier, both linear, as
    one `LinearSift` of two levels. `development` must be other rows than those the sift will be verified on. A learner
    whose sift has few levels already is taken as it is.
    """
    for name in policy.public:
        if name not in development.labels:
            raise UnknownNameError("public attribute", name, development.labels)
    sides = (label_columns(development.labels, side) for side in (policy.public, policy.private))
    sift: Sift = copy.deepcopy(learner).fit(development.features, *sides).sift_
    if not isinstance(sift, LinearSift) or sift.levels is not None:
        return sift
    released = sift.project(development.features)
    classifiers = [train_public_classifier(released, development.labels[name]) for name in policy.public]
    weights = np.stack([classifier.weights for classifier in classifiers], axis=1)
    edges = [classifier.threshold + classifier.mean @ classifier.weights for classifier in classifiers]
    return LinearSift(
        sift.mean,
        sift.scale,
        without_negligible(sift.matrix.astype(np.float64) @ weights).astype(np.float32),
        Quantiser(np.array(edges, dtype=np.float32)[:, None]),
        development.pipeline,
        name=str(policy),
    )
