"""Private search by one estimator: say how much a record may lose, and who keeps the codes.

``PrivateHasher(epsilon=4, mode="local")`` is for owners who do not trust the operator of the search. Each record is
released once, with noise that protects it no matter who sees it. What codes mean is learned from public features, never
from the records (`localmode`), and releases are permanent (`releases`).

``PrivateHasher(epsilon=1, delta=1e-6, clip=1.0, mode="central")`` is for an owner of a collection who runs the search.
Only the hash function leaves, learned with differential privacy (`central`); codes stay, without noise, and find more.

The algorithms of Wang, Lu and Zhang ("Searching privately by imperceptible lying", MM 2020) are `PHashing` and `PITQ`:
they keep neither promise, and their statements say so.

*Units.* An epsilon counts per record. With ``unit="person"`` and ``per_person=g`` it counts for all pictures of a
person with at most g of them: each gets g times less. It never counts per bit, of which a record has many.
"""

import hashlib
import operator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self, SupportsIndex, get_args

from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from blindsight.dp.accounting import BoundedLoss, check_positive
from blindsight.dp.ledger import Ledger
from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.files import AnyPath
from blindsight.rng import ByteSource, system_bytes
from blindsight.search.central import CentralHasher
from blindsight.search.codes import Codes
from blindsight.search.function import LinearHash
from blindsight.search.itq import ITQ
from blindsight.search.localmode import LocalHasher
from blindsight.search.releases import Releases
from blindsight.statement import PrivacyStatement, Unit
from blindsight.validation import check_features

Mode = Literal["local", "central"]


@dataclass(frozen=True)
class _LocalMechanism:
    """A fitted local hasher as something that is released record by record."""

    hasher: LocalHasher
    loss: BoundedLoss

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.hasher.digest} {self.loss}".encode()).hexdigest()

    def release(self, X: ArrayLike, *, source: ByteSource = system_bytes) -> NDArray[Any]:
        return self.hasher.release(X, source=source)


