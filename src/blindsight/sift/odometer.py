"""How much is out: the best known guess of each private attribute from everything that was released about a person.

An odometer does not run backwards. What an app got before its grant was revoked counts on; only what was never released
is left out when its grant ends.
"""

from dataclasses import dataclass

from blindsight.sift.verdict import Verification


@dataclass(frozen=True)
class Reading:
    """How well one private attribute is guessed, as balanced accuracies: 1/2 is blind."""

    attribute: str
    guess: float
    """Of the best attacker that was tried."""
    at_most: float
    """Upper limit at the verifier's confidence: of every attacker where `certified`, else of those that were tried."""
    certified: bool
    surest: float = 1.0
    exposed: float = 0.0
    """Where certified: a single answer makes a guess surer than `surest` for at most this share of the people."""


@dataclass(frozen=True)
class Odometer:
    """What is out about one person, through which grants, and how sure the limits are."""

    person: str
    grants: tuple[int, ...]
    readings: tuple[Reading, ...]
    confidence: float


def readings(verification: Verification) -> tuple[Reading, ...]:
    """Return the best guess of every attribute that was attacked or certified, and its limit."""
    certificates = {certificate.attribute: certificate for certificate in verification.certificates}
    found = []
    for name in dict.fromkeys(result.attribute for result in verification.results):
        rows = [result for result in verification.results if result.attribute == name]
        guess = max(result.balanced_accuracy for result in rows)
        if name not in certificates:
            found.append(Reading(name, guess, max(result.limit for result in rows), verification.certified))
            continue
        one = certificates[name]
        found.append(Reading(name, guess, 0.5 + one.bound, True, one.surest, one.exposed))
    attacked = {reading.attribute for reading in found}
    joint = (one for one in verification.certificates if one.attribute not in attacked)
    found += [Reading(one.attribute, 0.5 + one.estimate, 0.5 + one.bound, certified=True) for one in joint]
    worst: dict[str, Reading] = {}  # of the frames of a window the one that is told most about
    for reading in found:
        name = reading.attribute.partition(" in frame ")[0]
        if name not in worst or reading.at_most > worst[name].at_most:
            worst[name] = reading
    return tuple(worst.values())


def blind(names: tuple[str, ...]) -> tuple[Reading, ...]:
    """Return the readings before anything was released."""
    return tuple(Reading(name, 0.5, 0.5, certified=True) for name in names)
