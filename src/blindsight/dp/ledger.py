"""The ledger: it remembers every privacy spend, adds up only what may be added, and refuses to exceed a budget.

*The guarantee.* A spend that returned is on disk; a spend that raised allows no release. So a crash can waste budget
but not forget any, provided that no noisy value leaves before `Ledger.spend` returned. `Ledger.release` sees to that::

    ledger = Ledger(Path("privacy.ledger"))
    ledger.set_budget("holiday photos", unit="person", neighbours="add/remove", epsilon=1.0, delta=1e-6)
    noisy = ledger.release(LaplaceMechanism(sensitivity=1.0, epsilon=0.1), counts, scope="holiday photos",
                           unit="person", neighbours="add/remove", purpose="photos per day")

*What may be added.* Everything spent on one scope (a collection of data, by its name) is counted in one unit and one
neighbouring relation; the scope's first entry decides which. A spend in another is refused: ten bits are not ten
persons, and a second account next to the first would be a way around its budget. Convert the loss (c bits per record
are `count` = c) or give it a scope of its own. That two scopes hold different data is the caller's word.

*Budgets* may be lowered, never raised. Whether a spend fits is decided by the smallest proven epsilon at the budget's
delta, to nine digits, so that 0.1 and 0.2 fit in 0.3. `blindsight.dp.accounting` tells what a proof assumes. What
depends on the data themselves (`EQUAL_CONTENTS`) is recorded, and no budget counts it: a refusal would tell of them.

*The file* is a `blindsight.dp.journal.Journal`: appended to and synced before a spend returns, mode 0600, chained by
checksums, safe to share between processes, also under several names (symbolic and hard links); a copy is a ledger of
its own. The chain is no signature. To notice that someone put an older copy in its place, note `Ledger.head` elsewhere,
such as in a report, and ask `Ledger.includes` later.
"""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, get_args

from numpy.typing import ArrayLike, NDArray

from blindsight.dp.accounting import (
    Composition,
    Loss,
    SampledGaussianLoss,
    compose,
    epsilon_of,
    loss_from_dict,
    loss_to_dict,
)
from blindsight.dp.journal import Journal
from blindsight.errors import (
    BudgetExceededError,
    CorruptFileError,
    IncomparableError,
    InputError,
    PrivacyError,
    UnknownNameError,
)
from blindsight.files import AnyPath
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import Neighbours, Unit

EQUAL_CONTENTS = "releases of equal contents under several ids"
"""The purpose of spends that depend on which records are equal: counted as spent, refused by no budget, and nothing
that is published may count them."""

HEADER = {"format": "blindsight/ledger", "version": 1}
_NINE_DIGITS = 1 + 1e-9


class Mechanism(Protocol):
    """What can be released through a ledger: it knows its loss and tells in words what it does."""

    @property
    def loss(self) -> Loss:
        """What one release costs."""

    def release(self, values: ArrayLike, source: ByteSource = ...) -> NDArray[Any]:
        """Return the values with fresh noise."""


@dataclass(frozen=True)
class Spend:
    """One entry: what was lost, by whom (scope and unit), through what, what for and when (UTC)."""

    scope: str
    unit: Unit
    neighbours: Neighbours
    loss: Loss
    mechanism: str
    purpose: str
    time: str

    def __post_init__(self) -> None:
        for name in ("scope", "mechanism", "purpose"):
            if not getattr(self, name).strip():
                raise InputError(f"a spend must name its {name}; got an empty one.")
        _check_kind(self.unit, self.neighbours)
        if isinstance(self.loss, SampledGaussianLoss) and self.neighbours != "add/remove":
            raise InputError("sub-sampling amplifies privacy for adding or removing a unit only; got 'replace'.")


@dataclass(frozen=True)
class Budget:
    """The most that may be spent on a scope in all."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise InputError(f"a budget's epsilon must be finite and at least 0; got {self.epsilon}.")
        if not 0 <= self.delta < 1:
            raise InputError(f"a budget's delta must be in [0, 1); got {self.delta}.")


@dataclass
class Account:
    """Everything about one scope."""

    unit: Unit
    neighbours: Neighbours
    budget: Budget | None = None
    spends: list[Spend] = field(default_factory=list)

    @property
    def losses(self) -> list[Loss]:
        return [spend.loss for spend in self.spends]

    @property
    def budgeted(self) -> list[Loss]:
        """What a budget counts."""
        return [spend.loss for spend in self.spends if spend.purpose != EQUAL_CONTENTS]


@dataclass(frozen=True)
class Row:
    """One line of the ledger's table for a report."""

    scope: str
    unit: Unit
    neighbours: Neighbours
    releases: int
    spent: Composition
    budget: Budget | None


