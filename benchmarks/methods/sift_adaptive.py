"""An app that follows answers, under a schedule for a fixed list or in the tree of all answers."""

from typing import Any

from numpy.typing import NDArray

from blindsight.errors import PrivacyError
from blindsight.sift.adaptive import share
from blindsight.sift.cheats import Segments, answers_followed


def run(given: tuple[Segments, int, float], *, seed: int, tree: bool) -> float:
    """Return the most that the app gets accepted."""
    rows, tries, alpha = given
    asked = accepts = 0

    def accepted(chosen: NDArray[Any]) -> bool:
        nonlocal asked, accepts
        asked += 1
        try:
            part = share(asked - 1, accepts) if tree else 1 / (asked * (asked + 1))
        except PrivacyError:
            return False  # on these rows nothing is accepted any more
        yes = rows.accepts(chosen, alpha * part)
        accepts += yes
        return yes

    return answers_followed(rows, accepted, tries, random_state=seed)
