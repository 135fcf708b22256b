"""One round of secure averaging: our schemes beside python-paillier, TenSEAL and Flower's SecAgg+.

`dphe-round` is the DPHE paper's: 101 x 2048 weights, five users. What counts is the CPU time of one user's encryption,
the aggregation and the decryption, and what a user sends. A case is a whole round, or, where a ciphertext holds one
weight alone, the same round with a 32nd of the weights: then its figures are multiplied by 32. `masks-round` and
`simulated-members` go over Flower's messages, in one process.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.rounds import SLOT_BITS, MaskAnswer, MaskRound, MemberAnswer, Round, RoundAnswer
from benchmarks.results import Result
from benchmarks.table import Ask, Claim, Claims, Found, Table, Values, ratios
from blindsight.crypto.encoding import SlotPacking
from blindsight.errors import InputError

WEIGHTS, PART = 101 * 2048, 101 * 64
PAPER_BITS, KEY_BITS = 1024, (2048, 3072)
PAPER_SPARSITIES, SPARSITIES = (0.0, 79.1, 95.6), (0.0, 79.1, 90.0, 95.6)
GROWTH = (10_000, 100_000, 1_000_000)
SINGLE = ("python-paillier", "dphe")
DENSE = ("plain", "masks", "bfv", "TenSEAL-BFV", "TenSEAL-CKKS")
CROWD, CONSERVATIVE = "block-dphe-crowd", "block-dphe-conservative"
NARROW = {"block-dphe-24": 24, "block-dphe-16": 16}
_ALLOWED_ERROR = 1e-6


class Setting(NamedTuple):
    """What a figure is about: rounds of the same setting are compared, however many of their weights were measured."""

    weights: int
    sparsity: float = 0.0  # per cent
    key_bits: int = 2048
    shared: bool = False  # whether all users changed the same weights
    users: int = 5
    capacity: float = 0.1  # share of the weights that a user may change per shard

    def __str__(self) -> str:
        supports = f"{self.sparsity:g}% zero, {'shared' if self.shared else 'own'} supports"
        return supports if self.sparsity else "dense"


@dataclass(frozen=True)
class Case:
    """A setting, and how it is measured: by which methods, on how many of its weights, changed in which blocks."""

    setting: Setting
    methods: tuple[str, ...]
    weights: int
    block: int = 1
    slot_bits: int = SLOT_BITS

    @property
    def dataset(self) -> str:
        setting = self.setting
        parts = (
            f"{setting.weights}-weights",
            f"{setting.users}-users",
            "dense" if self.methods == DENSE else f"{setting.key_bits}-bits-{setting.sparsity:g}-zero",
            "shared" if setting.shared else "",
            "" if self.weights == setting.weights else f"part-{self.weights}",
            "" if self.slot_bits == SLOT_BITS else f"slots-{self.slot_bits}",
        )
        return "-".join(filter(None, parts))

    @property
    def task(self) -> Task:
        setting = self.setting
        of = "" if self.weights == setting.weights else f", a part of {setting.weights:,}"
        where = "the same" if setting.shared else "their own"
        unit = "weights" if self.block == 1 else f"blocks of {self.block}"
        changed = f"{where} {100 - setting.sparsity:g}% of the {unit}" if setting.sparsity else "all of them"
        said = f"{setting.users} users, {self.weights:,} weights{of}; they change {changed}."
        runs = 2 if setting.weights == WEIGHTS and setting.sparsity in (0, 90) else 1
        return Task(self.dataset, said, self.pose, self.methods, runs)

    def round(self, seed: int) -> Round:
        """Return what the methods are given."""
        setting, blocks = self.setting, -(-self.weights // self.block)
        return Round(
            users=tuple(f"user-{number}" for number in range(setting.users)),
            weights=self.weights,
            block=self.block,
            kept=math.floor((1 - setting.sparsity / 100) * blocks + 1e-9),
            shared=setting.shared,
            capacity=math.ceil(setting.capacity * self.weights),
            key_bits=setting.key_bits,
            whole=setting.weights,
            seed=seed,
            slot_bits=self.slot_bits,
        )

    def pose(self, seed: int) -> Problem:
        given = self.round(seed)
        return Problem(given, partial(score, self, given.total()))


CROWD_SETTING = Setting(GROWTH[-1], 99.0, users=100, capacity=0.01)


@cache
def cases(quick: bool) -> list[Case]:
    """Return all that is measured, or a little of each kind."""
    growth, crowd, part = [Setting(size, 90.0) for size in GROWTH], CROWD_SETTING, PART
    compared = [Setting(WEIGHTS, sparsity, PAPER_BITS) for sparsity in PAPER_SPARSITIES]
    for bits in KEY_BITS:
        compared += [Setting(WEIGHTS, sparsity, bits) for sparsity in SPARSITIES]
        compared.append(Setting(WEIGHTS, 90.0, bits, shared=True))
    if quick:
        compared = [Setting(PART, 79.1, PAPER_BITS), Setting(PART, 90.0), Setting(PART, 90.0, shared=True)]
        growth, crowd, part = (
            [Setting(size, 90.0) for size in (1_000, 10_000)],
            crowd._replace(weights=20_000),
            PART // 4,
        )
    found = [Case(Setting(compared[0].weights), DENSE, compared[0].weights)]
    for setting in compared:
        found += [Case(setting, SINGLE, part), _in_blocks(setting, "block-dphe", CONSERVATIVE)]
        if setting.sparsity == 90 and setting.key_bits > PAPER_BITS:
            found += [_in_blocks(setting, name, slot_bits=bits) for name, bits in NARROW.items()]
    return [*found, *(_in_blocks(setting, "block-dphe") for setting in growth), _in_blocks(crowd, CROWD)]


def _in_blocks(setting: Setting, *methods: str, slot_bits: int = SLOT_BITS) -> Case:
    slots = SlotPacking.for_key(setting.key_bits, slot_bits=slot_bits).slots
    return Case(setting, methods, setting.weights, slots, slot_bits)


def score(case: Case, truth: NDArray[np.float64], answer: RoundAnswer) -> dict[str, float]:
    """Return seconds and megabytes of the whole round, after a check that the sum is right."""
    places, total = answer["places"], answer["total"]
    if not len(places) or np.shape(total) != np.shape(places):
        raise InputError(f"a sum has one weight per place; got shape {np.shape(total)} for {np.shape(places)} places.")
    error = float(np.max(np.abs(total - truth[places])))
    if not error <= _ALLOWED_ERROR:
        raise InputError(f"the sum is wrong by up to {error:.3g}; {_ALLOWED_ERROR:g} is allowed.")
    scale = case.setting.weights / case.weights
    figures = {step: scale * amount / share for step, (amount, share) in answer["seconds"].items()}
    figures["table"] = answer["seconds"]["table"].amount if "table" in figures else 0.0  # the same for a part
    figures["encrypt"] += figures["table"]
    figures["megabytes"] = scale * answer["sent"].amount / answer["sent"].share / 1e6
    figures["share"] = min(share for _, share in answer["seconds"].values()) / scale
    return figures | {"error": error, "peak megabytes": answer["peak_bytes"] / 1e6}


PAPER = {0.0: 620, 79.1: 186, 95.6: 62}  # Table 2: seconds of encryption by sparsity
EVERYWHERE = "python-paillier-all-places"
_TOTAL = ("encrypt", "aggregate", "decrypt")
KNOWN = {case.dataset: case for quick in (False, True) for case in cases(quick)}


def _place(setting: Setting, method: str) -> Ask:
    """Return where a method's results in a setting are; nowhere, if it was not asked."""
    named = "python-paillier" if method == EVERYWHERE else method
    places = (dataset for dataset, case in KNOWN.items() if case.setting == setting and named in case.methods)
    return {"dataset": next(places, ""), "method": method}


