"""One run of a scheme in one process: updates in, their exact sum out, with what it cost and what it protects.

::

    session = open_session("masks", members=("ann", "bob", "cem"), dimension=2048)
    result = session.round({"ann": update, "bob": ..., "cem": ...}, 0)
    result.average, result.contributors, result.cost, session.statement()

| scheme | hides updates by | sends | who could read an update |
| --- | --- | --- | --- |
| `plain` | nothing | everything | the aggregator, and does |
| `dphe` | Paillier, and two permutations of indices (Yonetani et al. 2017) | changed weights | the key generator |
| `block-dphe` | the same with a block of weights per plaintext | changed blocks | the key generator |
| `bfv` | lattice encryption | everything | the key generator |
| `masks` | masks that cancel in the sum (Bonawitz et al. 2017) | everything | nobody alone |
| `two-wave-masks` | the same, with keys for the whole run: two messages a round | everything | nobody alone |

The key generator could, if somebody broke the protocol and showed it a contribution. All schemes add the same integers
(`Terms`), so they give the same sum bit for bit. The roles exchange only bytes, over the same engine as across machines
(`engine`); nothing is encrypted before every update of the round has been checked.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import PrivacyStatement
from blindsight.sums.engine import OPEN, Cost, Engine, Handler, LocalTransport, Meter, Parts, Patience, Transit
from blindsight.sums.generator import KeyGenerator, Partitions
from blindsight.sums.roles import Aggregator, Member, Record, RefusedError, forget
from blindsight.sums.scheme import CONTRIBUTE, Resources, SchemeOptions, find_scheme
from blindsight.sums.statements import statement
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, Terms

Recorder = Callable[[str, bytes], object]
"""Called with a party's name and the bytes of each message it received (unsealed, where a seal was on it)."""

_LOCAL = Patience(attempts=1, pause=0.0)
_SPARSE = ("capacity", "minimum_per_position", "key_bits", "keys", "insecure")


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The sum of one round.

    `total` is the exact sum of the contributors' encoded updates, `values` the real weights it stands for. `withheld`
    are the positions whose sum was not revealed, because fewer members changed them than `minimum_per_position` (where
    it is more than one, that includes those nobody changed); `total` is zero there. `refused` tells, by sender, why a
    message of the round was not accepted.
    """

    round: int
    contributors: tuple[str, ...]
    total: NDArray[np.int64]
    values: NDArray[np.float64]
    withheld: NDArray[np.int64]
    refused: Mapping[str, str]
    cost: Cost

    @property
    def average(self) -> NDArray[np.float64]:
        """The mean of the contributors' updates."""
        return self.values / len(self.contributors)