@dataclass(eq=False, repr=False)
class PrivateHasher(BaseEstimator):  # type: ignore[misc]
    """Codes for search under a budget per record or per person.

    Fitted, `hasher_` is the `LocalHasher` or `CentralHasher`; in local mode `releases_` is the store of `Releases`.
    """

    epsilon: float  # what one record (or person) may lose
    _: KW_ONLY
    unit: Unit = "record"  # or "person" together with `per_person`
    mode: Mode = "local"  # "local" (records are released with noise) or "central" (only the function is released)
    bits: int = 64  # length of a code in central mode; in local mode epsilon decides how much a release can tell
    kinds: int | str = "auto"  # in local mode, about how many kinds to tell apart; "auto": as public features show
    delta: float | None = None  # needed in central mode, as is `clip`; local mode is pure and clips nothing
    clip: float | None = None
    per_person: SupportsIndex | None = None  # the most pictures that anyone has
    path: AnyPath | None = None  # where permanent releases are kept; without, in memory as long as this object lives
    ledger: Ledger | None = None  # where the spends are recorded
    scope: str | None = None  # the collection's name there
    random_state: int = 0  # decides what is not secret, such as where a clustering of public features starts
    source: ByteSource = system_bytes

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        if self.mode not in get_args(Mode):
            hint = " The paper's algorithms are PHashing and PITQ." if str(self.mode) == "paper" else ""
            raise InputError(f"mode must be 'local' or 'central'; got {self.mode!r}.{hint}")
        if self.mode == "local" and self.delta:
            raise InputError(f"local mode is pure: delta must be None or 0; got {self.delta}.")
        if (self.ledger is None) != (self.scope is None):
            raise InputError("a ledger needs the scope under which it counts, and a scope needs a ledger.")
        _pictures(self.unit, self.per_person)

    @property
    def _each(self) -> int | None:
        return _pictures(self.unit, self.per_person)

    def fit(
        self,
        X: ArrayLike | None = None,
        public: ArrayLike | LocalHasher | None = None,
        public_labels: ArrayLike | None = None,
    ) -> Self:
        """Learn from public features (local mode, which never looks at `X`) or from the records X (central mode).

        Central mode starts from an ITQ of public features, where some are given (see `central`). In local mode a fitted
        `LocalHasher` may stand for them: releases kept in a file belong to that hasher, so save it too.
        """
        self.__post_init__()  # parameters may have been set since
        if self.mode == "local":
            return self._fit_local(public, public_labels)
        if isinstance(public, LocalHasher):
            raise InputError("central mode starts from public features, not from a codebook.")
        return self._fit_central(X, public)

    def release(self, ids: ArrayLike, X: ArrayLike, *, versions: ArrayLike | None = None) -> NDArray[Any]:
        """Return the permanent noisy releases of records (local mode); see `Releases.release`."""
        self._check_fitted()
        if self.mode == "central":
            raise PrivacyError(
                "central mode releases the hash function and never a code: codes carry no noise. Search them where "
                "they are, or take mode='local'."
            )
        return self.releases_.release(ids, X, versions=versions)

    def transform(self, X: ArrayLike) -> Codes:
        """Return codes without noise (central mode): of queries, or of records for the owner's own index."""
        self._check_fitted()
        if isinstance(self.hasher_, LocalHasher):
            raise PrivacyError("in local mode a record leaves as a noisy release only; queries go to hasher_.")
        return self.hasher_.transform(X)

    @property
    def statement_(self) -> PrivacyStatement:
        """What is proven; in local mode, of the releases as they are by now."""
        if not isinstance(self.hasher_, LocalHasher):
            return self.hasher_.statement_
        often = self.releases_.most_releases
        return self.hasher_.statement(self.source, per_person=self._each, releases=often)

    def _fit_local(self, public: ArrayLike | LocalHasher | None, labels: ArrayLike | None) -> Self:
        if public is None:
            raise InputError(
                "local mode learns what codes mean from public features, never from private ones: give public=, such "
                "as features of a public collection made by the same pipeline."
            )
        share = self.epsilon / (self._each or 1)
        if not isinstance(public, LocalHasher):
            public = LocalHasher(share, kinds=self.kinds, random_state=self.random_state).fit(public, labels)
        elif public.epsilon != share:
            raise InputError(
                f"the given hasher spends epsilon {public.epsilon:g} on a record; {share:g} was asked for."
            )
        mechanism = _LocalMechanism(public, BoundedLoss(share, count=self._each or 1))
        self.releases_ = Releases(
            self.path, mechanism, ledger=self.ledger, scope=self.scope, unit=self.unit, source=self.source
        )
        self.hasher_: LocalHasher | CentralHasher = public
        return self

    def _fit_central(self, X: ArrayLike | None, public: ArrayLike | None) -> Self:
        if self.delta is None or self.clip is None:
            missing = "delta, such as 1e-6," if self.delta is None else "clip, which is 1 for features of unit norm,"
            raise InputError(f"central mode needs {missing} as well as epsilon.")
        if X is None:
            raise InputError("central mode learns from the records: give X.")
        hasher = CentralHasher(
            self.epsilon,
            self.delta,
            self.clip,
            self.bits,
            per_person=self._each,
            random_state=self.random_state,
            source=self.source,
        )
        if public is not None:
            hasher.start_rows = check_features(public, what="public features", least=0)
            start = ITQ(self.bits, random_state=self.random_state).fit(hasher.start_rows).function_
            assert isinstance(start, LinearHash)
            hasher.start = start
        hasher.fit(X)  # stays in here until the spend is on disk
        if hasher.released_ and self.ledger is not None and self.scope is not None:
            self.ledger.spend(
                hasher.loss,
                scope=self.scope,
                unit=self.unit,
                neighbours="replace",
                mechanism=hasher.statement_.mechanism,
                purpose="learn a hash function to be published",
            )
        self.hasher_ = hasher
        return self

    def _check_fitted(self) -> None:
        if not hasattr(self, "hasher_"):
            raise InputError("this PrivateHasher is not fitted yet: call fit first.")


def _pictures(unit: Unit, per_person: SupportsIndex | None) -> int | None:
    """Return how many records one unit has at most; None where a unit is a record."""
    if unit == "bit":
        raise InputError(
            "a promise per bit protects nobody: a record has many bits, and all are released. Take unit='record'; what "
            "flipping single bits is worth is told by PHashing's statement."
        )
    if unit not in get_args(Unit):
        raise UnknownNameError("unit", str(unit), ("record", "person"))
    if unit == "record":
        if per_person is not None:
            raise InputError("per_person divides the budget of a person: say unit='person', or leave it out.")
        return None
    pictures = operator.index(per_person) if isinstance(per_person, SupportsIndex) else 0
    if isinstance(per_person, bool) or pictures < 1:
        raise InputError(
            f"unit='person' needs per_person, the most pictures of anyone, a whole number >= 1; got {per_person!r}."
        )
    return pictures