def _totalled(found: Found) -> Found:
    """Add up every round; python-paillier's is there once more with all places decrypted, as published."""
    made = []
    for r in found:
        key = "dense schemes" if r.method in DENSE else f"{KNOWN[r.dataset].setting.key_bits}-bit keys"
        scores = {r.method: r.score}
        if r.method == "python-paillier":
            scores[EVERYWHERE] = {**r.score, "decrypt": r.score["decrypt all"]}
        for method, score in scores.items():
            total = {**score, "total": sum(map(score.__getitem__, _TOTAL))}
            made.append(replace(r, method=method, arguments={"key": key}, score=total))
    return Found(made)


def _ratio(above: tuple[Setting, str], below: tuple[Setting, str], figure: str = "total") -> Callable[[Found], Values]:
    return lambda found: ratios(_totalled(found)(**_place(*above)), _totalled(found)(**_place(*below)), figure)


def _claims() -> list[Claim]:
    made = []
    for bits, least in zip(KEY_BITS, (12, 15), strict=True):
        peer, ours = ((Setting(WEIGHTS, 90.0, bits), method) for method in SINGLE)
        said = f"{bits} bits, encryption a value: python-paillier / dphe"
        made.append(Claim(said, _ratio(peer, ours, "encrypt"), least))
    for bits, shared in ((bits, shared) for bits in KEY_BITS for shared in (False, True)):
        setting, least = Setting(WEIGHTS, 90.0, bits, shared), 300 if bits == 2048 and not shared else 600
        ours, where = (setting, "block-dphe"), f"{bits} bits, {setting}"
        for other, what in (("python-paillier", "touched"), (EVERYWHERE, "all")):
            ratio = _ratio((setting, other), ours)
            made.append(Claim(f"{where}: python-paillier, {what} places / block-dphe", ratio, least))
        made += [Claim(f"{where}: block-dphe / {name}", _ratio(ours, (setting, name)), 1.3) for name in NARROW]
        sent = {**_place(*ours), "figure": "megabytes"}
        made.append(Claim(f"{where}: block-dphe, megabytes a user", sent, most=0.2))
    dense = (Setting(WEIGHTS), "bfv"), (Setting(WEIGHTS), "TenSEAL-BFV")
    large, small = ((Setting(size, 90.0), "block-dphe") for size in GROWTH[:0:-1])
    peak = {**_place(CROWD_SETTING, CROWD), "figure": "peak megabytes"}
    return [
        *made,
        Claim("bfv / TenSEAL's BFV", _ratio(*dense), most=1.3),
        Claim("block-dphe, 1,000,000 / 100,000 weights", _ratio(large, small), most=11),
        Claim("block-dphe, 1,000,000 weights of 100 users, peak megabytes", peak, most=2000),
    ]


