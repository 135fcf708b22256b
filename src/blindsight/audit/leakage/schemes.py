"""Attacks on what an aggregator receives: a round of each scheme is played or was recorded, and is read.

A plain update must give its sample away (the attack works; a part of an update shows a part), and the aggregator of an
encrypted or masked round must do no better than chance, in the values it guesses and in the places it sees. The
attacker is generous: it knows every format, undoes the permutation phi^(n) that the aggregator shares with each member,
and reads whatever is left as numbers in every way that could make sense: single bytes, 32-bit integers of either byte
order at every alignment, from every start near the front of a message and in consecutive stretches behind it; for DPHE
also one number per ciphertext, or its bytes as the weights of its block, at the places they were sent for. It is told
which of its guesses is the best, its sign and its length; so what fails here fails for want of information, not of
luck. The sum that everybody gets is not among them (`study` measures what that tells).

No finite test proves a cipher. What is proven is in the statements of the schemes; what is tested here is that the
messages of this implementation give away nothing that simple means could see: a forgotten mask, a value in the clear,
places in the order of the model.

*A recorded view* (`attack_view`) has no set-up and may be of a real run, so that updates cannot be sent in disguise.
What of its messages can depend on an update are their fields of bytes, without names, numbers and the frames around
them: names differ in length from owner to owner and shift everything behind them. (The places of DPHE, which lie in a
shard in ascending order, are left out: what they tell is tested where the set-up is known.) What
all messages have in common says nothing either, so guesses and updates are taken less those of another owner: a guess
is right if it tells how two owners differ. Chance is the same score with the signs of the difference drawn at random.

    Claim. If the messages are independent of the updates, and exchanging an entry of one owner's guesses for the
    other's does not change their distribution, p = (1 + scores of chance at least as large) / (1 + trials) has
    P(p <= alpha) <= alpha.
    Proof. The exchange turns the sign of an entry of the guesses' difference around, which gives the same score as
    turning that of the updates' around; so the true score and the `trials` others have one distribution. []

That is for guesses without a byte in common. Of overlapping ones the scores are correlated, and under drawn signs less
so than under the truth; the largest of correlated normal scores is no larger than that of independent ones (Sidak, JASA
1967), so they make alarms rarer: of 435 tests in sound rounds with updates of one sign 2% had p <= 0.05.

Ciphertexts and masked updates are such: both owners' bytes are draws of one distribution, independent of each other and
of the bytes beside them. An owner that cannot be compared with any other is not tested, and not among the results.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.finding import Finding, Verdict, exactly
from blindsight.audit.leakage.networks import recover_layer_input
from blindsight.audit.leakage.recovery import (
    RECOVERED,
    Candidate,
    ChanceTest,
    Disguise,
    Loss,
    Recovery,
    Vector,
    gradient_step,
    needed_trials,
    places_test,
    recover_sample,
    signs_test,
    values_test,
)
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import Message, decode
from blindsight.errors import InputError, MessageError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.rounds.member import top_entries
from blindsight.selective.codec import ParameterLayout
from blindsight.sums import OWN_SCHEMES, SCHEMES
from blindsight.sums.dphe import Layout, Shards, layout_of
from blindsight.sums.masks import Advertisement, Reveal, SealedShares
from blindsight.sums.messages import Receipt, Reply, Roster, RosterMessage, Setup
from blindsight.sums.session import Session, open_session
from blindsight.sums.terms import AGGREGATOR, Terms

OWNERS = ("ann", "bob", "cem")
LEARNING_RATE = 0.1
PENALTY = 1e-4
KEPT = 0.1  # of a sparse update
_SAMPLES = 6  # of an owner who sends an average
_HIDDEN = 4

Attack = Callable[[Vector], Recovery]


@dataclass(frozen=True, eq=False)
class Case:
    """What each owner sends, what it was made from, and the attack that takes an update back to that."""

    name: str
    updates: Mapping[str, Vector]
    samples: Mapping[str, Vector]
    attack: Attack
    kept: float = 1.0
    """Which share of their update's entries owners send."""

    @property
    def victim(self) -> str:
        """The first owner, whose update is attacked."""
        return next(iter(self.updates))

    @property
    def sample(self) -> Vector:
        """The victim's sample."""
        return self.samples[self.victim]

    @property
    def dimension(self) -> int:
        """How many numbers an update has."""
        return self.updates[self.victim].size


