"""Where a sift could hide what its released numbers do not show: other units, differences, digits.

An app that writes its own sift can put the private attribute where a verifier does not look (`sift.cheats`). Here one
attacker looks in every such place: at the numbers in each view of `sift.attackers` (as they come, standardised,
whitened, quantised), and at their digits behind the decimal point alone. What is scrambled with a hash is found by no
list of places; few symbols under a certificate leave no place for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.finding import Finding, Interval, of_verifier
from blindsight.progress import Progress, silent
from blindsight.sift.attackers import VIEWS, Attacker
from blindsight.sift.verdict import Verification
from blindsight.sift.verify import Verifier

DIGITS = "digits"


@dataclass(frozen=True)
class HidingPlaces:
    """What one attacker reads in each place."""

    found: Mapping[str, Verification]

    @property
    def worst(self) -> tuple[str, Verification]:
        """The place that tells most."""
        return max(self.found.items(), key=lambda item: item[1].priv_loss)


def search_hiding_places(
    released: NDArray[Any],
    private: Mapping[str, ArrayLike],
    verifier: Verifier,
    attacker: Attacker,
    *,
    persons: ArrayLike | None = None,
    progress: Progress = silent,
) -> HidingPlaces:
    """Let one attacker look at released numbers (n, K) in every place; the places share the verifier's confidence."""
    numbers = np.asarray(released, dtype=np.float64)
    places: dict[str, tuple[NDArray[Any], Attacker]] = {view: (numbers, replace(attacker, view=view)) for view in VIEWS}
    behind = numbers - np.rint(numbers)
    if behind.any():
        places[DIGITS] = (behind, replace(attacker, view="standardised"))
    confidence = 1 - (1 - verifier.confidence) / len(places)
    found: dict[str, Verification] = {}
    for done, (place, (shown, who)) in enumerate(places.items()):
        progress("looking for hiding places", done, len(places))
        alone = replace(verifier, attackers=(who,), confidence=confidence, stop_early=False)
        found[place] = alone.verify(shown, private, persons=persons, certified=False)
    progress("looking for hiding places", len(places), len(places))
    return HidingPlaces(found)


def hiding_finding(places: HidingPlaces, policy: str) -> Finding:
    """Return the place that tells most; a sift within its threshold is called a leak at most at 1 - confidence."""
    place, verification = places.worst
    best = verification.best
    low, high = best.interval
    allowed = verification.setting.threshold
    return Finding(
        claim=f"{policy}: nothing is hidden in other units, differences or digits of what is released",
        source="nobody",
        proven="nothing, unless hardened or certified",
        measure=f"PrivLoss of {best.attribute}, in the place that tells most (allowed: {allowed:g})",
        measured=Interval(best.priv_loss, low - 0.5, high - 0.5, verification.setting.confidence),
        verdict=of_verifier(verification.verdict),
        attack=f"{best.attacker}: {place}",
        details={name: round(found.priv_loss, 4) for name, found in places.found.items()},
    )