def _share(found: Found) -> str:
    share = min(found.of("share"), default=0.0)
    return "-" if not share else "all" if share == 1 else f"{100 * share:.2g}%"


def _each(result: Result) -> float:
    """Return microseconds for each weight that a user changed."""
    setting = KNOWN[result.dataset].setting
    return 1e6 * result.score["total"] / (setting.weights * (1 - setting.sparsity / 100))


_PAPER_ROWS = {
    (sparsity, method): f"{sparsity:g}% zero: {method}" for sparsity in PAPER for method in (*SINGLE, "block-dphe")
}


DPHE_ROUND = Benchmark(
    name="dphe-round",
    title="One round of encrypted averaging (DPHE, Table 2)",
    tasks=lambda settings: [case.task for case in cases(settings.quick)],
    methods=(
        *(Method(scheme, "rounds:dense", {"scheme": scheme, "rounds": 5}) for scheme in ("plain", "masks", "bfv")),
        Method("TenSEAL-BFV", "rounds:by_tenseal", {"scheme": "bfv", "degree": 4096, "rounds": 5}),
        Method("TenSEAL-CKKS", "rounds:by_tenseal", {"scheme": "ckks", "degree": 8192, "rounds": 5}),
        Method("python-paillier", "rounds:python_paillier", {"values": 32}),
        Method("dphe", "rounds:sparse", {"blocks": False}),
        Method("block-dphe", "rounds:sparse", {"blocks": True}),
        Method(CONSERVATIVE, "rounds:sparse", {"blocks": True, "keys": "conservative"}),
        *(Method(name, "rounds:sparse", {"blocks": True}) for name in NARROW),
        Method(CROWD, "rounds:crowd"),
    ),
    tables=(
        Claims("Targets", _claims(), ("reached", "missed"), "The targets are for the full size alone."),
        Table(
            "Table 2 of the paper: one user's encryption with a 1024-bit key (seconds)",
            {said: _place(Setting(WEIGHTS, s, PAPER_BITS), method) for (s, method), said in _PAPER_ROWS.items()},
            note="The paper's column is the same for all: it used python-paillier.",
            digits=1,
            common={"figure": "encrypt"},
            paper={said: PAPER[sparsity] for (sparsity, _), said in _PAPER_ROWS.items()},
        ),
        Table(
            "A round (CPU seconds), {}",
            "dataset method",
            " | | encrypt, a user = encrypt | (table) = table | aggregate = aggregate | decrypt = decrypt | "
            "total = total | MB a user = megabytes",
            "Where less than all was measured, the figures are extrapolated in proportion. `all-places` has all places "
            "decrypted, as published. In a round of 100 users every contribution is made, added up and dropped before "
            "the next; the peak is that of the process, which all roles share, and was looked at there alone.",
            more={
                "microseconds a non-zero": {"figure": _each},
                "measured": {"values": _share},
                "peak MB": {"figure": "peak megabytes", "form": lambda values: values if any(values) else "-"},
            },
            each="key",
            of=_totalled,
        ),
    ),
    notes=(
        "The paper times the encryption alone, with a 1024-bit key, on one CPU of a MacBook Pro (2.9 GHz Core i7). "
        "Ours are CPU seconds on the machine below; keys of 1024 bits serve that comparison only.",
        "The weights are random numbers here, classifiers there; the cost of a round does not depend on them.",
        "A user sends a tenth of the weights per shard, as in the paper (M): 10, 3, 1 and 1 shards at 0, 79.1, 90 and "
        "95.6% zeros. So 95.6% costs as much as 90%.",
        "python-paillier is measured on a few places, `dphe` on a 32nd of the weights, and both are extrapolated in "
        "proportion; everything else is measured whole.",
        "python-paillier and `dphe` encrypt weight by weight, zeros anywhere; `block-dphe` encrypts blocks of 63 "
        "weights (95 at 3072 bits), zeros in whole blocks.",
        "Our keys are subgroup keys, but for `block-dphe-conservative`. `block-dphe-24` and `-16` have slots of 24, 16 "
        "bits, 85 and 127 of them at 2048 bits: weights below 1/4 keep 20 and 14 fraction bits.",
        "Users with supports of their own touch up to five tenths of all places together (41%), users with shared "
        "supports a tenth. The paper decrypts all places.",
        "`dphe` packs 63 (95) sums into one ciphertext before they are decrypted: that is its aggregation's time.",
        "Encryption includes the table that a user makes once per key, as if there were a single round. Key generation "
        "and other set-up are not counted for anyone.",
        "TenSEAL's BFV has the parameters of our `bfv`; it neither signs nor checks anything.",
        "All sums are checked. All are exact but those of CKKS, which err by less than 1e-6.",
    ),
    runs=2,
)