def leaky_cases(
    samples: ArrayLike, *, random_state: int | np.random.Generator | None, owners: tuple[str, ...] = OWNERS
) -> tuple[Case, ...]:
    """Return the cases on private samples, one per row: hinge, logistic and sparse hinge steps, average, network."""
    rows = np.asarray(samples, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < _SAMPLES * len(owners):
        raise InputError(f"the cases take {_SAMPLES * len(owners)} samples or more, one per row; got {rows.shape}.")
    generator = science(random_state)
    private = rows[generator.permutation(len(rows))[: _SAMPLES * len(owners)]].reshape(len(owners), _SAMPLES, -1)
    # Margins of these weights stay well below one, as those of a classifier that has yet to learn something.
    size = private.shape[2]
    weights = generator.normal(size=size) * 0.3 / np.sqrt(size) / np.mean(np.linalg.norm(rows, axis=1))
    labels = generator.choice([-1, 1], size=len(owners))
    return (
        _linear_case("hinge", owners, private[:, :1], labels, weights),
        _linear_case("logistic", owners, private[:, :1], labels, weights, loss="logistic"),
        _sparse(_linear_case("sparse hinge", owners, private[:, :1], labels, weights)),
        _linear_case("average of one class", owners, private, [-1] * len(owners), weights, label=-1),  # Eq. 5
        _network_case(owners, private, labels, generator),
    )


def _linear_case(
    name: str,
    owners: tuple[str, ...],
    private: NDArray[np.float64],
    labels: ArrayLike,
    weights: Vector,
    *,
    loss: Loss = "hinge",
    label: int | None = None,
) -> Case:
    """Every owner makes one step on the mean loss of its samples, all of one class, which the attacker may know.

    What can come back is the mean of those not classified well: of a single sample, the sample.
    """
    updates, means = {}, {}
    step: dict[str, Any] = {"loss": loss, "learning_rate": LEARNING_RATE, "penalty": PENALTY}
    for owner, samples, sign in zip(owners, private, np.asarray(labels), strict=True):
        updates[owner] = gradient_step(weights, samples, [sign] * len(samples), **step) - weights
        means[owner] = samples[(sign * (samples @ weights) <= 1) | (len(samples) == 1)].mean(axis=0)

    def attack(update: Vector) -> Recovery:
        return recover_sample(weights, weights + update, LEARNING_RATE, PENALTY, loss=loss, label=label)

    return Case(name, updates, means, attack)


def _sparse(case: Case) -> Case:
    """Every owner sends the largest entries only."""
    sparse = {owner: np.where(top_entries(update, KEPT), update, 0.0) for owner, update in case.updates.items()}
    return replace(case, updates=sparse, kept=KEPT)


def _network_case(
    owners: tuple[str, ...], private: NDArray[np.float64], labels: NDArray[np.int64], generator: np.random.Generator
) -> Case:
    """Every owner makes one step of SGD on a network with one hidden layer, from one sample."""
    size = private.shape[2]
    layout = ParameterLayout.of(
        [
            ("hidden.weight", (_HIDDEN, size)),
            ("hidden.bias", (_HIDDEN,)),
            ("last.weight", (1, _HIDDEN)),
            ("last.bias", (1,)),
        ]
    )
    first, last = generator.normal(size=(_HIDDEN, size)) / np.sqrt(size), generator.normal(size=_HIDDEN)
    updates = {
        owner: -LEARNING_RATE * _network_gradient(first, last, samples[0], int(label))
        for owner, samples, label in zip(owners, private, labels, strict=True)
    }

    def attack(update: Vector) -> Recovery:
        found = recover_layer_input(update, layout)
        return Recovery((Candidate(found.sample, None, LEARNING_RATE),))

    return Case("network, batch of one", updates, dict(zip(owners, private[:, 0], strict=True)), attack)


def _network_gradient(first: NDArray[np.float64], last: Vector, sample: Vector, label: int) -> Vector:
    """Return the gradient of log(1 + exp(-y f(x))), f(x) = last.tanh(first x), biases zero, in the layout's order."""
    hidden = np.tanh(first @ sample)
    slope = -label / (1 + np.exp(label * (last @ hidden)))
    back = slope * last * (1 - hidden**2)
    return np.concatenate([np.outer(back, sample).ravel(), back, slope * hidden, [slope]])


_STARTS = 64  # how many starts are tried near the front of a message
_STRETCHES = 32  # and how many consecutive stretches behind it, at each alignment
_KINDS = ("i1", "<i4", ">i4")
_FRAME = 256  # of compressed ciphertexts: lengths, and the tables of the compression
_MESSAGES: tuple[type[Message], ...] = (Reply, Signed, Receipt, Shards, Advertisement, SealedShares, Reveal)

Payloads = dict[str, list[bytes]]
"""By the name of a field, what one owner sent in it, message by message."""


class Recorder:
    """Keeps the messages that the aggregator receives; give it to `open_session` as `record`."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.received: list[bytes] = []

    def __call__(self, party: str, message: bytes) -> None:
        """Note a message if it is the aggregator's."""
        if party == AGGREGATOR:
            self.received.append(message)

    def forget_rounds(self) -> None:
        """Keep only the set-up: a round's messages are read with it."""
        self.received = [message for message in self.received if is_message(message, Setup)]


@dataclass(frozen=True, eq=False)
class OwnerGuesses:
    """Guesses of one owner's update, a row each, unscaled; and the blocks its messages name, if they name any."""

    rows: NDArray[np.float64]
    places: NDArray[np.int64] | None
    block: int

    def __repr__(self) -> str:
        return f"<OwnerGuesses: {len(self.rows)}, hidden>"


def guesses_from_view(received: Sequence[bytes], owner: str, dimension: int) -> OwnerGuesses:
    """Return all guesses of an update with so many weights from what an aggregator received in one round."""
    replies = [decode(message, Reply) for message in received if author(message) == owner]
    if not replies:
        raise InputError(
            f"the aggregator's view has no message of {owner!r}. Record the round: open_session(..., record=...)."
        )
    rows = [row for reply in replies for part in (reply.receipt, reply.body) for row in stretches(part, dimension)]
    setups = [decode(message, Setup) for message in received if is_message(message, Setup)]
    terms = [Terms.from_bytes(decode(setup.roster, RosterMessage).terms) for setup in setups]
    if not terms or not terms[0].sparse:
        return OwnerGuesses(_stacked(rows, dimension), None, 1)
    layout = layout_of(terms[0])
    sent = [_shards(reply, setups[0], layout, owner) for reply in replies]
    for number in (0, 1):  # the places as they were sent, and with phi^(n) undone
        rows += _placed([(where[number], ciphertexts) for where, ciphertexts in sent], layout)
    places = np.concatenate([where[1] for where, _ in sent])
    return OwnerGuesses(_stacked(rows, dimension), places, layout.slots)


def author(message: bytes) -> str | None:
    """Return who made a reply; None if it is none."""
    try:
        return decode(decode(message, Reply).receipt, Signed).author
    except MessageError:
        return None


def stretches(message: bytes, dimension: int) -> Iterator[NDArray[np.float64]]:
    """Read stretches of a message as numbers of every kind."""
    for kind in _KINDS:
        size = np.dtype(kind).itemsize
        for shift in range(size):
            usable = message[shift : shift + (len(message) - shift) // size * size]
            numbers = np.frombuffer(usable, dtype=kind).astype(np.float64)
            last = numbers.size - dimension
            starts = {*range(min(_STARTS, last + 1)), *range(0, last + 1, dimension), max(last, 0)}
            for start in sorted(starts)[: _STARTS + _STRETCHES]:
                if start <= last:
                    yield numbers[start : start + dimension]


Placed = tuple[NDArray[np.int64], NDArray[np.uint8]]
"""Blocks, and for each the bytes of its ciphertext."""


def _shards(
    reply: Reply, setup: Setup, layout: Layout, owner: str
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.uint8]]:
    """Return the places of a contribution as they were sent and as phi K (Eq. 8), and its ciphertexts."""
    round, shards = decode(decode(reply.receipt, Signed).body, Receipt).round, decode(reply.body, Shards)
    secret = dict(zip(layout.terms.members, setup.own, strict=True))[owner]
    own = layout.permutations(Roster.from_bytes(setup.roster, expected=layout.terms)).own(secret, owner, round)
    places = shards.places.ravel()
    return (places, own.backward(places)), shards.ciphertexts.reshape(places.size, -1)


def _placed(shards: list[Placed], layout: Layout) -> list[NDArray[np.float64]]:
    """Return guesses that take a ciphertext for its block: its leading bytes as one number, or its bytes as weights."""
    numbers, weights = np.zeros((2, layout.blocks, layout.slots))
    for places, ciphertexts in shards:
        numbers[places] = ciphertexts[:, :1].astype(np.float64) - 127.5
        wide = np.ascontiguousarray(ciphertexts[:, ::-1][:, : 4 * layout.slots]).view("<i4")  # little-endian slots
        weights[places, : wide.shape[1]] = wide
    return [numbers.ravel()[: layout.terms.dimension], weights.ravel()[: layout.terms.dimension]]


def _stacked(rows: list[NDArray[np.float64]], dimension: int) -> NDArray[np.float64]:
    """Return the guesses that are not all zero, one row each."""
    kept = [row for row in rows if row.any()]
    return np.array(kept) if kept else np.zeros((1, dimension))


# Two owners' messages, field by field


def owner_payloads(received: Iterable[bytes], owner: str) -> Payloads:
    """Return what an owner sent, of all that an aggregator received."""
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for message in received:
        if author(message) == owner:
            for field, data in _leaves(message):
                found[field].append(data)
    return dict(found)


def differences(one: Payloads, other: Payloads, dimension: int) -> NDArray[np.float64]:
    """Return guesses of how two owners' updates differ, a row each: no rows if nothing that they sent is long enough.

    Of fields that differ in length, as compressed ciphertexts do, the front and the end are left out, which tell how
    long they are.
    """
    rows = []
    for part in one:
        for mine, theirs in zip(one[part], other.get(part, ()), strict=False):
            both = (mine, theirs) if len(mine) == len(theirs) else _cut(mine, theirs)
            left, right = (stretches(data, dimension) for data in both)
            rows += [guess - another for guess, another in zip(left, right, strict=True)]
    return np.array(rows).reshape(-1, dimension)


def _leaves(message: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of a message and of the messages within."""
    found = decode(message, *_MESSAGES)
    for part in fields(found):  # type: ignore[arg-type]
        data = _bytes_of(getattr(found, part.name))
        if data is None or (isinstance(found, Shards) and part.name == "places"):
            continue
        if is_message(data, *_MESSAGES):
            yield from _leaves(data)
        else:
            yield f"{type(found).__name__}.{part.name}", data


def _bytes_of(value: Any) -> bytes | None:
    """Return a field as bytes; None if it holds names or a number."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, tuple) and all(isinstance(item, bytes) for item in value):
        return b"".join(value)
    return None


def is_message(data: bytes, *kinds: type[Message]) -> bool:
    """Tell whether bytes are a message of one of these kinds."""
    try:
        decode(data, *kinds)
    except MessageError:
        return False
    return True


def _cut(mine: bytes, theirs: bytes) -> tuple[bytes, bytes]:
    until = max(min(len(mine), len(theirs)) - _FRAME, _FRAME)
    return mine[_FRAME:until], theirs[_FRAME:until]


def attack_view(
    received: Sequence[bytes],
    sent: Mapping[str, Vector],
    *,
    false_alarm: float = 0.01,
    random_state: int | np.random.Generator | None = None,
) -> dict[str, ChanceTest]:
    """Test guesses of every owner's update from what the aggregator received in one round; `sent` is the truth.

    `false_alarm` is the probability with which any of the tests calls chance a leak; the cost grows with its inverse.
    """
    updates = {owner: np.asarray(update, dtype=np.float64) for owner, update in sent.items()}
    victims = [owner for owner, update in updates.items() if update.any()]
    if not victims:
        raise InputError("every owner of the recorded round sent zeros: there is nothing to find out.")
    generator, rate = science(random_state), false_alarm / len(victims)
    needed_trials(rate)
    payloads = {owner: owner_payloads(received, owner) for owner in updates}
    tests = {}
    for owner in victims:
        compared = _compared(owner, updates, payloads)
        if compared is not None:
            tests[owner] = signs_test(*compared, generator=generator, false_alarm=rate)
    if not tests:
        raise InputError(
            "no two owners of the recorded round have different updates and sent messages that can be compared."
        )
    return tests


def _compared(
    owner: str, updates: Mapping[str, Vector], payloads: Mapping[str, Payloads]
) -> tuple[NDArray[np.float64], Vector] | None:
    """Return guesses of how an owner's update differs from that of the next one with another, and the truth."""
    if not payloads[owner]:
        raise InputError(f"the aggregator's view has no message of {owner!r}.")
    names = list(updates)
    start = names.index(owner) + 1
    for other in names[start:] + names[: start - 1]:
        truth = updates[owner] - updates[other]
        rows = differences(payloads[owner], payloads[other], truth.size)
        if truth.any() and len(rows):
            return rows, truth
    return None


def view_finding(tests: Mapping[str, ChanceTest], scheme: str, attack: str) -> Finding:
    """Return one row: the owner about whom most was found out."""
    worst = min(tests, key=lambda owner: (tests[owner].found_nothing, -tests[owner].score))
    test, plain = tests[worst], not SCHEMES[scheme].hides
    verdict: Verdict = "at chance" if test.found_nothing else "leaks" if plain else "refuted"
    return Finding(
        claim=f"{scheme}: the aggregator of this run learned nothing of an owner's update but the sum",
        source="nobody" if plain else "the statement of the run",
        proven="nothing: updates were sent in the clear" if plain else "cryptographically, under its assumptions",
        measure=f"|cosine| of the best of {test.guesses} guesses with {worst}'s update, less another's "
        f"(chance exceeds {test.threshold:.2f} in {test.false_alarm:.2%} of the cases)",
        measured=exactly(test.score),
        verdict=verdict,
        attack=attack,
        details={
            "owners tested": len(tests),
            "owners at chance": sum(one.found_nothing for one in tests.values()),
            "p_value": test.p_value,
            "false_alarm": test.false_alarm,
        },
    )


_CHANCE_SAMPLES = 49


def attack_schemes(
    cases: Sequence[Case],
    *,
    schemes: Iterable[str] = OWN_SCHEMES,
    key_bits: int = 3072,
    insecure: bool = False,
    false_alarm: float = 0.01,
    random_state: int | np.random.Generator | None = None,
    source: ByteSource = system_bytes,
    progress: Progress = silent,
) -> tuple[Finding, ...]:
    """Play one round per scheme and case and attack the first owner's update from the aggregator's view.

    Of a plain round a row is about the sample, of others about the update.
    `false_alarm` is the probability with which any of the tests calls chance a leak. Each has its share of it and takes
    as many draws of chance as that needs: the cost of the tests grows with 1 / false_alarm.
    """
    if not cases or len({tuple(case.updates) for case in cases}) != 1:
        raise InputError("the cases to attack must have the same owners, and there must be one at least.")
    generator, named, leaks = science(random_state), tuple(schemes), list[Finding]()
    rate = false_alarm / max(2 * len(named) * len(cases), 1)  # one test of values and one of places, for each of them
    needed_trials(rate)  # refuses a rate before anything is played
    for scheme in named:
        for dimension in sorted({case.dimension for case in cases}):
            alike, recorder = [case for case in cases if case.dimension == dimension], Recorder()
            session = open_session(
                scheme,
                members=tuple(alike[0].updates),
                dimension=dimension,
                minimum_per_position=1,  # as in the paper
                key_bits=key_bits,
                insecure=insecure,
                run=f"audit-{generator.integers(2**62):x}",
                source=source,
                record=recorder,
            )
            for number, case in enumerate(alike):
                disguise = Disguise.draw(dimension, generator)
                guesses = _play(session, recorder, case, disguise, number)
                leaks.append(_attack(scheme, case, guesses, disguise, generator, rate))
                progress("attacking schemes", len(leaks), len(named) * len(cases))
    return tuple(leaks)


def _play(session: Session, recorder: Recorder, case: Case, disguise: Disguise, number: int) -> OwnerGuesses:
    """Play a round of disguised updates and return what its aggregator can make of the victim's messages."""
    recorder.forget_rounds()
    session.round({owner: disguise.hide(update) for owner, update in case.updates.items()}, number)
    return guesses_from_view(recorder.received, case.victim, case.dimension)


def _attack(
    scheme: str, case: Case, guesses: OwnerGuesses, disguise: Disguise, generator: np.random.Generator, rate: float
) -> Finding:
    truth = disguise.hide(case.updates[case.victim])
    values = values_test(guesses.rows, truth, generator=generator, false_alarm=rate)
    places = None
    if guesses.places is not None:
        places = places_test(guesses.places, truth, block=guesses.block, generator=generator, false_alarm=rate)
    others = [Disguise.draw(case.dimension, generator) for _ in range(_CHANCE_SAMPLES)]
    close, *chances = (_recovered(case, guesses, one).closest(case.sample) for one in (disguise, *others))
    nothing = values.at_chance and (places is None or places.at_chance)
    common: dict[str, Any] = {
        "attack": f"{case.name}: aggregator's recorded view",
        "details": {
            "scheme": scheme,
            "case": case.name,
            "dimension": case.dimension,
            "at_chance": nothing,
            "update_cosine": values.score,
            "p_value": values.p_value,
            "places_p_value": None if places is None else places.p_value,
            "false_alarm": values.false_alarm,
            "sample_cosine": close,
            "sample_chance": float(np.median(chances)),
        },
    }
    if SCHEMES[scheme].hides:
        return Finding(
            claim=f"the aggregator of a {scheme} round learns nothing of an owner's update but the sum",
            source=f"the statement of {scheme}",
            proven="cryptographically, under the assumptions of the statement",
            measure=f"|cosine| of the best of {values.guesses} guesses with the update in one round; "
            f"{values.threshold:.2f} is chance's in all but {values.false_alarm:.2%} of the cases",
            measured=exactly(values.score),
            verdict="at chance" if nothing else "refuted",
            **common,
        )
    whole: Verdict = "as stated" if close >= RECOVERED else "undecided"
    part: Verdict = "leaks" if close > max(chances) else "at chance"
    return Finding(
        claim="a plain update gives its training sample away"
        if case.kept == 1
        else f"the largest {case.kept:.0%} of a plain update do not show its training sample",
        source="Yonetani et al. 2017, supplement, section 2" if case.kept == 1 else "nobody",
        proven="nothing is protected",
        measure=f"|cosine| of the recovered sample with the true one ({RECOVERED} is recovered; {max(chances):.2f} is "
        f"the most of {len(chances)} guesses for other updates)",
        measured=exactly(close),
        verdict=whole if case.kept == 1 else part,
        **common,
    )


def _recovered(case: Case, guesses: OwnerGuesses, disguise: Disguise) -> Recovery:
    """Return what the attack makes of the guess that is closest to the victim's update in this disguise."""
    truth = disguise.hide(case.updates[case.victim])
    lengths = np.maximum(np.linalg.norm(guesses.rows, axis=1), 1e-300)
    cosines = guesses.rows @ truth / lengths
    best = int(np.argmax(np.abs(cosines)))
    scale = np.sign(cosines[best]) * np.linalg.norm(truth) / lengths[best]
    return case.attack(disguise.reveal(scale * guesses.rows[best]))
