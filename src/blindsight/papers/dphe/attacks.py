"""What aggregator and users of DPHE learn of an update (Yonetani et al., ICCV 2017; supplement, section 2).

*The aggregator's view* (`attack_schemes`). A plain update gives its sample away (supplement, Eqs. 1 to 6: the attack
works; a part of an update shows a part), and the aggregator of an encrypted or masked round must do no better than
chance, in the values it guesses and in the places it sees. Views are read by `audit.views`.

*Is a guess better than chance?* Exact tests, whatever the guesses look like.

- *Values.* The audit hides the truth in a `Disguise`: its entries in a uniformly random order, with random signs, which
  nobody else knows. The score of a set of guesses is the largest |cosine| of any of them with the disguised truth, as
  if the attacker knew which to choose; chance is the same score with other disguises.

    Claim. If the guesses are independent of the truth, p = (1 + scores of chance at least as large) / (1 + trials) has
    P(p <= alpha) <= alpha.
    Proof. Given the guesses, the true disguise and the `trials` others are independent draws from one distribution, so
    the rank of the true score among them all is uniform (ties count against a finding). []

  The claim does not ask that guesses look random; the headers of messages do not, and would otherwise agree by accident
  with the order of a picture's rows.
- *Places.* Of a sparse update an attacker may learn where it is, and nothing of what it is. The score of a set of
  places is the share of the update's squares that lies there (as if all signs were known); chance is the same for
  uniformly random places, which is what places under a secret permutation are.

*Averages.* A user knows the average of N updates and its own, so it knows the sum of the other N - 1. With N = 2 that
*is* the other's update, to the last bit, and every attack on plain updates applies. With N = 3 it is the sum of two, at
a cosine of 1 / sqrt(2) to each if the two have nothing in common, and at more if they have: pictures of one kind do.
Yonetani et al. (2017, section 2.5 and supplement, Theorem 8) ask for N >= 3 because then nobody "can identify" an
update; that is true of its exact value, and not of what it looks like. All schemes here refuse N = 2; only noise helps
beyond it.

*Single owners.* Where one owner alone changed a weight, the sum of all owners is that owner's weight. For N owners who
each change a weight with probability q = 1 - sparsity, independently, the share of the touched weights that a single
one changed is

    N q (1 - q)^(N - 1) / (1 - (1 - q)^N)

(`sums.dphe.single_contributor_share`), 91% at the sparsity of 95.6% and N = 5 that Yonetani et al. (2017)
report: DPHE hides *whose* these weights are, and publishes what they are. `open_session(..., minimum_per_position=m)`
withholds weights that fewer than m owners changed. That protects against whoever sees only the sum. An owner subtracts
its own update first, so for it every count is one less: with m = 2 it still reads the other's weight wherever the two
of them were alone. m = 3 is needed against members. In block DPHE the rule counts who changed the *block*. Owners that
send whole blocks, as `rounds.member.top_blocks` makes them, are protected alike; a weight that one owner alone changed
in a block of several is shown.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.finding import Finding, Verdict, exactly, rate
from blindsight.audit.recovery import (
    RECOVERED,
    Candidate,
    ChanceTest,
    Loss,
    Recovery,
    Vector,
    compare_with_chance,
    cosine,
    gradient_step,
    mean_interval,
    needed_trials,
    random_signs,
    recover_sample,
    single_findings,
    unit_rows,
)
from blindsight.audit.views import OwnerGuesses, Recorder, guesses_from_view
from blindsight.crypto.encoding import FixedPoint
from blindsight.errors import InputError
from blindsight.learn.modules import ParameterLayout
from blindsight.papers.dphe.settings import attack_unknown_settings
from blindsight.papers.selective.gradients import recover_layer_input
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.rounds.member import top_entries
from blindsight.sums import OWN_SCHEMES, SCHEMES
from blindsight.sums.scheme import find_scheme
from blindsight.sums.session import Session, open_session


@dataclass(frozen=True, eq=False)
class Disguise:
    """A random order and random signs of the entries of a vector."""

    order: NDArray[np.int64]
    signs: Vector

    @classmethod
    def draw(cls, size: int, generator: np.random.Generator) -> "Disguise":
        """Return one of all disguises, each as likely as any other."""
        return cls(generator.permutation(size), generator.choice([-1.0, 1.0], size=size))

    def hide(self, vector: NDArray[Any]) -> NDArray[Any]:
        hidden: NDArray[Any] = self.signs * vector[self.order]
        return hidden

    def reveal(self, disguised: NDArray[Any]) -> NDArray[Any]:
        """Undo `hide`."""
        vector = np.empty_like(disguised)
        vector[self.order] = self.signs * disguised
        return vector


def values_test(guesses: Vector, truth: Vector, *, generator: np.random.Generator, false_alarm: float) -> ChanceTest:
    """Test guesses, one per row, of a disguised vector."""
    if guesses.ndim != 2 or guesses.shape[1:] != truth.shape or not len(guesses):
        raise InputError(f"guesses are rows of {truth.size} numbers; got shape {guesses.shape}.")
    if not truth.any():
        raise InputError("the truth is zero: every guess has the same angle with it.")
    rows, unit = unit_rows(guesses), (truth / np.linalg.norm(truth)).astype(np.float32)

    def chance(trials: int) -> NDArray[Any]:
        others = generator.permuted(np.tile(unit, (trials, 1)), axis=1)
        return np.asarray(np.abs(rows @ (others * random_signs(others.shape, generator)).T).max(axis=0))

    return compare_with_chance(float(np.abs(rows @ unit).max()), chance, false_alarm, guesses.shape)


def places_test(
    places: NDArray[np.int64], truth: Vector, *, block: int, generator: np.random.Generator, false_alarm: float
) -> ChanceTest:
    """Test places, numbers of blocks of consecutive entries, against where the truth is."""
    squares = np.add.reduceat(truth**2, np.arange(0, truth.size, block)) / np.sum(truth**2)
    chosen = np.unique(places)
    if chosen.size and not 0 <= chosen[0] <= chosen[-1] < squares.size:
        raise InputError(f"places are blocks 0 to {squares.size - 1}.")

    def chance(trials: int) -> NDArray[Any]:
        others = generator.permuted(np.tile(squares, (trials, 1)), axis=1)
        return np.asarray(others[:, : chosen.size].sum(axis=1))

    return compare_with_chance(float(squares[chosen].sum()), chance, false_alarm, (1, truth.size))


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


_FIXED = FixedPoint(20)  # as `open_session` rounds by default


def others_sum(average: ArrayLike, own: ArrayLike, users: int) -> Vector:
    """Return the sum of everybody else's updates, as each user computes it from the average.

    >>> others_sum([2.0, 1.0], own=[3.0, 0.0], users=2).tolist()
    [1.0, 2.0]
    """
    if users < 2:
        raise InputError(f"an average tells about others if there are any; got {users} users.")
    difference: Vector = users * np.asarray(average, dtype=np.float64) - np.asarray(own, dtype=np.float64)
    return difference


def attack_averages(
    samples: ArrayLike,
    *,
    users: Sequence[int] = (2, 3, 5),
    victims: int = 100,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> tuple[Finding, ...]:
    """Attack one user's update by another's means, for each number of `users` and kind of update, on fresh victims."""
    if victims < 2:
        raise InputError(f"an interval takes two victims or more; got {victims}.")
    generator, found = science(random_state), []
    for number in users:
        owners, figures = tuple(f"owner {index}" for index in range(number)), defaultdict(list)
        for victim in range(victims):
            for case in leaky_cases(samples, random_state=generator, owners=owners):
                figures[case.name].append(_attack_average(case))
            progress(f"attacking averages of {number}", victim + 1, victims)
        found += [_average_finding(number, name, np.array(rows).T) for name, rows in figures.items()]
    return tuple(found)


def _attack_average(case: Case) -> tuple[float, float, float, float]:
    """Let the last owner attack the first; return cosines of update and sample with the truth, each with a blind one.

    Blind is a user that takes its own update and sample for the victim's: samples of one kind resemble each other.
    """
    encoded = {owner: _FIXED.encode(update) for owner, update in case.updates.items()}
    curious, sent = list(encoded)[-1], case.updates[case.victim]
    total = _FIXED.decode(np.sum(list(encoded.values()), axis=0))
    rest = others_sum(total / len(encoded), _FIXED.decode(encoded[curious]), len(encoded))
    return (
        cosine(rest, sent),
        cosine(case.updates[curious], sent),
        case.attack(rest).closest(case.sample),
        abs(cosine(case.samples[curious], case.sample)),
    )


def _average_finding(users: int, case: str, figures: Vector) -> Finding:
    update, blind, sample, blind_sample = figures
    gain, two = mean_interval(update - blind), users == 2
    return Finding(
        claim=f"with N = {users} users nobody identifies another's update from the average",
        source="nobody (the paper asks for N >= 3)" if two else "Yonetani et al. 2017, Theorem 8",
        proven="false: the average minus one's own is the other's" if two else "of exact values, not of resemblance",
        measure="cosine of the sum of the others with another user's update",
        measured=mean_interval(update),
        verdict="leaks" if gain.low > 0 else "at chance",
        attack=f"{case}: a user subtracts its own update",
        details={
            "users": users,
            "victims": len(update),
            "least_update_cosine": float(update.min()),
            "blind_update_cosine": float(blind.mean()),
            "gain": gain.value,
            "sample_cosine": float(sample.mean()),
            "least_sample_cosine": float(sample.min()),
            "blind_sample_cosine": float(blind_sample.mean()),
        },
    )


def attack_singles(
    *,
    members: int = 5,
    dimension: int = 1000,
    sparsity: float = 0.956,
    minimum_per_position: int = 1,
    scheme: str = "dphe",
    whole_blocks: bool = True,
    key_bits: int = 3072,
    insecure: bool = False,
    random_state: int | np.random.Generator | None = None,
    source: ByteSource = system_bytes,
    progress: Progress = silent,
) -> tuple[Finding, ...]:
    """Play a round of owners with independent supports and read single owners' weights from its sum.

    In block DPHE each owner changes `whole_blocks` or, if not, single weights.
    """
    if not find_scheme(scheme).sparse:
        raise InputError(f"singles are those of a sparse scheme, dphe or block-dphe; got {scheme!r}.")
    if not 0 < sparsity < 1:
        raise InputError(f"sparsity must be in (0, 1); got {sparsity}.")
    names, generator = tuple(f"owner {number}" for number in range(members)), science(random_state)
    session = open_session(
        scheme,
        members=names,
        dimension=dimension,
        minimum_per_position=minimum_per_position,
        key_bits=key_bits,
        insecure=insecure,
        source=source,
    )
    block = session.block if whole_blocks else 1
    changed = np.repeat(generator.random((members, -(-dimension // block))) >= sparsity, block, axis=1)[:, :dimension]
    updates = np.where(changed, generator.normal(size=(members, dimension)), 0.0)
    progress("a round of sparse updates", 0, 1)
    total = session.round(dict(zip(names, updates, strict=True)), 0).total
    progress("a round of sparse updates", 1, 1)
    integers = np.array([session.terms.integers(update) for update in updates])
    return tuple(single_findings(integers, total, scheme, minimum_per_position, scattered=block < session.block))


def study_leakage(
    private: ArrayLike,
    public: ArrayLike,
    *,
    victims: int = 50,
    false_alarm: float = 0.01,
    key_bits: int = 3072,
    insecure: bool = False,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> tuple[Finding, ...]:
    """Run every attack on private samples (one per row), with public ones of the same kind to compare with.

    Cost grows with `victims`, 1 / `false_alarm` and `key_bits`, and with the number of features; a minute is ample for
    64 of them. Gradients of small batches, which are attacked with torch, are a study of their own (`networks`).
    """
    generator = science(random_state)
    keys: dict[str, Any] = {"key_bits": key_bits, "insecure": insecure, "progress": progress, "random_state": generator}
    cases = leaky_cases(private, random_state=generator)
    schemes = attack_schemes(cases, schemes=("plain", "dphe"), false_alarm=false_alarm, **keys)
    singles = [row for least in (1, 2, 3) for row in attack_singles(minimum_per_position=least, **keys)]
    many: dict[str, Any] = {"victims": victims, "random_state": generator, "progress": progress}
    unknown = [
        attack_unknown_settings(private, public, loss=loss, bias=bias, **many)
        for loss in get_args(Loss)
        for bias in (False, True)
    ]
    return (*unknown, *schemes, *attack_averages(private, **many), *singles)


def trained_step_findings(
    samples: ArrayLike, labels: ArrayLike, *, steps: int = 200, random_state: int | np.random.Generator | None = None
) -> tuple[Finding, ...]:
    """Recover samples from hinge steps of a trained model: those beyond the margin send nothing, all others themselves.

    `labels` are -1 or 1. The model is trained on half of the samples; steps are made on the others. Other findings
    begin at weights that have yet to learn, where every sample is within the margin.
    """
    from sklearn.svm import LinearSVC

    rows, signs = np.asarray(samples, dtype=np.float64), np.asarray(labels)
    order = science(random_state).permutation(len(rows))
    known, asked = order[: len(rows) // 2], order[len(rows) // 2 :][:steps]
    model = LinearSVC(loss="hinge", fit_intercept=False, random_state=0, max_iter=20_000).fit(rows[known], signs[known])
    weights = model.coef_[0]
    within = signs[asked] * (rows[asked] @ weights) <= 1
    shown = np.zeros(len(asked), dtype=np.bool_)
    for place, row in enumerate(asked):
        after = gradient_step(weights, rows[row : row + 1], [signs[row]], loss="hinge", learning_rate=0.1)
        shown[place] = recover_sample(weights, after, 0.1).closest(rows[row]) >= RECOVERED
    groups = {"within the margin": within, "beyond the margin": ~within}
    return tuple(
        Finding(
            claim=f"a hinge step of a trained model does not show a sample {name} ({group.sum()} of {len(asked)})",
            source="nobody",
            proven="false: the step is the sample" if group is within else "nothing is sent",
            measure="share of samples recovered",
            measured=rate(int(shown[group].sum()), int(group.sum())),
            verdict="leaks" if shown[group].any() else "not refuted",
            attack="a step of SGD on one sample, by a linear SVM trained on others",
            details={"steps": len(asked), "with margins of one at most": int(within.sum())},
        )
        for name, group in groups.items()
        if group.any()
    )