MEMBERS = 3
SIZES = {"1M": 1_000_000, "10M": 10_000_000}
NAMES = {"masks": "Blindsight, masks", "SecAggPlus": "Flower, SecAgg+", "FedAvg": "Flower, FedAvg in the clear"}
SIMULATED, SIMULATED_WEIGHTS = (10, 100, 1000), 10_000


def _masked(sizes: dict[str, tuple[int, int]]) -> list[Task]:
    """Pose rounds of so many members and weights, by name."""
    said = "{1:,} random weights of {0:,} members."
    return [Task(name, said.format(*size), partial(_pose, *size)) for name, size in sizes.items()]


def _simulated(settings: Settings) -> list[Task]:
    """Pose ten members to a quick run, up to a thousand to a full one."""
    most = 10 if settings.quick else 1000 if settings.full else 100
    return _masked({f"{members}": (members, SIMULATED_WEIGHTS) for members in SIMULATED if members <= most})


def _pose(members: int, weights: int, seed: int) -> Problem:
    given = MaskRound(members, weights, seed)
    return Problem(given, partial(score_average, given))


def score_average(given: MaskRound, answer: MaskAnswer) -> dict[str, float]:
    """Return the CPU seconds of rounds, after a check that the average is right to 1e-5."""
    right = np.mean([given.update(member).astype(np.float64) for member in range(given.members)], axis=0)
    error = float(np.max(np.abs(answer["average"] - right)))
    if not error < 1e-5:
        raise InputError(f"the average is wrong by {error:g}.")
    return {"seconds": answer["seconds"], "first": answer["first"], "error": error}


def _against(other: str, found: Found) -> Values:
    return ratios(found(method=other), found(method="masks"), "seconds")


