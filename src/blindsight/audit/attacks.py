"""The list of attacks: what each needs, what it breaks, what it costs, and a trial that shows whether it works.

A trial plays the attack twice: on a system with a weakness, where it must work, and on the repaired one, where it must
not. Weaknesses of protocols are planted by taking one rule out of the real implementation, in this process and for as
long as the trial takes. `blindsight audit attacks` prints the list, with `--run` the outcomes.

To add one, write a function ``trial(weak: bool) -> Finding`` and an `Attack` in `ATTACKS`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np

from blindsight.audit.finding import WORKS, Finding
from blindsight.errors import UnknownNameError
from blindsight.progress import Progress, silent

Trial = Callable[[bool], Finding]
"""Plays an attack on the system with the weakness (True), or on the repaired one."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack. `weakness` and `repair` say in words what its `trial` plays it on; both take about `seconds`."""

    name: str
    needs: str
    breaks: str
    weakness: str
    repair: str
    seconds: float
    trial: Trial

    def run(self) -> "Outcome":
        """Play both."""
        begun = perf_counter()
        weak, repaired = self.trial(True), self.trial(False)
        return Outcome(self, weak, repaired, perf_counter() - begun)


@dataclass(frozen=True)
class Outcome:
    """What an attack found on the system with the weakness and on the repaired one."""

    attack: Attack
    weak: Finding
    repaired: Finding
    seconds: float

    @property
    def proven(self) -> bool:
        """Whether the attack worked on the first and failed on the second."""
        return self.weak.verdict in WORKS and self.repaired.verdict not in WORKS

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        names = ("name", "needs", "breaks", "weakness", "repair")
        facts = {name: getattr(self.attack, name) for name in names}
        sides = {"on the weakness": self.weak.to_dict(), "on the repair": self.repaired.to_dict()}
        return facts | sides | {"proven": self.proven, "seconds": self.seconds}


def attack_named(name: str) -> Attack:
    """Return a registered attack."""
    found = {attack.name: attack for attack in ATTACKS}
    if name not in found:
        raise UnknownNameError("attack", name, found)
    return found[name]


def run_attacks(names: Iterable[str] = (), *, progress: Progress = silent) -> Iterator[Outcome]:
    """Play these attacks, or all."""
    chosen = [attack_named(name) for name in names] or list(ATTACKS)
    for done, attack in enumerate(chosen):
        progress(attack.name, done, len(chosen))
        yield attack.run()


