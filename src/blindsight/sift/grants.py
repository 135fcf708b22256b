"""A grant: one app may get one sift's release about one person, on the terms it was verified under and no others.

A grant holds only while the person still hides nothing more than it was verified against, on the same verification
rows, by the same verifier. Change any of these and it is suspended at once, without anybody having to act; only a new
verification brings it back, or revokes it. So a platform that is killed between a change of preferences and the
verification that must follow lets nothing out.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from blindsight.sift.attackers import chosen_attackers
from blindsight.sift.stream import ReleaseBudget
from blindsight.sift.verify import Verifier

Mode = Literal["included", "unincluded"]


@dataclass(frozen=True)
class Terms:
    """What a verification rests on."""

    private: tuple[str, ...]
    verification_set: str
    verifier: str
    """From `verifier_name`: attackers by their names, threshold, confidence, seed; no attackers where certified."""

    def covers(self, private: tuple[str, ...], verification_set: str, verifiers: tuple[str, ...]) -> bool:
        """Tell whether what was verified is still all that matters."""
        hidden = set(private) <= set(self.private)
        return hidden and self.verification_set == verification_set and self.verifier in verifiers


@dataclass(frozen=True)
class Revocation:
    """Why a grant ended, and when. `leaks`: it failed a verification, so what it released is known to be too much."""

    reason: str
    time: str
    leaks: bool


@dataclass(frozen=True)
class Grant:
    """Who gets what about whom, what was verified, and whether it still holds."""

    number: int
    person: str
    app: str
    public: tuple[str, ...]
    policy_version: int
    mode: Mode
    sift: str
    """The digest of what is applied: of the platform's version of the app's sift."""
    pipeline: str
    budget: ReleaseBudget
    confidence: float
    """At which this sift was verified; the more was tried on the same rows, the higher it is."""
    terms: Terms
    report: Mapping[str, Any]
    """The verification as plain data, with all attackers, seeds and hashes."""
    together: Mapping[str, Any] | None
    """The verification with all that other grants let out about this person; None where there were none."""
    time: str
    revoked: Revocation | None = None

    @property
    def live(self) -> bool:
        """Whether it was not revoked; it may still be suspended."""
        return self.revoked is None

    def to_dict(self) -> dict[str, Any]:
        """Return the grant as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the grant that `to_dict` described."""
        values = {part.name: data[part.name] for part in fields(cls)}
        revoked = values["revoked"]
        return cls(
            **values
            | {
                "public": tuple(values["public"]),
                "budget": ReleaseBudget(**values["budget"]),
                "terms": terms_from_dict(values["terms"]),
                "revoked": None if revoked is None else Revocation(**revoked),
            }
        )


def terms_from_dict(data: Mapping[str, Any]) -> Terms:
    """Return the terms that `asdict` described."""
    return Terms(tuple(data["private"]), data["verification_set"], data["verifier"])


def verifier_name(verifier: Verifier, *, certified: bool) -> str:
    """Name what decides a verifier's verdicts; certificates do not depend on attackers.

    >>> verifier_name(Verifier("paper"), certified=True)
    'certificate, threshold 0.1, confidence 0.95, surest 0.9 but for 0.02, within the support'
    """
    rule = f"threshold {verifier.threshold:g}, confidence {verifier.confidence:g}"
    rule += f", surest {verifier.surest:g} but for {verifier.exempt:g}, within the support"
    if certified:
        return f"certificate, {rule}"
    attackers = (f"{one.name} [{one.view}{', tuned' * one.tune}]" for one in chosen_attackers(verifier.attackers))
    rows = f"{verifier.rows_per_number} rows a number"
    return f"{'; '.join(attackers)}; {rule}, {rows}, seed {verifier.random_state}"