MASKS_ROUND = Benchmark(
    name="masks-round",
    title="One round of secure averaging: masks, SecAgg+, FedAvg",
    tasks=lambda settings: _masked({n: (MEMBERS, size // (100 if settings.quick else 1)) for n, size in SIZES.items()}),
    methods=(
        Method("masks", "rounds:blindsight", {"rounds": 2}),
        Method("SecAggPlus", "rounds:secagg_plus", {"rounds": 2}),
        Method("FedAvg", "rounds:fedavg", {"rounds": 2}),
    ),
    tables=(
        Table(
            "CPU seconds of a round, all members and the server",
            {f"{size}: {said}": {"dataset": size, "method": name} for size in SIZES for name, said in NAMES.items()},
            digits=3,
            common={"figure": "seconds"},
        ),
        Table(
            "Ratios in the same run",
            {
                f"{size}: {NAMES[other]} / masks": {"dataset": size, "values": partial(_against, other)}
                for size in SIZES
                for other in ("SecAggPlus", "FedAvg")
            },
            digits=2,
        ),
    ),
    notes=(
        "Aims: 0.6 CPU seconds at a million weights, 6 at ten million.",
        "All go over Flower's messages, serialised as on a network, in one process. Masks include signatures of every "
        "message, the signed round on who dropped out and state on disk, which SecAgg+ has not.",
    ),
)

COHORT = 50
MEMBER_CASES = {
    "10, 10k": (10, 10_000),
    "50, 10k": (50, 10_000),
    "50, 200k": (50, 200_000),
    "1000, 10k": (1000, 10_000),
}
MEMBER_NAMES = {"two-wave-masks": "two waves", "masks": "masks", "SecAggPlus": "Flower's SecAgg+", "floor": "floor"}


def _crowds(settings: Settings) -> list[Task]:
    """Pose ten members to a quick run; SecAgg+ shares all with all, so no thousand of them."""
    return [
        Task(
            name.replace(", ", "-"),
            f"{weights:,} random weights of {members:,} members, in cohorts of {min(members, COHORT)}.",
            partial(_pose_members, members, weights),
            tuple(method for method in MEMBER_NAMES if members <= 2 * COHORT or method != "SecAggPlus"),
        )
        for name, (members, weights) in MEMBER_CASES.items()
        if members <= (10 if settings.quick else 1000)
    ]


def _pose_members(members: int, weights: int, seed: int) -> Problem:
    given = MaskRound(members, weights, seed)
    return Problem(given, partial(score_members, given))


def score_members(given: MaskRound, answer: MemberAnswer) -> dict[str, float]:
    """Return milliseconds and kilobytes, after a check that the average is right to 1e-5."""
    right = np.mean([given.update(member).astype(np.float64) for member in range(given.members)], axis=0)
    error = float(np.max(np.abs(answer["average"] - right)))
    if not error < 1e-5:
        raise InputError(f"the average is wrong by {error:g}.")
    return {name: answer[name] for name in ("member", "aggregator", "up", "down")} | {"error": error}


def _of_waves(other: str, figure: str, found: Found) -> Values:
    return ratios(found(method=other), found(method="two-wave-masks"), figure)


MASKS_MEMBERS = Benchmark(
    name="masks-members",
    title="What a round of masked sums costs one member",
    tasks=_crowds,
    methods=(
        Method("two-wave-masks", "rounds:session_members", {"scheme": "two-wave-masks", "rounds": 2}),
        Method("masks", "rounds:session_members", {"scheme": "masks", "rounds": 2}),
        Method("SecAggPlus", "rounds:secagg_members"),
        Method("floor", "rounds:floor_members", {"cohort": COHORT}),
    ),
    tables=(
        Table(
            "A round after the first",
            "dataset method",
            "members, weights and scheme | | CPU ms, a member = member | CPU ms, aggregator = aggregator",
            more={
                f"KB {way} beside the vector": {"figure": way, "form": lambda values: values if any(values) else "-"}
                for way in ("up", "down")
            },
        ),
        Table(
            "Ratios in the same run, to two waves",
            {
                f"{case}: {MEMBER_NAMES[other]}, {said}": {
                    "dataset": case.replace(", ", "-"),
                    "values": partial(_of_waves, other, figure),
                }
                for case in MEMBER_CASES
                for other in ("masks", "SecAggPlus", "floor")
                if case[:4] != "1000" or other != "SecAggPlus"
                for figure, said in (("member", "a member"), ("aggregator", "aggregator"))
            },
            digits=2,
        ),
    ),
    notes=(
        "Aims, CPU ms a member: 2 (10 members, 10k weights), 7 (50, 10k), 14 (50, 200k), 7 (1000, 10k); the aggregator "
        "70 at 50, 10k; at most 165 KB up and 85 down at 50.",
        "Ours in one process, without a network or a disk: every signature, check and encoding of messages counts, and "
        "a member's reading of the answer. SecAgg+ signs nothing; all share with all, and its aggregator is what "
        "the workflow does outside of the grid. The floor is one key agreement a peer and the streams of the masks.",
    ),
    runs=2,
)

SIMULATED_MEMBERS = Benchmark(
    name="simulated-members",
    title="Virtual members over Flower's messages",
    tasks=_simulated,
    methods=(
        Method("masks", "rounds:blindsight", {"rounds": 1}),
        Method("FedAvg", "rounds:fedavg", {"rounds": 1}),
    ),
    tables=(
        Table(
            "CPU seconds of a round, all members and the server",
            "dataset method",
            "members | | first round, with everybody's set-up = first | a later round = seconds",
            more={"a later round, each member": {"figure": lambda r: r.score["seconds"] / int(r.dataset)}},
        ),
    ),
    notes=(
        "Every member has an identity, signs, seals and keeps its state on disk; all messages are serialised as on a "
        "network. From 100 members on masks are shared within groups of at least 50. One process, so no time is spent "
        "on waiting, polling or starting processes.",
    ),
    runs=1,
)
