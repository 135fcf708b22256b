"""Bounds on what one bit tells, from pictures counted as if they were people, or from people counted once each."""

import numpy as np

from benchmarks.suites.sift_persons import Draw
from blindsight.sift.certificate import certify
from blindsight.sift.verdict import Confidence


def run(given: list[Draw], *, seed: int, persons: bool) -> list[tuple[float, float]]:
    """Return of every draw the certified bound, and the lower end of what the bit as a guess is worth."""
    found = []
    for draw in given:
        who = draw.persons if persons else None
        bound = certify(draw.symbols, draw.private, confidence=0.95, persons=who).bound
        guess = draw.symbols.astype(np.int8)
        low = Confidence(0.95, 1).bounds(draw.private, guess, who)[0].low - 0.5
        found.append((bound, low))
    return found