class Ledger:
    """What was spent, in a file or (without a path) in memory; the module's text has the rules."""

    def __init__(
        self,
        path: AnyPath | None = None,
        *,
        readonly: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Open the ledger at `path`, made if need be; with `readonly` it must exist and no file is written."""
        if readonly and path is None:
            raise InputError("a ledger in memory has nothing to read. Give the path of a ledger's file.")
        self._accounts: dict[str, Account] = {}
        self._clock = clock
        self._mutex = threading.Lock()
        self._journal = None if path is None else Journal(path, header=HEADER, readonly=readonly)
        with self._current():
            pass

    @property
    def recovered(self) -> str | None:
        """What an interrupted write left behind and what was done about it, or None."""
        return None if self._journal is None else self._journal.recovered

    @property
    def head(self) -> str | None:
        """The checksum that stands for the whole ledger as last read; None in memory."""
        return None if self._journal is None else self._journal.head

    def includes(self, head: str) -> bool:
        """Tell whether this ledger continues the one that once had this head."""
        with self._current():
            return self._journal is not None and self._journal.includes(head)

    def set_budget(self, scope: str, *, unit: Unit, neighbours: Neighbours, epsilon: float, delta: float) -> None:
        """Set or lower what may be spent on `scope` in all; a budget below what is spent already closes the scope."""
        _check_kind(unit, neighbours)
        budget = Budget(epsilon, delta)
        with self._current():
            account = self._comparable(scope, unit, neighbours)
            old = account.budget
            if old is not None and (budget.epsilon > old.epsilon or budget.delta > old.delta):
                raise PrivacyError(
                    f"the budget of scope {scope!r} is epsilon {old.epsilon}, delta {old.delta}; it may be lowered, "
                    f"not raised; got epsilon {epsilon}, delta {delta}."
                )
            if budget != old:
                self._record("budget", {"scope": scope, "unit": unit, "neighbours": neighbours} | asdict(budget))

    def spend(
        self, loss: Loss, *, scope: str, unit: Unit, neighbours: Neighbours, mechanism: str, purpose: str
    ) -> Spend:
        """Record a loss durably, or raise: then nothing is recorded and nothing may be released."""
        time = self._clock().astimezone(UTC).isoformat(timespec="seconds")
        entry = Spend(scope, unit, neighbours, loss, mechanism, purpose, time)
        with self._current():
            account = self._comparable(scope, unit, neighbours)
            budget = None if purpose == EQUAL_CONTENTS else account.budget
            if budget is not None and not _fits([*account.budgeted, loss], budget):
                raise _refusal(scope, account, loss)
            self._record("spend", asdict(entry) | {"loss": loss_to_dict(loss)})
        return entry

    def release(
        self,
        mechanism: Mechanism,
        values: ArrayLike,
        *,
        scope: str,
        unit: Unit,
        neighbours: Neighbours,
        purpose: str,
        source: ByteSource = system_bytes,
    ) -> NDArray[Any]:
        """Return the values with noise, after the loss was recorded. Refused values or spends cost nothing."""
        noisy = mechanism.release(values, source)  # stays in here until the spend is on disk
        self.spend(
            mechanism.loss, scope=scope, unit=unit, neighbours=neighbours, mechanism=str(mechanism), purpose=purpose
        )
        return noisy

    def spent(self, scope: str, unit: Unit, *, delta: float) -> Composition:
        """Return what was spent on `scope` per `unit` at `delta`, by every accountant."""
        with self._current():
            losses = self._known(scope, unit).losses
        return compose(losses, delta=delta)

    def remaining(self, scope: str, unit: Unit) -> float:
        """Return how much epsilon is left at the budget's delta; infinity where no budget was set."""
        with self._current():
            account = self._known(scope, unit)
            budget, losses = account.budget, account.budgeted
        if budget is None:
            return math.inf
        return max(0.0, budget.epsilon - compose(losses, delta=budget.delta).epsilon)

    def spends(self, scope: str, unit: Unit) -> tuple[Spend, ...]:
        """Return the entries of one scope, oldest first."""
        with self._current():
            return tuple(self._known(scope, unit).spends)

    def table(self, *, delta: float) -> tuple[Row, ...]:
        """Return one row per scope, by name, at its budget's delta (at `delta` where there is no budget)."""
        with self._current():
            accounts = [(scope, account, account.losses) for scope, account in sorted(self._accounts.items())]
        return tuple(
            Row(
                scope=scope,
                unit=account.unit,
                neighbours=account.neighbours,
                releases=sum(loss.count for loss in losses),
                spent=compose(losses, delta=delta if account.budget is None else account.budget.delta),
                budget=account.budget,
            )
            for scope, account, losses in accounts
        )

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Hold the ledger still, with everything in it that any process recorded."""
        with self._mutex:
            if self._journal is None:
                yield
                return
            with self._journal.locked():
                self._journal.catch_up(self._apply)
                yield

    def _comparable(self, scope: str, unit: Unit, neighbours: Neighbours) -> Account:
        """Return the scope's account (a new one, not yet kept, for a new scope) if this unit can be added to it."""
        account = self._accounts.get(scope, Account(unit, neighbours))
        if (account.unit, account.neighbours) != (unit, neighbours):
            raise IncomparableError(
                f"scope {scope!r} is counted per {account.unit} ({account.neighbours}); what is spent per {unit} "
                f"({neighbours}) cannot be added to it. Convert the loss, or give it a scope of its own."
            )
        return account

    def _known(self, scope: str, unit: Unit) -> Account:
        if scope not in self._accounts:
            raise UnknownNameError("scope", scope, self._accounts)
        account = self._accounts[scope]
        if account.unit != unit:
            raise IncomparableError(
                f"scope {scope!r} is counted per {account.unit}; what that is per {unit} is not known."
            )
        return account

    def _record(self, kind: str, data: dict[str, Any]) -> None:
        record = {"kind": kind} | data
        if self._journal is not None:
            self._journal.append(record)
        self._apply(record)

    def _apply(self, record: dict[str, Any]) -> None:
        if "format" in record:
            return
        data = dict(record)
        kind = data.pop("kind", None)
        try:
            account = self._comparable(data["scope"], data["unit"], data["neighbours"])
            if kind == "spend":
                account.spends.append(Spend(**data | {"loss": loss_from_dict(data["loss"])}))
            elif kind == "budget":
                account.budget = Budget(data["epsilon"], data["delta"])
            else:
                raise InputError(f"unknown kind of record {kind!r}.")
        except (InputError, IncomparableError, KeyError, TypeError) as error:
            raise CorruptFileError(f"the ledger holds a record that cannot be: {error}") from None
        self._accounts[data["scope"]] = account


def _check_kind(unit: Unit, neighbours: Neighbours) -> None:
    if unit not in get_args(Unit):
        raise UnknownNameError("unit", str(unit), get_args(Unit))
    if neighbours not in get_args(Neighbours):
        raise UnknownNameError("neighbouring relation", str(neighbours), get_args(Neighbours))


def _fits(losses: list[Loss], budget: Budget) -> bool:
    """Tell whether any accountant proves that the losses stay within the budget, asking the quickest first."""
    limit = budget.epsilon * _NINE_DIGITS
    return any(
        epsilon_of(losses, delta=budget.delta, accountant=name) <= limit
        for name in (("basic", "rdp", "pld") if budget.delta else ("basic",))
    )


def _refusal(scope: str, account: Account, loss: Loss) -> BudgetExceededError:
    assert account.budget is not None
    delta = account.budget.delta
    before = compose(account.budgeted, delta=delta).epsilon
    after = compose([*account.budgeted, loss], delta=delta).epsilon
    return BudgetExceededError(
        f"scope {scope!r} may spend epsilon {account.budget.epsilon:g} at delta {delta:g} per {account.unit}; it has "
        f"spent {before:.4g} and this release would make it {after:.4g}. Nothing was recorded or released."
    )
