"""What the members of a run agree on: what is learned (`Task`), how updates are added up (`Sums`), what is proven
(`Privacy`).

A `Task` is data and never code: the kind of learner, its settings as plain JSON, public arrays, and the plan of noise
if there is one. It holds nothing of any member. Its digest is the `config` of the terms, to which everything that is
signed is bound, and seeds the one public schedule (`sums.support`): a run in one process and one across machines take
the same positions in the same round, under every scheme. `Task.terms` is the only place where fixed point, capacity,
schedule and quorum are computed; `Task.check` is what a member compares with the terms that it signs, the epsilon of
the noise included.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.data.sites import MIN_MEMBERS
from blindsight.dp.ledger import Ledger
from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.files import pack_arrays, unpack_arrays
from blindsight.statement import PrivacyStatement
from blindsight.sums import SchemeOptions, Terms
from blindsight.sums.dphe import DpheOptions
from blindsight.sums.masks import colluders
from blindsight.sums.noise import LARGEST_EPSILON, NoisePlan, noised
from blindsight.sums.scheme import Scheme, find_scheme
from blindsight.sums.statements import line
from blindsight.sums.support import BLOCK, Schedule
from blindsight.sums.terms import group_count, largest_integer, threshold
from blindsight.sums.twowave import TwoWaveOptions

if TYPE_CHECKING:  # a member learns by what a task makes
    from blindsight.rounds.member import Learner

Arrays = Mapping[str, NDArray[Any]]
Pair = tuple[NDArray[Any], NDArray[Any]]
Seed = int | np.random.Generator | None

SLOT_BITS = 32
_FINEST, _WIDE_FINEST = 24, 50  # fraction bits, of slots of up to 32 bits and of wider ones


def fraction_bits(members: int, largest: float, slot_bits: int = SLOT_BITS) -> int:
    """Return the finest fixed point, up to a limit, at which each member may send numbers up to `largest`.

    >>> fraction_bits(5, 64.0), fraction_bits(100, 64.0)
    (22, 18)
    """
    room = largest_integer(members, slot_bits) / largest
    finest = _FINEST if slot_bits <= SLOT_BITS else _WIDE_FINEST
    return min(finest, max(0, math.floor(math.log2(max(room, 1.0)))))


@dataclass(frozen=True, kw_only=True)
class Sums:
    """How updates are added up. The name of a scheme stands for ``Sums(scheme=name)``.

    scheme : "masks", "bfv", "dphe", "block-dphe", "plain", or another that is registered (`sums.SCHEMES`).
    share : of the numbers that a round is about, by a public schedule, the same for all members; 1: everything. None is
        the learner's usual; under schemes for sparse updates each member chooses what it sends.
    quorum : how many members a sum needs, at least 3.
    sample : how many members are asked in a round; 0: all.
    max_absences : how many of the members that were asked may be missing from the sums of a run, all rounds together,
        before the others stop; None: ten times the members, -1: any number.
    slot_bits : of the numbers that are added up.
    options : those of the scheme (`DpheOptions` for dphe and block-dphe), None: the usual.
    """

    scheme: str = "masks"
    share: float | None = None
    quorum: int = MIN_MEMBERS
    sample: int = 0
    max_absences: int | None = None
    slot_bits: int = SLOT_BITS
    options: SchemeOptions | None = None

    def __post_init__(self) -> None:
        kind = self.traits.options
        if self.options is not None and (kind is None or not isinstance(self.options, kind)):
            wanted = "none" if kind is None else kind.__name__
            raise InputError(f"options of {self.scheme} must be {wanted}; got {type(self.options).__name__}.")
        if self.share is not None and not 0 < self.share <= 1:
            raise InputError(f"share must be in (0, 1]; got {self.share}.")
        if self.quorum < MIN_MEMBERS:
            raise InputError(f"quorum must be at least {MIN_MEMBERS}; got {self.quorum}.")
        if self.sample and self.sample < self.quorum:
            raise InputError(
                f"sample={self.sample} is below the quorum of {self.quorum}; use sample=0 to ask all members."
            )
        if self.max_absences is not None and self.max_absences < -1:
            raise InputError(f"max_absences must be at least 0, or -1 for any number; got {self.max_absences}.")

    @classmethod
    def of(cls, sums: "str | Sums") -> "Sums":
        """Return sums; the name of a scheme stands for its usual ones."""
        if isinstance(sums, Sums):
            return sums
        if not isinstance(sums, str):
            raise InputError(f"sums must be the name of a scheme or Sums(...); got {type(sums).__name__}.")
        return cls(scheme=sums)

    @classmethod
    def sending(cls, scheme: str, *, sparsity: float | None = None, **options: Any) -> "Sums":
        """Return sums of which members do not send a share of `sparsity`: by a schedule, or by a scheme for that.

        `options` are those of schemes for sparse updates; None is the usual, and others take no notice of them.
        """
        kind = find_scheme(scheme).options
        if sparsity is not None and not 0 <= sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {sparsity}.")
        if kind is None:
            if options.get("minimum_per_position") not in (None, 1):
                raise InputError(
                    f"{scheme} adds whole vectors and does not count who changed a position; got minimum_per_position="
                    f"{options['minimum_per_position']}. Use dphe or block-dphe."
                )
            return cls(scheme=scheme, share=None if sparsity is None else 1 - sparsity)
        given = {name: value for name, value in {"sparsity": sparsity, **options}.items() if value is not None}
        return cls(scheme=scheme, options=kind(**given))

    def with_share(self, usual: float) -> "Sums":
        """Return these sums with the usual share, if none was named; under schemes for sparse updates there is none."""
        return self if self.share is not None or self.traits.sparse else replace(self, share=usual)

    @property
    def traits(self) -> Scheme:
        return find_scheme(self.scheme)

    @property
    def scheduled(self) -> bool:
        """Whether a round is about a part of the numbers, by a public schedule."""
        return self.share is not None and self.share < 1

    @property
    def selection(self) -> dict[str, Any]:
        """Which of its numbers a member sends: fields of the learners' settings."""
        if self.scheduled:
            return {"sparsify": "schedule", "sparsity": 0.0, "block_size": 1}
        if isinstance(chosen := self._options, DpheOptions) and self.share is None:
            kind = "blocks" if self.traits.packed else "topk"
            return {"sparsify": kind, "sparsity": chosen.sparsity, "block_size": self.block_size}
        return {"sparsify": "none", "sparsity": 0.0, "block_size": 1}

    @property
    def block_size(self) -> int:
        """How many consecutive numbers are sent together or not at all: as many as a plaintext of the scheme holds."""
        chosen = self._options
        if not isinstance(chosen, DpheOptions) or not self.traits.packed:
            return 1
        counting = int(chosen.minimum_per_position != 1)
        return chosen.block or SlotPacking.for_key(chosen.key_bits, slot_bits=self.slot_bits).slots - counting

    @property
    def _options(self) -> SchemeOptions | None:
        kind = self.traits.options
        return self.options if self.options is not None or kind is None else kind()

    def _for(self, dimension: int, *, dense: bool, noise: NoisePlan | None) -> SchemeOptions | None:
        """Return the options of a run whose updates, if `dense`, are not sparse."""
        chosen = self._options
        if isinstance(chosen, TwoWaveOptions):
            return chosen if noise is None else replace(chosen, rounds=noise.rounds)
        if not isinstance(chosen, DpheOptions):
            return chosen
        if noise is not None:
            if chosen.minimum_per_position > 1:
                raise InputError(
                    "with noise every number is in every round; got minimum_per_position="
                    f"{chosen.minimum_per_position}. Omit it."
                )
            chosen = replace(chosen, minimum_per_position=1)
        if chosen.capacity:
            return replace(chosen, capacity=min(chosen.capacity, dimension))
        kept, block = 1 - chosen.sparsity, min(self.block_size, dimension)
        if dense:
            capacity = dimension
        elif block == 1:
            capacity = max(1, math.ceil(kept * dimension - 1e-9))
        else:
            capacity = block * max(1, math.floor(kept * math.ceil(dimension / block) + 1e-9))
        return replace(chosen, capacity=min(dimension, capacity))


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What is to be proven of all rounds together, by noise inside the sums (`sums.noise`).

    epsilon, delta : the bound; delta is at most one over the number of members.
    unit : what is protected: one "record", or all that one "member" has.
    clip : the longest gradient of a record (None: 1), or update of a member.
    colluders, drop_outs : how many members may tell the server their noise, and miss a round; None: as many as masks
        withstand. A sum of fewer members is not opened.
    """

    epsilon: float
    delta: float
    unit: Literal["record", "member"]
    clip: float | None = None
    colluders: int | None = None
    drop_outs: int | None = None

    def __post_init__(self) -> None:
        if not 1e-6 <= self.epsilon <= LARGEST_EPSILON:
            raise InputError(f"epsilon must be in [1e-6, {LARGEST_EPSILON:g}]; got {self.epsilon}.")
        if not 1e-15 <= self.delta < 1:
            raise InputError(f"delta must be in [1e-15, 1); got {self.delta}.")
        if self.unit not in ("record", "member"):
            raise UnknownNameError("unit of privacy", str(self.unit), ("record", "member"))
        if self.unit == "member" and self.clip is None:
            raise InputError("unit='member' needs clip, the longest update that a member may send.")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise InputError(f"clip must be finite and above 0; got {self.clip}.")
        for name in ("colluders", "drop_outs"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise InputError(f"{name} must be at least 0; got {value}.")

    def plan(self, *, members: int, dimension: int, rounds: int, records: int, scheme: str) -> NoisePlan:
        """Return the noise for a number of members, the largest of whom has `records` records."""
        groups = group_count(members) if find_scheme(scheme).threshold else 1
        return NoisePlan.calibrated(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            clip=1.0 if self.clip is None else self.clip,
            members=members,
            drop_outs=members - threshold(members) if self.drop_outs is None else self.drop_outs,
            colluders=colluders(members // groups) if self.colluders is None else self.colluders,
            dimension=dimension,
            rounds=rounds,
            largest=largest_integer(members, SLOT_BITS),
            reach=float(max(records, 1)) if self.unit == "record" else 1.0,
            groups=groups,
        )

    def spend(self, ledger: Ledger, scope: str, plan: NoisePlan) -> None:
        """Charge a ledger for a whole run."""
        ledger.spend(
            plan.loss(self.delta),
            scope=scope,
            unit="record" if self.unit == "record" else "person",
            neighbours="add/remove",
            mechanism=str(plan),
            purpose="learning a classifier together",
        )


MakeLearner = Callable[["Task", Pair | None], "Learner"]

LEARNERS: dict[str, MakeLearner] = {}
"""What makes the learner of a task, by kind. Modules of `learn` register theirs when they are imported."""


def register_learner(kind: str, make: MakeLearner) -> None:
    """Make a kind of task known."""
    if LEARNERS.setdefault(kind, make) is not make:
        raise InputError(f"there is a kind of task {kind!r} already. Choose another name.")


class _TaskMessage(Message, name="rounds/task.1"):
    kind: Annotated[str, Limit(64)]
    document: Annotated[bytes, Limit(1 << 16)]
    arrays: bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """What is learned, as data.

    `settings` are the learner's own, as plain JSON, `arrays` what is public: rows, standardiser, classes. From `seed`
    every member derives its own for a round (`rounds.member.member_seed`). With `noise`, `delta` is what its epsilon is
    stated for.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict, repr=False)
    seed: int = 0
    noise: NoisePlan | None = None
    delta: float = 0.0

    @cached_property
    def digest(self) -> bytes:
        """What the terms of a run hold of its task, and what seeds the schedule."""
        return hashlib.sha256(self.to_bytes()).digest()

    @cached_property
    def _learner(self) -> "Learner":
        return self._made(None)

    def learner(self, validation: Pair | None = None) -> "Learner":
        """Return what learns it; with `validation` data, what scores models too."""
        return self._learner if validation is None else self._made(validation)

    def _made(self, validation: Pair | None) -> "Learner":
        if self.kind not in LEARNERS:
            raise UnknownNameError("kind of task", self.kind, LEARNERS)
        return LEARNERS[self.kind](self, validation)

    def terms(self, sums: Sums, *, run: str, members: Sequence[str]) -> Terms:
        """Return the terms of a run of this task."""
        learner, share = self.learner(), 1.0 if sums.share is None else sums.share
        dimension, whole = learner.size, dict[str, Any]()
        if share < 1:
            whole = {"whole": learner.size, "share": share, "always": learner.always}
            dimension = Schedule(learner.size, BLOCK, share, bytes(16), always=learner.always).size
        dense = sums.share is not None or self.noise is not None
        options = sums._for(dimension, dense=dense, noise=self.noise)
        self._check_shares(learner, share, options)
        quorum = sums.quorum
        if self.noise is not None:
            quorum = max(quorum, self.noise.members - self.noise.drop_outs)
        terms = Terms(
            scheme=sums.scheme,
            run=run,
            members=tuple(members),
            dimension=dimension,
            fraction_bits=0 if self.noise else fraction_bits(len(members), learner.largest, sums.slot_bits),
            slot_bits=sums.slot_bits,
            minimum=quorum,
            sample=sums.sample,
            absences=10 * len(members) if sums.max_absences is None else sums.max_absences,
            config=self.digest,
            extra=b"" if options is None else options.to_bytes(),
            **whole,
        )
        self.check(terms, colluders=0)  # who makes the plan chooses
        return terms

    def _check_shares(self, learner: "Learner", share: float, options: SchemeOptions | None) -> None:
        if share < 1 and self.noise is not None:
            raise InputError(f"with noise every number is in every round; got share={share}. Omit it.")
        if learner.additive:
            return
        if share < 1:
            raise InputError(f"a part of a model cannot be averaged; got share={share}. Use share=1.")
        if isinstance(options, DpheOptions) and options.minimum_per_position != 1:
            raise InputError(
                "a mean of models with withheld numbers is not a model. Use minimum_per_position=1, as published."
            )

    def check(self, terms: Terms, round: int | None = None, *, colluders: int | None = None) -> None:
        """Refuse terms that are not those of this task, or a round for which there is no noise left.

        What a member compares before it contributes: the vectors are those of the task, the schedule follows from its
        digest, and every sum carries the noise that was planned; the epsilon is computed from the terms. The noise must
        count on this many `colluders` at least; None: on as many as the scheme withstands.
        """
        learner = self.learner()
        if terms.config != self.digest:
            raise MessageError("the task of this run is not the one that was agreed on with its terms.")
        if (size := terms.whole or terms.dimension) != learner.size or (terms.whole and terms.always != learner.always):
            raise MessageError(f"this run adds vectors of {size} numbers; its task has {learner.size}.")
        if self.noise is None:
            return
        self.noise.check(terms, self.delta, colluders=colluders)
        if round is not None and not 1 <= round <= self.noise.rounds:
            raise PrivacyError(f"the noise is enough for {self.noise.rounds} rounds; got round {round}.")

    def statement(self, said: PrivacyStatement, terms: Terms, rounds: int) -> PrivacyStatement:
        """Return what a number of rounds protect, from what one sum does (`said`)."""
        added = line("every-round", rounds=rounds), line("sample-count")
        said = replace(said, not_protected=(*said.not_protected, *added))
        if terms.whole:
            cycle = Schedule(terms.whole, BLOCK, terms.share, bytes(16), always=terms.always).cycle
            everybody = (
                f"which {terms.dimension:,} of {terms.whole:,} weights a round is about, or fewer: a public schedule, "
                "the same for every member, which holds nothing private; every number that is opened is a sum over "
                "all contributors"
            )
            turns = f"weights take turns by a public schedule, all of them once in {cycle} rounds"
            said = replace(
                said, mechanism=f"{said.mechanism}; {turns}", who_sees={**said.who_sees, "everybody": everybody}
            )
        if self.noise is None:
            return said
        return noised(said, self.noise, delta=self.delta, scheme=terms.scheme)

    def to_bytes(self) -> bytes:
        """Return what members elsewhere need to learn."""
        document = {"settings": dict(self.settings), "seed": self.seed, "delta": self.delta}
        if self.noise is not None:
            document["noise"] = self.noise.to_dict()
        text = json.dumps(document, sort_keys=True, allow_nan=False).encode()
        arrays = {name: np.ascontiguousarray(self.arrays[name]) for name in sorted(self.arrays)}
        return encode(_TaskMessage(self.kind, text, pack_arrays(arrays)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; `MessageError` on anything else, and on what its learner cannot read."""
        message = decode(data, _TaskMessage)
        try:
            document = json.loads(message.document)
            noise = NoisePlan.from_dict(document["noise"]) if "noise" in document else None
            task = cls(
                kind=message.kind,
                settings=document["settings"],
                arrays=unpack_arrays(message.arrays),
                seed=document["seed"],
                noise=noise,
                delta=document["delta"],
            )
            if type(task.seed) is not int or task.seed < 0:
                raise InputError(f"seed must be a whole number of at least 0; got {task.seed!r}.")
            task.learner()
            if task.to_bytes() != data:
                raise MessageError("the task of this run is not written as tasks are.")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise MessageError(f"the task of this run cannot be understood: {error}") from None
        return task
