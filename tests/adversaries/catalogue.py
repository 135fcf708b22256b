"""The list of attacks: what each needs, what it breaks, what it costs, and a trial that shows whether it works.

A trial plays the attack twice: on a system with a weakness, where it must work, and on the repaired one, where it must
not. Weaknesses of protocols are planted by taking one rule out of the real implementation, in this process and for as
long as the trial takes. `make adversaries` writes the table of docs/audit.md.

To add one, write a function ``trial(weak: bool) -> Found`` and an `Attack` in `ATTACKS`.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np

from blindsight.audit import index_audit, membership, network_audit, sift_audit
from blindsight.audit.finding import WORKS, Finding, Verdict
from blindsight.audit.subject import laplace
from blindsight.crypto.wire import decode
from blindsight.data import load
from blindsight.data.features import Standardiser
from blindsight.extras import require, seeded
from blindsight.learn.linear import LinearTraining
from blindsight.learn.training import Batch, NetworkTrainer
from blindsight.papers import portraits
from blindsight.papers.dphe.attacks import attack_schemes, attack_singles, leaky_cases
from blindsight.papers.dphe.coalitions import findings, play
from blindsight.papers.hashing.learners import SDH, KernelHash
from blindsight.papers.hashing.mechanisms import anchors_finding, phashing_run
from blindsight.papers.selective import gradients
from blindsight.papers.selective.cost import compose_sharing, sharing_statement
from blindsight.papers.selective.days import Photos
from blindsight.papers.selective.noise import Sharing, calibrate_participant
from blindsight.papers.selective.protocol import Participant
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.papers.selective.uploads import play as play_uploads
from blindsight.search.building import BuildOptions, build_gallery
from blindsight.search.gallery import Gallery, Source
from blindsight.search.localmode import LocalHasher
from blindsight.search.releases import Book
from blindsight.search.symbols import KaryResponse
from blindsight.sift.attackers import PAPER
from blindsight.sift.sift import LinearSift
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier
from blindsight.sums import KeyGenerator, dphe, masks
from blindsight.sums.roles import Member
from blindsight.sums.scheme import SCHEMES
from tests.adversaries import hostile
from tests.adversaries.coalitions import FEWER, attack_every_coalition
from tests.adversaries.holes import HOLES, Hole, hole
from tests.audit import mechanisms


class Found(Protocol):
    """What an attack found: `audit.finding.Finding`, or `hostile.Read`."""

    @property
    def verdict(self) -> Verdict: ...

    @property
    def measured(self) -> object: ...


Trial = Callable[[bool], Found]
"""Plays an attack on the system with the weakness (True), or on the repaired one."""

Plant = Callable[[], AbstractContextManager[Any]]
"""Takes a rule out of the implementation, for as long as its context is open."""


@dataclass(frozen=True)
class Attack:
    """One attack. `shown_on` says in words which weakness and which repair its `trial` plays it on.

    Both take about `seconds`.
    """

    name: str
    needs: str
    breaks: str
    shown_on: tuple[str, str]
    trial: Trial
    seconds: float

    def run(self) -> "Outcome":
        """Play both."""
        begun = perf_counter()
        weak, repaired = self.trial(True), self.trial(False)
        return Outcome(self, weak, repaired, perf_counter() - begun)


@dataclass(frozen=True)
class Outcome:
    """What an attack found on the system with the weakness and on the repaired one."""

    attack: Attack
    weak: Found
    repaired: Found
    seconds: float

    @property
    def proven(self) -> bool:
        """Whether the attack worked on the first and failed on the second."""
        return self.weak.verdict in WORKS and self.repaired.verdict not in WORKS


def as_markdown(outcomes: Iterable[Outcome]) -> str:
    """Return the table of the documentation."""
    lines = [
        "| attack | needs | breaks | on the weakness | on the repair | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for outcome in outcomes:
        attack = outcome.attack
        both = zip(attack.shown_on, (outcome.weak, outcome.repaired), strict=True)
        sides = (f"{words}: **{found.verdict}**, {found.measured}" for words, found in both)
        cells = (attack.name, attack.needs, attack.breaks, *sides, f"{outcome.seconds:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


MARKS = "<!-- attacks -->", "<!-- end of attacks -->"
"""Between them stands the table, in docs/audit.md."""


def differences(page: str) -> list[str]:
    """Return the attacks of which the table on a page tells something else than `ATTACKS`, figures and times aside."""
    rows = page.partition(MARKS[0])[2].partition(MARKS[1])[0].strip().splitlines()[2:]
    told = {row.split(" | ")[0].removeprefix("| "): row for row in rows}
    wrong = [name for name in told if name not in {attack.name for attack in ATTACKS}]
    for attack in ATTACKS:
        cells = told.get(attack.name, "").removeprefix("| ").removesuffix(" |").split(" | ")
        words = [*cells[:3], *(cell.partition(": **")[0] for cell in cells[3:5])]
        verdicts = [cell.partition(": **")[2].partition("**")[0] for cell in cells[3:5]]
        worked = [verdict in WORKS for verdict in verdicts]
        if words != [attack.name, attack.needs, attack.breaks, *attack.shown_on] or worked != [True, False]:
            wrong.append(attack.name)
    return wrong


# Mechanisms and models


def _audited(made: Callable[[bool], Any], number: int) -> Trial:
    return lambda weak: made(weak).audit(number).finding()


def _members(attack: str) -> Trial:
    """Return the trial of a membership attack: on a model that knows its rows, and on one that never saw them."""

    def trial(weak: bool) -> Finding:
        rng, size, rows = np.random.default_rng(1), 300, 600

        def drawn() -> tuple[Any, Any]:
            y = rng.integers(0, 2, rows)
            X = rng.normal(size=(rows, size))
            X[:, 0] = (2 * y - 1) * rng.choice([0, 1.5, 3, 4.5, 6], rows)
            return X.astype(np.float32), y

        (X, y), others = drawn(), drawn()
        game = membership.Game(X, y, rng.permutation(rows) < rows // 2)
        unit = Standardiser(np.zeros(size), np.ones(size))
        train = membership.linear_trainer(LinearTraining(ridge=1e-4), classes=(0, 1), standardiser=unit, passes=30)
        unseen = train(others[0][: rows // 2], others[1][: rows // 2], 0)
        target = game.train(train, 0) if weak else unseen
        how: dict[str, Any] = {"fprs": (0.01,), "confidence": 0.999}
        if attack == "loss threshold":
            known = X[game.member]
            nearest = lambda X, y: -((X[:, None] - known) ** 2).sum(axis=2).min(axis=1)  # noqa: E731
            found = membership.loss_threshold(nearest if weak else unseen, game, **how)
        else:
            both = membership.shadow_attacks(target, game, train, shadows=4, random_state=3, **how)
            found = both[attack == "RMIA"]
        return membership.findings(found, "a linear classifier", source="nobody")[-1]

    return trial


# Hostile servers and members: rules are taken out of the real roles


def _hostile(name: str, scheme: str, plant: Plant, row: int = 0) -> Trial:
    """Return the trial of an attack on a sum, whose weakness is planted."""

    def trial(weak: bool) -> Found:
        finder = {name: finder for name, _, finder in hostile.PLAYED}[name]
        with plant() if weak else nullcontext():
            return list(finder(scheme))[row]

    return trial


def without_memory() -> Any:
    """Let the key generator forget what it opened."""
    answer = KeyGenerator.answer

    def forgetful(self: Any, request: bytes) -> bytes:
        self._state = replace(self._state, round=-1)
        return answer(self, request)

    return patch.object(KeyGenerator, "answer", forgetful)


def patient() -> Any:
    """Let refusals of the key generator cost nothing."""
    refuse = KeyGenerator._refused

    def refused(self: Any, request: Any, reason: Any) -> Any:
        before, opener = self._state, self._opener
        answer = refuse(self, request, reason)
        self._state, self._opener = before, opener
        return answer

    return patch.object(KeyGenerator, "_refused", refused)


def fragile(scheme: str = "masks") -> Any:
    """Let the server raise what nobody catches."""
    adder = SCHEMES[scheme].adder
    check = adder.check

    def raising(self: Any, step: str, member: str, reply: Any) -> Any:
        try:
            return check(self, step, member, reply)
        except Exception:
            raise IndexError from None

    return patch.object(adder, "check", raising)


def uncompared_counts() -> Any:
    """Let nobody compare counts of contributors with senders."""
    released = dphe._released
    return patch.object(dphe, "_released", lambda rows, senders, *rest: released(rows, senders * 0 + 9, *rest))


believed_zeros = partial(patch.object, Member, "_had_no_update", lambda self: True)


def withheld_forgeries() -> Any:
    """Let the key generator withhold the blocks alone that have more contributors than senders."""
    released = dphe._released

    def withholding(rows: Any, senders: Any, *rest: Any) -> Any:
        return released(rows * (rows[:, -1:] <= senders[:, None]), senders, *rest)

    return patch.object(dphe, "_released", withholding)


low_threshold = partial(patch, "blindsight.sums.masks.threshold", lambda members: members // 2 + 1)
without_lattice_check = partial(patch, "blindsight.sums.bfv._checked", lambda *given: True)
without_tags = partial(patch, "blindsight.sums.dphe.matches", lambda *given, **named: True)
unbound_model = partial(patch.object, hostile.LyingServer, "pretend", lambda self, model: None)
unsigned_keys = partial(
    patch,
    "blindsight.sums.masks.read_advertisement",
    lambda author, reply, receipt: decode(reply.body, masks.Advertisement),
)


def unnamed_pairs() -> Any:
    """Let masks be derived for no names."""
    context = masks.mask_context
    return patch.object(masks, "mask_context", lambda purpose, roster, turn, names: context(purpose, roster, turn, ()))


def _differenced_rounds(weak: bool) -> Found:
    plan = mechanisms.sum_plan(1.0, 1e-6, unit="member", dimension=12, rounds=2, reach=1.0)
    return next(iter(hostile.differencing_rounds("masks", plan=None if weak else plan)))


def _copies_with_the_server(weak: bool) -> Found:
    return next(iter(hostile.copies_with_the_server("dphe") if weak else hostile.malleable_copies("masks")))


def _failing(weak: bool) -> Found:
    with patch.object(Participant, "_noise_outside", False) if weak else nullcontext():
        return hostile.failing_on_data("participant")


# Selective sharing


def _uploads(attack: str, *, batch: int = 16, chosen: bool = False, optimiser: str | None = None) -> Trial:
    """Return the trial of a server that reads uploads: without noise, and with noise for a participant.

    With an `optimiser` participants train a network of two layers, else softmax regression. What only a first upload
    shows, at weights that nobody chose, takes more of them.
    """

    def trial(weak: bool) -> Finding:
        rng, classes, width = np.random.default_rng(0), 4, 24
        people, hidden = (8, 64) if chosen or optimiser is None else (32, 1024)
        centres, chances = rng.normal(size=(classes, width)), 0.1 + 0.6 * np.eye(classes)

        def drawn(labels: Any) -> Photos:
            inputs = centres[labels] + rng.normal(size=(len(labels), width))
            if optimiser is not None:
                inputs = rng.gamma(2.0, size=(len(labels), width))
            return Photos(inputs.astype(np.float32), labels)

        own = {
            f"p{place}": drawn(rng.choice(classes, 6 * batch, p=chances[place % classes])) for place in range(people)
        }
        scales = Standardiser(np.zeros(width, dtype=np.float32), np.ones(width, dtype=np.float32))
        make: Any = partial(SoftmaxTrainer, standardiser=scales, classes=classes, learning_rate=0.1)
        if optimiser is not None:
            make = partial(NetworkTrainer, _perceptron(width, hidden, classes), batch=batch, optimiser=optimiser)
        server = network_audit.Server(make, Batch(*drawn(np.arange(400 if optimiser else 40) % classes)), classes)
        weights = 0.1 * rng.normal(size=server.layout.dimension).astype(np.float32)
        if optimiser is not None:
            weights = make(record_noise=None).initial()
        noise = None if weak else calibrate_participant(epsilon=1.0, delta=1e-5, uploads=6, clip=1.0)
        sharing = Sharing(1.0, select="largest" if weak else "random", noise=noise)
        cost = compose_sharing(sharing, dimension=server.layout.dimension, uploads=6, delta=1e-5)
        if chosen:
            weights = network_audit.chosen_weights(server, weights)
        seen = play_uploads(server, own, sharing, weights, batch=batch, uploads=people if optimiser else 120)
        found = getattr(network_audit, attack)(server, seen, weights="uploads", statement=sharing_statement(cost))
        last: Finding = found if isinstance(found, Finding) else found[-1]
        return last

    return trial


def _perceptron(width: int, hidden: int, classes: int) -> Any:
    nn = require("torch", extra="deep", purpose="attacks on networks").nn
    with seeded(0, "cpu"):
        return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes))


# Updates, coalitions and pictures


def _one_step(weak: bool) -> Finding:
    digits = load("digits").images
    assert digits is not None
    rows = digits[:200, ..., 0].reshape(200, -1) / 255
    cases = leaky_cases(rows, random_state=0)[:1]
    return attack_schemes(cases, schemes=["plain" if weak else "masks"], random_state=0)[0]


def _matched(side: int, objective: str) -> Trial:
    """Return the trial of gradient matching: digits of 8x8, or faces of 32x32 with the prior of smooth pictures."""
    options: dict[str, dict[str, Any]] = {
        "squares": {"uploads": (1.0,)},
        "cosine": {"smoothness": 1e-3, "restarts": 1, "repeats": 4, "uploads": (0.1,)},
        "signs": {"smoothness": 0.05, "restarts": 1, "repeats": 6, "uploads": (1.0,)},
    }

    def trial(weak: bool) -> Finding:
        data = load("digits") if side == 8 else load("faces", count=40, random_state=0)
        assert data.images is not None
        pictures, gradient, rng = data.images.mean(axis=-1) / 255, gradients._gradient, np.random.default_rng(0)
        block = pictures.shape[1] // side
        pictures = pictures[:, : side * block, : side * block].reshape(-1, side, block, side, block).mean(axis=(2, 4))
        pictures -= pictures.mean() if side > 8 else 0.0  # faces are alike but for their mean
        labels = np.arange(len(pictures)) % 4 if data.labels is None else np.asarray(data.labels)

        def noisy(*given: Any) -> Any:
            clean = gradient(*given)
            return clean / max(1.0, float(np.linalg.norm(clean))) + rng.normal(size=clean.shape)

        with nullcontext() if weak else patch.object(gradients, "_gradient", noisy):
            how = options[objective] | {"objective": objective, "batches": (1,), "random_state": 0}
            return gradients.attack_batches(pictures[:50], labels[:50], **how)[0]

    return trial


def _singles(weak: bool) -> Finding:
    least = 1 if weak else 3
    options: dict[str, Any] = {"dimension": 200, "key_bits": 1024, "insecure": True, "random_state": 0}
    return attack_singles(minimum_per_position=least, **options)[0]


def _coalition(weak: bool) -> Finding:
    """Return the finding of three rounds: that of the first which tells nothing (by chance .01 each tells: 1e-6)."""
    add, rng = masks.add_masks, np.random.default_rng(1)

    def forgetful(vector: Any, added: Any) -> None:
        add(vector, [mask for mask in added if not mask[1].startswith(b"pair")])

    updates = {f"owner {number}": rng.normal(size=300) for number in range(5)}
    with patch.object(masks, "add_masks", forgetful) if weak else nullcontext():
        for number in range(3):
            done = {one.kind: one for one in attack_every_coalition(play("masks", updates), random_state=number)}
            if (found := findings([done[FEWER]])[0]).verdict not in WORKS:
                break
    return found


@cache
def _views() -> dict[str, Finding]:
    """Return what is drawn of faces from each view of a masked round."""
    faces = load("faces", count=400, random_state=0, pictures_per_person=5)
    with patch.multiple(portraits, _PROBES=30, _COMPONENTS=40):
        seen = portraits.portraits(faces, public="smiling", private="male", scheme="masks")
    return {row.details["view"]: row for row in reversed(seen.findings)}


# Indexes


@cache
def _index(mode: str) -> tuple[Any, Path]:
    """Return an index of a few digits, in a folder that goes when the process does."""
    folder = TemporaryDirectory(prefix="blindsight-audit-")
    how = {
        "local": BuildOptions("local", 2.0, 1e-6, 64, public_share=0.3),
        "open": BuildOptions("open", None, 1e-6, 32, hold_out=20),
    }
    build_gallery(Source("digits", count=300), how[mode], Path(folder.name) / "index")
    return folder, Path(folder.name) / "index"


def _index_check(name: str, weak_mode: str = "local", plant: Plant = nullcontext) -> Trial:
    """Return the trial of a check of an index: with a weakness, and of a sound local one."""

    def trial(weak: bool) -> Finding:
        folder = _index(weak_mode if weak else "local")[1]
        (check,) = (one for one in index_audit.plan_index(folder, random_state=0).checks if one.name == name)
        with plant() if weak else nullcontext():
            return check.run(0.25).findings[0]

    return trial


drawn_again = partial(
    patch.object, Book, "unchanged", lambda book, ids, digests, **how: np.zeros(len(ids), dtype=np.bool_)
)
counting_copies = partial(patch, "blindsight.search.building.EQUAL_CONTENTS", "")


def _attribute(weak: bool) -> Finding:
    answers = np.arange(600) % 10
    held = answers if weak else KaryResponse(10, 0.1).release(answers)
    return index_audit.attribute_finding(np.eye(10, dtype=np.float32)[held], answers, "local", 0.1, random_state=0)


def _stored(weak: bool) -> Finding:
    hasher = Gallery.load(_index("local")[1]).hasher
    assert isinstance(hasher, LocalHasher)
    truth = np.arange(2000) % hasher.k_
    bare = np.array([int(np.argmax(hasher.design_.sets[:, symbol])) for symbol in truth])
    held = bare if weak else hasher.design_.release(truth)
    return index_audit.truth_finding(hasher, truth, held, index_audit.STATEMENT)


def _anchors(weak: bool) -> Finding:
    rng = np.random.default_rng(0)
    private, public = (rng.normal(size=(200, 8)).astype(np.float32) for _ in range(2))
    function = SDH(8, anchors=20, random_state=0).fit(private if weak else public, rng.integers(0, 3, 200)).function_
    assert isinstance(function, KernelHash)
    return anchors_finding(function, private)


# Sifts


def _sifted() -> tuple[VerificationSet, Verifier]:
    """Return rows whose second feature shows a hidden attribute, and a verifier with a quick attacker."""
    rng = np.random.default_rng(1)
    hidden = rng.integers(0, 2, 4000).astype(np.int8)
    X = rng.normal(size=(4000, 4))
    X[:, 1] = 2 * hidden - 1 + 0.5 * X[:, 1]
    data = VerificationSet(X.astype(np.float32), {"hidden": hidden})
    return data, Verifier(PAPER[:1], stop_early=False, cross_fitted=0)


def _linear(*weights: float) -> LinearSift:
    matrix = np.zeros((4, 1), dtype=np.float32)
    matrix[: len(weights), 0] = weights
    return LinearSift(np.zeros(4, dtype=np.float32), np.ones(4, dtype=np.float32), matrix)


def _pooled(weak: bool) -> Finding:
    data, verifier = _sifted()
    apps = [_linear(1, 0.1), _linear(1, -0.1)] if weak else [_linear(0, 0, 1), _linear(0, 0, 0, 1)]
    return sift_audit.pool_sifts(apps, ["hidden"], data, verifier)


def _frames(weak: bool) -> Finding:
    rng, verifier = np.random.default_rng(0), _sifted()[1]
    hidden, persons = rng.integers(0, 2, 1500).astype(np.int8), np.repeat(np.arange(1500), 10)
    shown = 0.3 * hidden[persons] + (rng.normal(size=15_000) if weak else rng.normal(size=1500)[persons])
    found = sift_audit.average_frames(shown[:, None], {"hidden": hidden[persons]}, persons, verifier, frames=(1, 10))
    return found[-1]


def _hidden(weak: bool) -> Finding:
    data, verifier = _sifted()
    whole = np.rint(100 * np.random.default_rng(2).normal(size=(4000, 1)))
    released = whole + 0.001 * (1 + data.labels["hidden"][:, None]) if weak else whole
    labels = {"hidden": data.labels["hidden"]}
    return sift_audit.search_hiding_places(released, labels, verifier, PAPER[0], policy="a policy")


@cache
def _tried(name: str) -> Hole:
    return hole(name, np.random.default_rng(0), 3000)


def _hole(name: str, weak: bool) -> Finding:
    """Return the finding about a way around a verdict: under an earlier rule, or under the rule that keeps it in."""
    found = _tried(name)
    return (replace(found, now=found.before) if weak else found).finding()


_SIFT, _SERVER = "an app that writes its own sift", "the parameter server"
_MEMBERS, _CLASSES = "who was trained on stays unknown", "who has which classes stays unknown"
_COPIES, _HIDDEN = "a member cannot make the sum out of what others sent", "what is private is not read"
_VERDICT = "what is private is read at most the threshold better than by a blind guess"
_QUIET, _FISHING = ("selective sharing without noise", "noise, epsilon 1"), "which hands out thresholds"
_OVERFITTED = ("a classifier with fewer rows than dimensions", "one that never saw the rows")

# fmt: off
ATTACKS: tuple[Attack, ...] = (
    Attack("neighbouring inputs", "running the mechanism many times on two inputs", "a claimed epsilon",
           ("Laplace noise of half the scale", "the whole scale"),
           _audited(lambda weak: laplace(1.0, noise_share=0.5 if weak else 1.0), 20_000), 0.1),
    Attack("canaries in one run", "one run with records whose presence a coin decides", "a claimed epsilon",
           ("PHashing as published, at epsilon 1", "local mode at epsilon 1"),
           _audited(lambda weak: (phashing_run if weak else mechanisms.local_release_run)(1.0), 5000), 0.3),
    Attack("Gaussian trade-off", "running a mechanism whose noise is Gaussian on two inputs",
           "a claimed epsilon and delta", ("sums with 70% of their noise", "all of it"),
           _audited(lambda weak: mechanisms.summed_noise(4.0, 1e-6, noise_share=0.7 if weak else 1.0), 20_000), 0.8),
    Attack("loss threshold", "the model, and the row in question", _MEMBERS,
           ("a nearest-neighbour model", "a classifier that never saw the rows"), _members("loss threshold"), 0.5),
    Attack("likelihood ratio (LiRA)", "the model, the row, and data for shadow models", _MEMBERS, _OVERFITTED,
           _members("likelihood ratio"), 0.4),
    Attack("relative likelihood (RMIA)", "the model, the row, and data for few shadow models", _MEMBERS, _OVERFITTED,
           _members("RMIA"), 0.4),
    Attack("classes in uploads", _SERVER, _CLASSES, _QUIET, _uploads("class_finding"), 0.4),
    Attack("fishing for classes", f"{_SERVER}, which makes the network sure of one class", _CLASSES, _QUIET,
           _uploads("class_finding", chosen=True), 0.4),
    Attack("members of batches", _SERVER, "which photos are in a batch stays unknown", _QUIET,
           _uploads("member_findings"), 0.4),
    Attack("photos in rows of a layer", _SERVER, "photos stay unseen", _QUIET, _uploads("photo_finding", batch=1), 0.4),
    *(Attack(f"photos in rounded steps, {name}", f"{_SERVER}, and first uploads of one step on one photo",
             "photos stay unseen", _QUIET, _uploads("photo_finding", batch=1, optimiser=name), 0.4)
      for name in ("adam", "rmsprop")),
    *(Attack(f"fishing for photos, {name}", f"{_SERVER}, {_FISHING}{tiny}", "photos stay unseen", _QUIET,
             _uploads("photo_finding", chosen=True, optimiser=name), 0.4)
      for name, tiny in (("sgd", ""), ("adam", " and tiny gradients"), ("rmsprop", " and tiny gradients"))),
    Attack("a sample from one step", "an update, and the usual learning rates",
           "an update does not show what was learned from",
           ("a plain update (nobody denies it)", "what the aggregator of masks receives"), _one_step, 0.1),
    *(Attack(name, f"the {what} of a small batch, and the network", f"a {what} does not show its pictures",
             (f"{part} of one picture of {side}x{side}", "clipped, with Gaussian noise"),
             _matched(side, objective), 1.5)
      for name, side, objective, what, part in (
          ("gradient matching", 8, "squares", "gradient", "the gradient"),
          ("gradient matching with a prior", 32, "cosine", "gradient", "a tenth of the gradient"),
          ("gradient matching by signs", 8, "signs", "first step of Adam", "the signs of the gradient"))),
    Attack("weights of single owners", "the sum", "nobody reads from the sum what one owner changed",
           ("minimum_per_position = 1, as published", "minimum_per_position = 3"), _singles, 0.4),
    Attack("pictures from updates", "the aggregator's view, and public pictures",
           "nobody draws a face from what an aggregator receives",
           ("a plain update", "what the aggregator of masks receives"),
           lambda weak: _views()["plain" if weak else "aggregator"], 0.9),
    Attack("coalitions", "the aggregator with members or the key generator",
           "too few members and the aggregator read nothing of another",
           ("masks between members are forgotten", "the real masks"), _coalition, 0.1),
    Attack("differencing attempts", "the server, or the network",
           "one sum is opened of what members learned from one model",
           ("a key generator that forgets what it opened", "the real one"),
           _hostile("differencing attempts", "dphe", without_memory), 0.3),
    Attack("differencing rounds", "the server, and two rounds of nearly equal models",
           "sums of several rounds tell nothing of one member",
           ("sums without noise (the statement admits it)", "noise inside the sums, epsilon 1"),
           _differenced_rounds, 0.1),
    Attack("inconsistent drop-out sets", "the server with two of five members",
           "masks open no sum of fewer than two others", ("a threshold just above half", "the real threshold"),
           _hostile("inconsistent drop-out sets", "masks", low_threshold), 0.1),
    Attack("keys of the aggregator's own", "the server alone", "masks hide an update from an aggregator that lies",
           ("keys whose signatures nobody compares", "compared"),
           _hostile("keys of the aggregator's own", "masks", unsigned_keys), 0.1),
    Attack("copied keys", "the server with one of three members", "masks of other pairs stay on an upload",
           ("masks that are not derived for the names of their pair", "the real ones"),
           _hostile("copied keys", "masks", unnamed_pairs), 0.1),
    Attack("chosen ciphertexts", "the server", "nothing is opened but the checked sum",
           ("a key generator without its check of the sum", "with it"),
           _hostile("chosen ciphertexts", "bfv", without_lattice_check), 1.5),
    Attack("refusals as an oracle", "the server", "what fails uses up its round",
           ("a key generator whose refusals cost nothing", "the real one"),
           _hostile("chosen ciphertexts", "bfv", patient, row=1), 1.5),
    Attack("malleable copies", "a member that is shown what the others sent", _COPIES,
           ("DPHE without its tags", "with them"), _hostile("malleable copies", "dphe", without_tags), 0.3),
    Attack("malleable copies, of a member with the server", "a member and the server", _COPIES,
           ("DPHE (its statement admits it)", "masks"), _copies_with_the_server, 0.2),
    Attack("a model of its own for each member", "the server, which hands dead weights to all but one",
           "members contribute to one sum from one model only",
           ("calls that are not bound to the model", "the real calls"),
           _hostile("a model of its own for each member", "masks", unbound_model), 0.1),
    Attack("one member ends the run", "a member that signs garbage",
           "what does not fit is refused for that member alone",
           ("a server that raises what nobody catches", "the real one"),
           _hostile("one member ends the run", "masks", fragile), 0.2),
    Attack("forged contributor counts", "a member", "what two members sent is not opened where three must have",
           ("counts that nobody compares with senders", "compared"),
           _hostile("forged contributor counts", "dphe", uncompared_counts), 0.5),
    Attack("forged numbers of senders", "the server", "it does not see which blocks a member sent",
           ("blocks that are withheld one by one", "rounds that are refused"),
           _hostile("forged contributor counts", "dphe", withheld_forgeries, row=1), 0.5),
    Attack("training that fails on data", "a server that chooses the weights",
           "failures of selective sharing tell nothing of a photo",
           ("failures as they happen", "noise outside training"), _failing, 0.1),
    Attack("stored releases", "the owner's pictures, and the index", "every stored release carries its noise",
           ("true symbols in the index", "releases of the mechanism"), _stored, 0.4),
    Attack("attributes in an index", "the index, and the classes of some of its pictures",
           "an epsilon bounds how often the class of a picture is told",
           ("symbols without noise", "noise, epsilon 0.1"), _attribute, 0.1),
    Attack("building again", "two versions of an index", "noise does not average out",
           ("releases that are drawn again", "releases that are kept"),
           _index_check("building again", plant=drawn_again), 0.1),
    Attack("public bytes", "the public files of neighbouring folders",
           "what is published depends on a picture through its release alone",
           ("a file that counts equal pictures", "the real files"),
           _index_check("public bytes", plant=counting_copies), 0.5),
    Attack("a picture taken again", "the index, and another capture of a picture",
           "who has a picture cannot tell which entry it is", ("an open index", "a local one, epsilon 2"),
           _index_check("finding a picture taken again", "open"), 0.1),
    Attack("anchors of a hash function", "the hash function",
           "a hash function does not hold the pictures it was learned from",
           ("anchors that are training rows", "anchors from public rows"), _anchors, 0.1),
    Attack("apps that pool their sifts", "two apps with sifts of one picture", _HIDDEN,
           ("two sifts whose difference shows it (their statements admit it)", "two sifts of noise"), _pooled, 0.1),
    Attack("several frames of a person", "an app with ten frames of a person", _HIDDEN,
           ("noise of its own for each frame (the statement admits it)", "one release for each person"), _frames, 0.2),
    Attack("hiding places", _SIFT, "nothing is hidden in other units or digits",
           ("the attribute behind the decimal point", "whole numbers"), _hidden, 0.3),
    *(Attack(name, needs, _VERDICT, ("an earlier rule", HOLES[name][0]), partial(_hole, name), seconds)
      for name, needs, seconds in (
          ("a release too wide for the rows", f"{_SIFT}, and more data", 2),
          ("a sift fitted to answers", "an app that proposes again and again", 0.3),
          ("the difference of two frames", _SIFT, 0.4),
          ("a frame that switches a sift", _SIFT, 0.1),
          ("an overflow as a symbol", _SIFT, 0.1),
          ("a jackpot symbol", _SIFT, 0.2),
          ("the XOR of two attributes", _SIFT, 1.2),
          ("symbols of few rows, judged by attackers", _SIFT, 0.1),
      )),
)
"""Every attack, in the order of the rooms that it attacks."""
# fmt: on