class Session:
    """A run on the given terms. `block` is how many consecutive weights share a ciphertext: sparsity should follow it.

    `record` is called with every message a party receives, `transit` with every message on its way; an existing `key`
    pair may be given.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        resources: Resources | None = None,
        record: Recorder | None = None,
        transit: Transit | None = None,
        key: Any = None,
    ) -> None:
        self.terms, self.scheme, self.block = terms, terms.scheme, terms.sizes.block
        self.resources = resources or Resources()
        self._transit, self._last = transit, -1
        self._updates: Mapping[str, Any] = {}
        self._encode: Callable[[Any], NDArray[np.int64]] = terms.integers
        meter = Meter(terms.members)

        def views(party: str) -> Record:
            return forget if record is None else partial(record, party)

        with meter.working(KEY_GENERATOR, "set up"):
            cohorts = Partitions(source=self.resources.source) if terms.traits.cohorts else None
            self.generator = KeyGenerator(
                terms,
                key=key,
                partition=cohorts.seed(name.encode() for name in terms.members) if cohorts else b"",
                resources=self.resources,
                record=views(KEY_GENERATOR),
            )
        self.aggregator = Aggregator(terms, resources=self.resources, record=views(AGGREGATOR))
        self.members = {
            name: Member(name, terms, resources=self.resources, record=views(name)) for name in terms.members
        }
        for party in (*self.members.values(), self.aggregator):
            enrolment = party.enrolment()
            meter.carried(party.name, KEY_GENERATOR, "set up", len(enrolment))
            self.generator.enrol(enrolment)
        self._set_up(meter)
        self.setup_cost = meter.cost()

    def _set_up(self, meter: Meter) -> None:
        with meter.working(KEY_GENERATOR, "set up"):
            setups = self.generator.setup()
        for name, setup in setups.items():
            meter.carried(KEY_GENERATOR, name, "set up", len(setup))
            with meter.working(name, "set up"):
                (self.aggregator if name == AGGREGATOR else self.members[name]).accept(setup)

    @property
    def needed(self) -> int:
        return self.terms.needed

    def statement(self) -> PrivacyStatement:
        """Return what this run protects, from whom, under which assumptions."""
        return statement(self.terms, source=self.resources.source)

    def round(self, updates: Mapping[str, ArrayLike], number: int, *, encoded: bool = False) -> RoundResult:
        """Add up the updates of one round; members without one have dropped out.

        Updates are real weights, or `encoded` by `Terms.integers`. Numbers go up from round to round. A round with too
        few members or spoilt messages raises: it has given away no more than its sum, and its number is used up.
        """
        self._encode = self.terms.checked if encoded else self.terms.integers
        self._check(updates, number)
        self._last, self._updates = number, updates
        meter = Meter(self.terms.members)
        handlers: dict[str, Handler] = {name: partial(self._member, name) for name in updates}
        if self.terms.keyed:
            handlers[KEY_GENERATOR] = self._generator
        transport = LocalTransport(handlers, transit=self._transit, meter=meter)
        engine = Engine(self.aggregator, transport, _LOCAL, meter=meter)
        try:
            answer, total = engine.play(number)
        except RefusedError as error:
            if error.renewed:
                self._set_up(meter)
            raise
        finally:
            self._updates = {}
        withheld = np.empty(0, dtype=np.int64)
        for name in updates:
            meter.carried(AGGREGATOR, name, "read", len(answer))
            with meter.working(name, "read"):
                outcome = self.members[name].settle(answer, number)
            if name in total.members:
                withheld = np.flatnonzero(~outcome.entered)
        self._count_ciphertexts(meter, total.members)
        return RoundResult(
            number, total.members, total.integers, total.values, withheld, dict(engine.refused), meter.cost()
        )

    def _member(self, name: str, kind: str, parts: Parts) -> list[bytes]:
        integers = self._encoded(name) if kind == CONTRIBUTE else None
        return [self.members[name].answer(parts[0], integers)]

    def _generator(self, kind: str, parts: Parts) -> list[bytes]:
        if kind != OPEN:
            raise InputError(f"a key generator is not asked to {kind}.")
        return [self.generator.answer(parts[0])]

    def _count_ciphertexts(self, meter: Meter, members: Sequence[str]) -> None:
        for name in members:
            meter.carried(name, AGGREGATOR, "encrypt", 0, self.aggregator.ciphertexts.get(name, 0))
        if self.terms.keyed:
            meter.carried(AGGREGATOR, KEY_GENERATOR, "decrypt", 0, self.aggregator.ciphertexts.get(AGGREGATOR, 0))

    def _check(self, updates: Mapping[str, ArrayLike], number: int) -> None:
        if number <= self._last:
            raise InputError(f"rounds count up from 0: after round {self._last} there is no round {number}.")
        for name in updates:
            if name not in self.terms.members:
                raise UnknownNameError("member", name, self.terms.members)
        if len(updates) < self.needed:
            raise PrivacyError(
                f"round {number} has updates of {len(updates)} members; a sum needs {self.needed}. Wait for more."
            )
        self._updates = updates
        for name in updates:
            self._encoded(name)

    def _encoded(self, name: str) -> NDArray[np.int64]:
        try:
            return self._encode(self._updates[name])
        except InputError as error:
            raise InputError(f"the update of {name!r} cannot be added: {error}") from error


def open_session(
    scheme: str = "masks",
    *,
    members: Sequence[str],
    dimension: int,
    fraction_bits: int = 20,
    slot_bits: int = 32,
    minimum: int = 3,
    options: SchemeOptions | None = None,
    pool: Executor | None = None,
    threads: int | None = None,
    run: str | None = None,
    source: ByteSource = system_bytes,
    record: Recorder | None = None,
    transit: Transit | None = None,
    **others: Any,
) -> Session:
    """Make all parties of a run in this process and set them up.

    Weights are rounded to multiples of 2^-`fraction_bits`, and sums must fit `slot_bits` bits with their sign. A round
    needs `minimum` contributors. `options` are the scheme's own, the usual ones if there are none (`dphe.DpheOptions`
    for the two sparse schemes); or name its fields here: ``open_session("dphe", ..., key_bits=2048)``. A process `pool`
    encrypts and `threads` decrypt.
    """
    terms = make_terms(
        scheme,
        run=run or secrets.token_hex(8),
        members=members,
        dimension=dimension,
        options=options,
        fraction_bits=fraction_bits,
        slot_bits=slot_bits,
        minimum=minimum,
        absences=-1,
        **others,
    )
    resources = Resources(source=source, pool=pool, threads=threads)
    return Session(terms, resources=resources, record=record, transit=transit)


def make_terms(
    scheme: str,
    *,
    members: Sequence[str],
    dimension: int,
    options: SchemeOptions | None = None,
    share: float = 1.0,
    always: int = 0,
    absences: int = 0,
    **others: Any,
) -> Terms:
    """Return terms with the usual values where none are given, and without those that the scheme has no use for.

    `dimension` is that of whole vectors, of which a `share` below 1 leaves a part to each round. Across machines, the
    members of a run put up with ten `absences` each, over all rounds. Fields of the scheme's `options` may be given by
    name; of those of the sparse schemes, others take no notice.
    """
    kind = find_scheme(scheme).options
    known = () if kind is None else tuple(one.name for one in fields(kind))
    given = {name: others.pop(name) for name in {*known, *_SPARSE} if name in others}
    given = {name: value for name, value in given.items() if value is not None}
    if kind is not None:
        options = replace(options or kind(), **{name: given[name] for name in given.keys() & set(known)})
    elif given.get("minimum_per_position", 1) != 1:
        raise InputError(
            f"{scheme} adds whole vectors and does not count who changed a position; got minimum_per_position="
            f"{given['minimum_per_position']}. Use dphe or block-dphe."
        )
    if share != 1:
        others |= {"whole": dimension, "share": share, "always": always}
        dimension = Terms.share_size(dimension, share, always)
    return Terms(
        scheme=scheme,
        members=tuple(members),
        dimension=dimension,
        absences=absences or 10 * len(members),
        extra=b"" if options is None else options.to_bytes(),
        **others,
    )