def as_markdown(outcomes: Iterable[Outcome]) -> str:
    """Return the table of the documentation."""
    lines = [
        "| attack | needs | breaks | on the weakness | on the repair | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for outcome in outcomes:
        attack = outcome.attack
        sides = (
            f"{words}: **{found.verdict}**, {found.measured}"
            for words, found in ((attack.weakness, outcome.weak), (attack.repair, outcome.repaired))
        )
        cells = (attack.name, attack.needs, attack.breaks, *sides, f"{outcome.seconds:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# Mechanisms


def _neighbours(weak: bool) -> Finding:
    from blindsight.audit.mechanisms import laplace

    return laplace(1.0, noise_share=0.5 if weak else 1.0).audit(20_000).finding()


def _canaries(weak: bool) -> Finding:
    from blindsight.audit.mechanisms import local_release_run, phashing_run

    return (phashing_run(1.0) if weak else local_release_run(1.0)).audit(5000).finding()


def _gaussian(weak: bool) -> Finding:
    from blindsight.audit.mechanisms import summed_noise

    return summed_noise(4.0, 1e-6, noise_share=0.7 if weak else 1.0).audit(20_000).finding()


# Hostile servers and members: rules are taken out of the real roles


def _forgetful(self: Any, request: bytes, answer: Any) -> bytes:
    self._state = replace(self._state, round=-1)
    return bytes(answer(self, request))


def _hostile(name: str, scheme: str, *plants: Callable[[], Any], row: int = 0) -> Trial:
    """Return the trial of an attack on a sum, whose weakness is made by these patches."""

    def trial(weak: bool) -> Finding:
        from blindsight.audit import hostile

        finder = {name: finder for name, _, finder in hostile.ATTACKS}[name]
        with ExitStack() as planted:
            for plant in plants if weak else ():
                planted.enter_context(plant())
            return list(finder(scheme))[row]

    return trial


def _without_memory() -> Any:
    from blindsight.sums import KeyGenerator

    answer = KeyGenerator.answer
    return patch.object(KeyGenerator, "answer", lambda self, request: _forgetful(self, request, answer))


def _low_threshold() -> Any:
    from blindsight.sums import masks

    return patch.object(masks, "threshold", lambda members: members // 2 + 1)


def _without_lattice_check() -> Any:
    from blindsight.sums import bfv

    return patch.object(bfv, "_checked", lambda *given: True)


def _without_tags() -> Any:
    from blindsight.sums import dphe

    return patch.object(dphe, "matches", lambda *given, **named: True)


def _patient() -> Any:
    from blindsight.sums import KeyGenerator

    refuse = KeyGenerator._refused

    def refused(self: Any, request: Any, reason: Any) -> Any:
        before, opener = self._state, self._opener
        answer = refuse(self, request, reason)
        self._state, self._opener = before, opener
        return answer

    return patch.object(KeyGenerator, "_refused", refused)


def _unbound_model() -> Any:
    from blindsight.audit.hostile import LyingServer

    return patch.object(LyingServer, "pretend", lambda self, model: None)


def _fragile() -> Any:
    from blindsight.sums import roles

    adder = roles.PARTS["masks"][1]
    check = adder.check

    def fragile(self: Any, step: str, member: str, reply: Any) -> Any:
        try:
            return check(self, step, member, reply)
        except Exception:
            raise IndexError from None

    return patch.object(adder, "check", fragile)


def _uncompared_counts() -> Any:
    from blindsight.sums import dphe

    released = dphe._released
    return patch.object(dphe, "_released", lambda rows, senders, *rest: released(rows, senders * 0 + 9, *rest))


def _differenced_rounds(weak: bool) -> Finding:
    from blindsight.audit.hostile import differencing_rounds
    from blindsight.sums.noise import NoisePlan

    plan = NoisePlan.calibrated(
        epsilon=1.0,
        delta=1e-6,
        unit="owner",
        clip=1.0,
        members=5,
        drop_outs=1,
        colluders=1,
        dimension=12,
        rounds=2,
        largest=2**28,
        reach=1.0,
    )
    return next(iter(differencing_rounds("masks", plan=None if weak else plan)))


def _copies_with_the_server(weak: bool) -> Finding:
    from blindsight.audit.hostile import copies_with_the_server, malleable_copies

    return next(iter(copies_with_the_server("dphe") if weak else malleable_copies("masks")))


def _failing(weak: bool) -> Finding:
    from blindsight.audit.hostile import failing_on_data
    from blindsight.selective import Participant

    with patch.object(Participant, "_noise_outside", False) if weak else nullcontext():
        return failing_on_data()[1]


# Membership


def _members(attack: str) -> Trial:
    """Return the trial of a membership attack: on a model that knows its rows, and on one that never saw them."""

    def trial(weak: bool) -> Finding:
        from blindsight.audit.membership import Game, findings, linear_trainer, loss_threshold, shadow_attacks
        from blindsight.data.features import Standardiser
        from blindsight.learn.linear import LinearTraining

        rng, size, rows = np.random.default_rng(1), 300, 600

        def drawn() -> tuple[Any, Any]:
            y = rng.integers(0, 2, rows)
            X = rng.normal(size=(rows, size))
            X[:, 0] = (2 * y - 1) * rng.choice([0, 1.5, 3, 4.5, 6], rows)
            return X.astype(np.float32), y

        (X, y), others = drawn(), drawn()
        game = Game(X, y, rng.permutation(rows) < rows // 2)
        unit = Standardiser(np.zeros(size), np.ones(size))
        train = linear_trainer(LinearTraining(ridge=1e-4), classes=(0, 1), standardiser=unit, passes=30)
        unseen = train(others[0][: rows // 2], others[1][: rows // 2], 0)
        target = game.train(train, 0) if weak else unseen
        if attack == "loss threshold":
            known = X[game.member]
            nearest = lambda X, y: -((X[:, None] - known) ** 2).sum(axis=2).min(axis=1)  # noqa: E731
            found = loss_threshold(nearest if weak else unseen, game, fprs=(0.01,), confidence=0.999)
        else:
            both = shadow_attacks(target, game, train, shadows=4, fprs=(0.01,), confidence=0.999, random_state=3)
            found = both[attack == "RMIA"]
        return findings(found, "a linear classifier", source="nobody")[-1]

    return trial


# Selective sharing and indexes


def _uploads(attack: str, *, batch: int, chosen: bool) -> Trial:
    """Return the trial of a server that reads uploads: without noise, and with noise for a participant."""

    def trial(weak: bool) -> Finding:
        from blindsight.audit import selective_audit
        from blindsight.data.features import Standardiser
        from blindsight.selective.accounting import compose_sharing, sharing_statement
        from blindsight.selective.protection import Sharing, calibrate_participant
        from blindsight.selective.timeline import Photos
        from blindsight.selective.trainers import SoftmaxTrainer

        rng, classes, width = np.random.default_rng(0), 4, 24
        centres, chances = rng.normal(size=(classes, width)), 0.1 + 0.6 * np.eye(classes)

        def drawn(labels: Any) -> Photos:
            return Photos((centres[labels] + rng.normal(size=(len(labels), width))).astype(np.float32), labels)

        own = {f"p{place}": drawn(rng.choice(classes, 6 * batch, p=chances[place % classes])) for place in range(8)}
        scales = Standardiser(np.zeros(width, dtype=np.float32), np.ones(width, dtype=np.float32))
        make = partial(SoftmaxTrainer, standardiser=scales, classes=classes, learning_rate=0.1)
        server = selective_audit.Server(make, drawn(np.arange(40) % classes), classes)
        weights = 0.1 * rng.normal(size=server.layout.dimension).astype(np.float32)
        noise = None if weak else calibrate_participant(epsilon=1.0, delta=1e-5, uploads=6, clip=1.0)
        sharing = Sharing(1.0, select="largest" if weak else "random", noise=noise)
        cost = compose_sharing(sharing, dimension=server.layout.dimension, uploads=6, delta=1e-5)
        if chosen:
            weights = selective_audit.chosen_weights(server, weights)
        seen = selective_audit.play(server, own, sharing, weights, batch=batch)
        read = getattr(selective_audit, attack)
        found = read(server, seen, weights="uploads", statement=sharing_statement(cost))
        last: Finding = found if isinstance(found, Finding) else found[-1]
        return last

    return trial


# Updates, coalitions and pictures


def _one_step(weak: bool) -> Finding:
    from blindsight.audit.leakage.schemes import attack_schemes, leaky_cases, scheme_findings
    from blindsight.data import load

    digits = load("digits").images
    assert digits is not None
    rows = digits[:200, ..., 0].reshape(200, -1) / 255
    cases = leaky_cases(rows, random_state=0)[:1]
    return scheme_findings(attack_schemes(cases, schemes=["plain" if weak else "masks"], random_state=0))[0]


def _batches(weak: bool) -> Finding:
    from blindsight.audit.leakage import networks
    from blindsight.data import load

    digits, gradient, rng = load("digits"), networks._gradient, np.random.default_rng(0)
    assert digits.images is not None

    def noisy(*given: Any) -> Any:
        clean = gradient(*given)
        return clean / max(1.0, float(np.linalg.norm(clean))) + rng.normal(size=clean.shape)

    pictures, labels = digits.images[:50, ..., 0] / 255.0, np.asarray(digits.labels)[:50]
    with nullcontext() if weak else patch.object(networks, "_gradient", noisy):
        found = networks.attack_batches(pictures, labels, batches=(1,), uploads=(1.0,), random_state=0)
    return networks.batch_findings(found)[0]


def _singles(weak: bool) -> Finding:
    from blindsight.audit.leakage.study import attack_singles, single_findings

    least = 1 if weak else 3
    leak = attack_singles(minimum_per_position=least, dimension=200, key_bits=1024, insecure=True, random_state=0)
    return single_findings([leak])[0]


def _coalition(weak: bool) -> Finding:
    from blindsight.audit.collusion import attack_round, findings, play
    from blindsight.sums import masks

    add, rng = masks.add_masks, np.random.default_rng(1)

    def forgetful(vector: Any, added: Any) -> None:
        add(vector, [mask for mask in added if not mask[1].startswith(b"pair")])

    updates = {f"owner {number}": rng.normal(size=300) for number in range(5)}
    with patch.object(masks, "add_masks", forgetful) if weak else nullcontext():
        done = {one.kind: one for one in attack_round(play("masks", updates), random_state=0)}
    return findings([done["aggregator and one member fewer than the threshold"]])[0]


@cache
def _views() -> dict[str, Finding]:
    """Return what is drawn of faces from each view of a masked round."""
    from blindsight.audit import inversion
    from blindsight.data import load

    faces = load("faces", count=400, random_state=0, pictures_per_person=5)
    with patch.multiple(inversion, _PROBES=30, _COMPONENTS=40):
        seen = inversion.portraits(faces, public="smiling", private="male", scheme="masks")
    return {row.details["view"]: row for row in reversed(seen.findings)}


def _drawn(weak: bool) -> Finding:
    return _views()["plain" if weak else "aggregator"]


# Indexes


@cache
def _index(mode: str) -> tuple[Any, Path]:
    """Return an index of a few digits, in a folder that goes when the process does."""
    from blindsight.search.building import BuildOptions, build_gallery
    from blindsight.search.gallery import Source

    folder = TemporaryDirectory(prefix="blindsight-audit-")
    wish = {
        "local": BuildOptions("local", 2.0, 1e-6, 64, public_share=0.3),
        "open": BuildOptions("open", None, 1e-6, 32, hold_out=20),
    }
    build_gallery(Source("digits", count=300), wish[mode], Path(folder.name) / "index")
    return folder, Path(folder.name) / "index"


def _index_check(name: str, weak_mode: str, plant: Callable[[], Any] = nullcontext) -> Trial:
    """Return the trial of a check of an index: with a weakness, and of a sound local one."""

    def trial(weak: bool) -> Finding:
        from blindsight.audit.index_audit import plan_index

        folder = _index(weak_mode if weak else "local")[1]
        (check,) = (one for one in plan_index(folder, random_state=0).checks if one.name == name)
        with plant() if weak else nullcontext():
            return check.run(0.25).findings[0]

    return trial


def _attribute(weak: bool) -> Finding:
    from blindsight.audit.index_audit import attribute_finding
    from blindsight.search.symbols import KaryResponse

    answers = np.arange(600) % 10
    held = answers if weak else KaryResponse(10, 0.1).release(answers)
    return attribute_finding(np.eye(10, dtype=np.float32)[held], answers, "local", 0.1, random_state=0)


def _drawn_again() -> Any:
    from blindsight.search.releases import Book

    return patch.object(Book, "unchanged", lambda book, ids, digests, **how: np.zeros(len(ids), dtype=np.bool_))


def _counting_copies() -> Any:
    return patch("blindsight.search.building.EQUAL_CONTENTS", "")


def _stored(weak: bool) -> Finding:
    from blindsight.audit.index_audit import truth_finding
    from blindsight.search.gallery import Gallery
    from blindsight.search.localmode import LocalHasher

    hasher = Gallery.load(_index("local")[1]).hasher
    assert isinstance(hasher, LocalHasher)
    truth = np.arange(2000) % hasher.k_
    bare = np.array([int(np.argmax(hasher.design_.sets[:, symbol])) for symbol in truth])
    return truth_finding(hasher, truth, bare if weak else hasher.design_.release(truth), "the statement of the index")


def _anchors(weak: bool) -> Finding:
    from blindsight.audit.index_audit import anchors_finding
    from blindsight.search.hashers import SDH, KernelHash

    rng = np.random.default_rng(0)
    private, public = (rng.normal(size=(200, 8)).astype(np.float32) for _ in range(2))
    function = SDH(8, anchors=20, random_state=0).fit(private if weak else public, rng.integers(0, 3, 200)).function_
    assert isinstance(function, KernelHash)
    return anchors_finding(function, private)


# Sifts


def _sifted() -> tuple[Any, Any]:
    """Return rows whose second feature shows a hidden attribute, and a verifier with two quick attackers."""
    from blindsight.sift.attackers import PAPER
    from blindsight.sift.verificationset import VerificationSet
    from blindsight.sift.verify import Verifier

    rng = np.random.default_rng(1)
    hidden = rng.integers(0, 2, 4000).astype(np.int8)
    X = rng.normal(size=(4000, 4))
    X[:, 1] = 2 * hidden - 1 + 0.5 * X[:, 1]
    data = VerificationSet(X.astype(np.float32), {"hidden": hidden})
    return data, Verifier(PAPER[:1], stop_early=False, cross_fitted=0)


def _linear(*weights: float) -> Any:
    from blindsight.sift.sift import LinearSift

    matrix = np.zeros((4, 1), dtype=np.float32)
    matrix[: len(weights), 0] = weights
    return LinearSift(np.zeros(4, dtype=np.float32), np.ones(4, dtype=np.float32), matrix)


def _pooled(weak: bool) -> Finding:
    from blindsight.audit.sift_audit import pool_sifts, pooled_finding

    data, verifier = _sifted()
    apps = [_linear(1, 0.1), _linear(1, -0.1)] if weak else [_linear(0, 0, 1), _linear(0, 0, 0, 1)]
    return pooled_finding(pool_sifts(apps, ["hidden"], data, verifier))


def _frames(weak: bool) -> Finding:
    from blindsight.audit.sift_audit import average_frames, frames_findings

    rng, verifier = np.random.default_rng(0), _sifted()[1]
    hidden, persons = rng.integers(0, 2, 1500).astype(np.int8), np.repeat(np.arange(1500), 10)
    shown = 0.3 * hidden[persons] + (rng.normal(size=15_000) if weak else rng.normal(size=1500)[persons])
    found = average_frames(shown[:, None], {"hidden": hidden[persons]}, persons, verifier, frames=(1, 10))
    return frames_findings(found)[-1]


def _hidden(weak: bool) -> Finding:
    from blindsight.audit.sift_audit import hiding_finding, search_hiding_places
    from blindsight.sift.attackers import PAPER

    data, verifier = _sifted()
    whole = np.rint(100 * np.random.default_rng(2).normal(size=(4000, 1)))
    released = whole + 0.001 * (1 + data.labels["hidden"][:, None]) if weak else whole
    places = search_hiding_places(released, {"hidden": data.labels["hidden"]}, verifier, PAPER[0])
    return hiding_finding(places, "a policy")


@cache
def _tried(name: str) -> Any:
    from blindsight.audit.siftclaims import HOLES

    return HOLES[name](np.random.default_rng(0), 3000)


def _hole(name: str) -> Trial:
    """Return the trial of a way around a verdict: under an earlier rule, and under the rule that keeps it in."""

    def trial(weak: bool) -> Finding:
        hole = _tried(name)
        found: Finding = (replace(hole, now=hole.before) if weak else hole).finding()
        return found

    return trial


_SIFT = "an app that writes its own sift"

ATTACKS: tuple[Attack, ...] = (
    Attack(
        name="neighbouring inputs",
        needs="running the mechanism many times on two inputs",
        breaks="a claimed epsilon",
        weakness="Laplace noise of half the scale",
        repair="the whole scale",
        seconds=0.1,
        trial=_neighbours,
    ),
    Attack(
        name="canaries in one run",
        needs="one run with records whose presence a coin decides",
        breaks="a claimed epsilon",
        weakness="PHashing as published, at epsilon 1",
        repair="local mode at epsilon 1",
        seconds=2,
        trial=_canaries,
    ),
    Attack(
        name="Gaussian trade-off",
        needs="running a mechanism whose noise is Gaussian on two inputs",
        breaks="a claimed epsilon and delta",
        weakness="sums with 70% of their noise",
        repair="all of it",
        seconds=2,
        trial=_gaussian,
    ),
    Attack(
        name="loss threshold",
        needs="the model, and the row in question",
        breaks="who was trained on stays unknown",
        weakness="a nearest-neighbour model",
        repair="a classifier that never saw the rows",
        seconds=1,
        trial=_members("loss threshold"),
    ),
    Attack(
        name="likelihood ratio (LiRA)",
        needs="the model, the row, and data for shadow models",
        breaks="who was trained on stays unknown",
        weakness="a classifier with fewer rows than dimensions",
        repair="one that never saw the rows",
        seconds=2,
        trial=_members("likelihood ratio"),
    ),
    Attack(
        name="relative likelihood (RMIA)",
        needs="the model, the row, and data for few shadow models",
        breaks="who was trained on stays unknown",
        weakness="a classifier with fewer rows than dimensions",
        repair="one that never saw the rows",
        seconds=2,
        trial=_members("RMIA"),
    ),
    *(
        Attack(
            name=name,
            needs="the parameter server" + (", which chooses the weights" if chosen else ""),
            breaks=breaks,
            weakness="selective sharing without noise",
            repair="noise for a participant, epsilon 1",
            seconds=2,
            trial=_uploads(attack, batch=batch, chosen=chosen),
        )
        for name, breaks, attack, batch, chosen in (
            ("classes in uploads", "who has which classes stays unknown", "class_finding", 16, False),
            ("fishing for classes", "who has which classes stays unknown", "class_finding", 16, True),
            ("members of batches", "which photos are in a batch stays unknown", "member_findings", 16, False),
            ("photos in rows of a layer", "photos stay unseen", "photo_finding", 1, False),
        )
    ),
    Attack(
        name="attributes in an index",
        needs="the index, and the classes of some of its pictures",
        breaks="an epsilon bounds how often the class of a picture is told",
        weakness="symbols without noise",
        repair="noise, epsilon 0.1",
        seconds=0.1,
        trial=_attribute,
    ),
    Attack(
        name="a sample from one step",
        needs="an update, and the usual learning rates",
        breaks="an update does not show what was learned from",
        weakness="a plain update (nobody denies it)",
        repair="what the aggregator of masks receives",
        seconds=1,
        trial=_one_step,
    ),
    Attack(
        name="gradient matching",
        needs="the gradient of a small batch, and the network",
        breaks="a gradient does not show its pictures",
        weakness="the gradient of one picture",
        repair="clipped, with Gaussian noise",
        seconds=12,
        trial=_batches,
    ),
    Attack(
        name="weights of single owners",
        needs="the sum",
        breaks="nobody reads from the sum what one owner changed",
        weakness="minimum_per_position = 1, as published",
        repair="minimum_per_position = 3",
        seconds=2,
        trial=_singles,
    ),
    Attack(
        name="pictures from updates",
        needs="the aggregator's view, and public pictures",
        breaks="nobody draws a face from what an aggregator receives",
        weakness="a plain update",
        repair="what the aggregator of masks receives",
        seconds=5,
        trial=_drawn,
    ),
    Attack(
        name="coalitions",
        needs="the aggregator with members or the key generator",
        breaks="too few members and the aggregator read nothing of another",
        weakness="masks between members are forgotten",
        repair="the real masks",
        seconds=1,
        trial=_coalition,
    ),
    Attack(
        name="differencing attempts",
        needs="the server, or the network",
        breaks="one sum is opened of what members learned from one model",
        weakness="a key generator that forgets what it opened",
        repair="the real one",
        seconds=1,
        trial=_hostile("differencing attempts", "bfv", _without_memory),
    ),
    Attack(
        name="differencing rounds",
        needs="the server, and two rounds of nearly equal models",
        breaks="sums of several rounds tell nothing of one member",
        weakness="sums without noise (the statement admits it)",
        repair="noise inside the sums, epsilon 1",
        seconds=0.5,
        trial=_differenced_rounds,
    ),
    Attack(
        name="inconsistent drop-out sets",
        needs="the server with two of five members",
        breaks="masks open no sum of fewer than two others",
        weakness="a threshold just above half",
        repair="the real threshold",
        seconds=0.3,
        trial=_hostile("inconsistent drop-out sets", "masks", _low_threshold),
    ),
    Attack(
        name="chosen ciphertexts",
        needs="the server",
        breaks="nothing is opened but the checked sum",
        weakness="a key generator without its check of the sum",
        repair="with it",
        seconds=1.5,
        trial=_hostile("chosen ciphertexts", "bfv", _without_lattice_check),
    ),
    Attack(
        name="refusals as an oracle",
        needs="the server",
        breaks="what fails uses up its round",
        weakness="a key generator whose refusals cost nothing",
        repair="the real one",
        seconds=1.5,
        trial=_hostile("chosen ciphertexts", "bfv", _patient, row=1),
    ),
    Attack(
        name="malleable copies",
        needs="a member that is shown what the others sent",
        breaks="a member cannot make the sum out of what others sent",
        weakness="DPHE without its tags",
        repair="with them",
        seconds=1.5,
        trial=_hostile("malleable copies", "dphe", _without_tags),
    ),
    Attack(
        name="malleable copies, of a member with the server",
        needs="a member and the server",
        breaks="a member cannot make the sum out of what others sent",
        weakness="DPHE (its statement admits it)",
        repair="masks",
        seconds=1.5,
        trial=_copies_with_the_server,
    ),
    Attack(
        name="a model of its own for each member",
        needs="the server",
        breaks="members contribute to one sum from one model only",
        weakness="calls that are not bound to the model",
        repair="the real calls",
        seconds=0.3,
        trial=_hostile("a model of its own for each member", "masks", _unbound_model),
    ),
    Attack(
        name="one member ends the run",
        needs="a member that signs garbage",
        breaks="what does not fit is refused for that member alone",
        weakness="a server that raises what nobody catches",
        repair="the real one",
        seconds=0.5,
        trial=_hostile("one member ends the run", "masks", _fragile),
    ),
    Attack(
        name="forged contributor counts",
        needs="a member",
        breaks="what two members sent is not opened where three must have",
        weakness="counts that nobody compares with senders",
        repair="compared",
        seconds=1.5,
        trial=_hostile("forged contributor counts", "dphe", _uncompared_counts),
    ),
    Attack(
        name="training that fails on data",
        needs="a server that chooses the weights",
        breaks="failures of selective sharing tell nothing of a photo",
        weakness="failures as they happen",
        repair="noise outside training",
        seconds=0.2,
        trial=_failing,
    ),
    Attack(
        name="stored releases",
        needs="the owner's pictures, and the index",
        breaks="every stored release carries its noise",
        weakness="true symbols in the index",
        repair="releases of the mechanism",
        seconds=2,
        trial=_stored,
    ),
    Attack(
        name="building again",
        needs="two versions of an index",
        breaks="noise does not average out",
        weakness="releases that are drawn again",
        repair="releases that are kept",
        seconds=2,
        trial=_index_check("building again", "local", _drawn_again),
    ),
    Attack(
        name="public bytes",
        needs="the public files of neighbouring folders",
        breaks="what is published depends on a picture through its release alone",
        weakness="a file that counts equal pictures",
        repair="the real files",
        seconds=3,
        trial=_index_check("public bytes", "local", _counting_copies),
    ),
    Attack(
        name="a picture taken again",
        needs="the index, and another capture of a picture",
        breaks="who has a picture cannot tell which entry it is",
        weakness="an open index",
        repair="a local one, epsilon 2",
        seconds=2,
        trial=_index_check("finding a picture taken again", "open"),
    ),
    Attack(
        name="anchors of a hash function",
        needs="the hash function",
        breaks="a hash function does not hold the pictures it was learned from",
        weakness="anchors that are training rows",
        repair="anchors from public rows",
        seconds=0.5,
        trial=_anchors,
    ),
    Attack(
        name="apps that pool their sifts",
        needs="two apps with sifts of one picture",
        breaks="what is private is not read",
        weakness="two sifts whose difference shows it (their statements admit it)",
        repair="two sifts of noise",
        seconds=2,
        trial=_pooled,
    ),
    Attack(
        name="several frames of a person",
        needs="an app with ten frames of a person",
        breaks="what is private is not read",
        weakness="noise of its own for each frame (the statement admits it)",
        repair="one release for each person",
        seconds=3,
        trial=_frames,
    ),
    Attack(
        name="hiding places",
        needs=_SIFT,
        breaks="nothing is hidden in other units or digits",
        weakness="the attribute behind the decimal point",
        repair="whole numbers",
        seconds=2,
        trial=_hidden,
    ),
    *(
        Attack(
            name=name,
            needs=_SIFT,
            breaks="what is private is read at most the threshold better than by a blind guess",
            weakness="an earlier rule",
            repair=repair,
            seconds=seconds,
            trial=_hole(name),
        )
        for name, repair, seconds in (
            ("a release too wide for the rows", "a learning curve", 20),
            ("a sift fitted to answers", "one error for all tries", 3),
            ("the difference of two frames", "every frame's label, given the window", 2),
            ("a frame that switches a sift", "the support of the verification rows", 0.5),
            ("an overflow as a symbol", "a fixed release, counted", 0.5),
            ("a jackpot symbol", "a bound on how many a symbol gives away", 0.5),
            ("the XOR of two attributes", "joint attackers", 8),
            ("symbols of few rows, judged by attackers", "certificate or refusal", 1),
        )
    ),
)
"""Every attack, in the order of the rooms that it attacks."""
