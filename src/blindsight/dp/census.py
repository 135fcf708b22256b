"""Private census: how common each attribute is among people, so that no single person can be told from the answer.

*The guarantee.* epsilon-differential privacy per person: exchanging all pictures of one person for those of another
changes the probability of any answer by a factor of at most e^epsilon. Each person counts once, with the share of their
pictures that have the attribute, rounded to 2^-20 so that sums are exact; hence exchanging one person moves the sums of
a attributes by at most a in all, and Laplace noise of scale a / epsilon on each sum suffices (Dwork et al. 2006). The
number of people is taken as public; it does not change when one is exchanged.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.dp.ledger import Ledger
from blindsight.dp.mechanisms import LaplaceMechanism
from blindsight.errors import InputError, UnknownNameError
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import PrivacyStatement, randomness_of

_FINENESS = 2**20


@dataclass(frozen=True)
class Census:
    """The released shares, how far the noise may have moved each (95%), and what is proven of it."""

    shares: Mapping[str, float]
    margin: float
    persons: int
    statement: PrivacyStatement

    def share(self, attribute: str) -> float:
        """Return the released share of people with an attribute."""
        if attribute not in self.shares:
            raise UnknownNameError("attribute", attribute, self.shares)
        return self.shares[attribute]


def census(
    answers: Mapping[str, ArrayLike],
    *,
    persons: ArrayLike,
    epsilon: float,
    ledger: Ledger,
    scope: str,
    source: ByteSource = system_bytes,
) -> Census:
    """Release the share of people with each attribute, protecting every person, and record it in the ledger.

    `answers` holds 0 or 1 for each picture and attribute; `persons` tells who is on each picture, by a number from 0 on
    or a name. Unknown persons are refused: taken for one person, they would share the protection of one. `scope` is the
    name under which the ledger counts what is spent on these people.
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, Real):
        raise InputError(f"epsilon must be a positive number; got {epsilon!r}.")
    sums, people = _person_sums(answers, persons)
    mechanism = LaplaceMechanism(sensitivity=float(len(answers)), epsilon=epsilon)
    noisy = ledger.release(
        mechanism, sums, scope=scope, unit="person", neighbours="replace", purpose="census of attributes", source=source
    )
    shares = np.clip(noisy / people, 0.0, 1.0)
    return Census(
        shares=dict(zip(answers, shares.tolist(), strict=True)),
        margin=mechanism.scale * math.log(20) / people,
        persons=people,
        statement=_statement(mechanism, len(answers), source),
    )


def _person_sums(answers: Mapping[str, ArrayLike], persons: ArrayLike) -> tuple[NDArray[np.float64], int]:
    """Return for each attribute the exact sum over people of their share of pictures that have it."""
    if not isinstance(answers, Mapping):
        raise InputError(f"answers must map each attribute to its column of 0 and 1; got {type(answers).__name__}.")
    who, index = np.unique(_known_persons(persons), return_inverse=True)
    if not answers or not who.size:
        raise InputError("a census needs at least one attribute and one person; got none.")
    pictures = np.bincount(index)
    sums = np.empty(len(answers))
    for row, (name, column) in enumerate(answers.items()):
        values = np.asarray(column)
        if values.dtype.kind not in "biuf" or values.shape != index.shape or not np.isin(values, (0, 1)).all():
            raise InputError(
                f"the answers for {name!r} must be 0 or 1, one for each of {index.size} pictures. "
                "Leave out pictures whose answer is unknown."
            )
        shares = np.bincount(index, weights=values) / pictures
        sums[row] = np.rint(shares * _FINENESS).astype(np.int64).sum() / _FINENESS
    return sums, who.size


def _known_persons(persons: ArrayLike) -> NDArray[Any]:
    who = np.asarray(persons)
    if who.dtype.kind in "biuf":
        known = bool(np.all(np.isfinite(who) & (who >= 0)))
    else:
        known = all(isinstance(person, str | bytes) for person in np.asarray(persons, dtype=object).flat)
    if who.ndim != 1 or not known:
        raise InputError(
            "persons must be one number from 0 on, or one name, for each picture; got another shape or an unknown "
            "person. Leave out pictures whose person is unknown."
        )
    return who


def _statement(mechanism: LaplaceMechanism, attributes: int, source: ByteSource) -> PrivacyStatement:
    return PrivacyStatement(
        guarantee="differential privacy",
        mechanism=f"{mechanism} on the sums of {attributes} attributes over people",
        unit="person",
        epsilon=mechanism.epsilon,
        delta=0.0,
        neighbours="replace",
        accountant="one pure release",
        randomness=randomness_of(source),
        who_sees={
            "owner": "the pictures, the attributes of every person, the true shares",
            "anyone else": "the noisy shares and the number of people",
        },
        assumptions=(
            "pictures are assigned to the right person, and people do not determine each other's attributes",
            "the number of people is public",
        ),
        not_protected=(
            "what is true of people in general, a single person's part in it or not",
            "further releases about the same people: the ledger adds them up",
        ),
    )
