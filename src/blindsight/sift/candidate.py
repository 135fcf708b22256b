"""An app's sift as the platform will apply it: of the right pipeline, with nowhere to hide anything, or not at all."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from blindsight.errors import InputError, PrivacyError
from blindsight.sift.fewlevels import with_few_levels
from blindsight.sift.harden import harden
from blindsight.sift.labels import Labels
from blindsight.sift.layeredsift import LayeredSift
from blindsight.sift.personal import PersonalSift
from blindsight.sift.sift import LinearSift, Sift
from blindsight.sift.symbolsift import SymbolSift
from blindsight.sift.union import certifiable
from blindsight.sift.verificationset import VerificationSet

_FEW_NUMBERS = 3


def prepare(sift: Sift, private: Mapping[str, Labels], data: VerificationSet) -> Sift:
    """Return what may be verified of an app's sift: its symbols if they are few, else its hardened version.

    Symbols are few if those of a single frame can be certified. Refused: sifts of another pipeline, sifts that read
    what never varies, and releases that are neither linear nor of few symbols, because nobody can tell where such a
    sift hides things. More frames of a sift that is not linear, and such a sift beside others, are certified or refused
    by `union`.
    """
    check_fits(sift, data)
    if isinstance(sift, PersonalSift):
        return PersonalSift(prepare(sift.certain, private, data), sift.epsilon)
    if certifiable([sift.alphabet], private):
        _refuse_unseen(sift, data)
        return sift
    if isinstance(sift, LinearSift):
        return harden(sift, data.through(data.pipeline))
    raise PrivacyError(
        f"a sift of kind {sift.kind!r} is verified by certificate only, and its alphabet is too large for that. "
        "Release fewer symbols, or a linear sift."
    )


def check_fits(sift: Sift, data: VerificationSet) -> None:
    """Refuse a sift of another pipeline or dimension: what anybody can know without looking at verification rows."""
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
    """Refuse a sift that reads what never varies on the verification rows: no certificate speaks of that."""
    if isinstance(sift, LinearSift):
        weights = sift.matrix
    elif isinstance(sift, LayeredSift | SymbolSift):
        weights = sift.layers.weights[0]
    else:
        raise PrivacyError(f"nobody can tell which features a sift of kind {sift.kind!r} reads. Bring another kind.")
    constant = data.features.min(axis=0) == data.features.max(axis=0)
    if np.any(weights[constant] != 0):
        raise PrivacyError("this sift reads features that never vary on the verification rows. Give them weight zero.")
