"""What a hostile aggregator can compute from two waves, strategy by strategy, by linear algebra over a prime field.

This knows the protocol as it stands in ``docs/proofs/masks.md`` and none of the code, but for the parameters. A
*strategy* says which model each honest member contributes to in each round, and which set U each holder is shown (or
none). Shares are counted: that opens seeds. Upload u of round r is ``x + PRG(b) + sum of +-PRG(h)``; whoever combines
uploads with coefficients z reads a sum of updates if every mask whose seed is not open cancels. So what is learned is
the space of all z that are orthogonal to the rows of those masks. The theorem says: in each round it has dimension 0,
or is spanned by the indicator of one set of members that contributed to one model, at least h of them.
"""

import itertools
from collections import defaultdict
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from blindsight.errors import InputError
from blindsight.sums.twowave import Parameters, most_colluders, parameters

PRIME = 2**31 - 1


class Broken(NamedTuple):
    """Rules of the protocol that do not hold; none by default."""

    one_polynomial: bool = False  # both owners of a pair deal shares of one polynomial
    seeds_without_model: bool = False  # h_uv is the same for two models
    boxes_without_model: bool = False  # a holder opens boxes of other models than its own
    boxes_without_round: bool = False  # a holder opens boxes of the other round, too
    answers_twice: bool = False
    copies: tuple = ()  # (liar, honest member it copies the key of): pairs are not named in the chains


KEPT = Broken()


@cache
def null_space(rows, width):
    """Return a basis of the vectors that are orthogonal to all rows, in reduced form."""
    rows, pivots = [list(row) for row in rows], []
    for column in range(width):
        rank = len(pivots)
        place = next((i for i in range(rank, len(rows)) if rows[i][column] % PRIME), None)
        if place is None:
            continue
        rows[rank], rows[place] = rows[place], rows[rank]
        inverse = pow(rows[rank][column], -1, PRIME)
        rows[rank] = [value * inverse % PRIME for value in rows[rank]]
        for i, row in enumerate(rows):
            if i != rank and row[column] % PRIME:
                factor = row[column]
                rows[i] = [(a - factor * b) % PRIME for a, b in zip(row, rows[rank], strict=True)]
        pivots.append(column)
    basis = []
    for free in (column for column in range(width) if column not in pivots):
        vector = [0] * width
        vector[free] = 1
        for i, column in enumerate(pivots):
            vector[column] = -rows[i][free] % PRIME
        basis.append(tuple(vector))
    return basis


def learned(n, t, c, models, answers, broken=KEPT):
    """Return the uploads (member, round), and the combinations of them that an aggregator with c liars can read.

    The honest members are 0 ... n - c - 1. `models` has one for each of them and round; `answers` are (holder, round,
    U). The liars add their share of everything, in both kinds.
    """
    honest, rounds = range(n - c), range(len(models[0]))
    copies = dict(broken.copies)
    own, pair = defaultdict(set), defaultdict(set)
    for holder, round, told in answers:
        for owner, dealt in itertools.product(honest, rounds):
            same_round = dealt == round or broken.boxes_without_round
            same_model = models[owner][dealt] == models[holder][round] or broken.boxes_without_model
            if owner in told and same_round and same_model:
                own[owner, dealt].add(holder)
                for other in [*honest, *copies]:
                    if other not in told:
                        pair[owner, other, dealt, models[owner][dealt]].add(holder)
    uploads = [(member, round) for round in rounds for member in honest]
    place, rows = {upload: i for i, upload in enumerate(uploads)}, []

    def opened(holders):
        return len(holders) + c >= t

    def unknown(worn):
        row = [0] * len(uploads)
        for upload, sign in worn:
            row[place[upload]] += sign
        if any(row):
            rows.append(tuple(row))

    for upload in uploads:
        if not opened(own[upload]):
            unknown([(upload, 1)])
    for round, (u, v) in itertools.product(rounds, itertools.combinations(honest, 2)):
        for model in {models[u][round], models[v][round]}:
            met = {models[u][round], models[v][round]} if broken.seeds_without_model else {model}
            sides = [
                set().union(*(pair[one, two, round, it] for it in met))
                for one, other in ((u, v), (v, u))
                for two in (other, *(liar for liar, whose in copies.items() if whose == other))
            ]
            if opened(set().union(*sides)) if broken.one_polynomial else any(map(opened, sides)):
                continue
            worn = []
            for one, other, sign in ((u, v, 1), (v, u, -1)):
                if models[one][round] in met:
                    worn.append(((one, round), sign))
                    worn += [((one, round), 1) for whose in copies.values() if whose == other]  # a liar is after all
            unknown(worn)
    for liar, whose in copies.items():  # the key that a member agrees on with itself
        for round in rounds:
            if not opened(pair[whose, liar, round, models[whose][round]]):
                unknown([((whose, round), 1)])
    return uploads, null_space(tuple(sorted(set(rows))), len(uploads))


def judge(found, models, least):
    """Return how many sums are read, whether more than the theorem allows is, and the smallest sum."""
    uploads, basis = found
    seen, smallest, wrong = set(), len(uploads), False
    for vector in basis:
        members = [upload for upload, value in zip(uploads, vector, strict=True) if value]
        rounds, of = {round for _, round in members}, {models[member][round] for member, round in members}
        plain = all(value in (0, 1) for value in vector) and len(rounds) == len(of) == 1
        wrong |= not plain or bool(rounds & seen) or len(members) < least
        seen |= rounds
        smallest = min(smallest, len(members))
    return len(basis), wrong, smallest


def shown(n, q, holder):
    """Return every set that a holder accepts: it is in it, and so are q members."""
    others = [member for member in range(n) if member != holder]
    return [frozenset((holder, *rest)) for size in range(q - 1, n) for rest in itertools.combinations(others, size)]


class Tally:
    """What a number of strategies came to."""

    def __init__(self, n, t, c, q):
        self.sizes, self.tried, self.read, self.wrong, self.smallest = (n, t, c, q), 0, 0, 0, n
        self.least = -(-(n - c) * (t - c - (n - q)) // (t - c))

    def play(self, models, answers, broken=KEPT):
        n, t, c, _ = self.sizes
        count, wrong, smallest = judge(learned(n, t, c, models, answers, broken), models, self.least)
        self.tried += 1
        self.read += count > 0
        self.wrong += wrong
        self.smallest = min(self.smallest, smallest)


def every_strategy(n, t, c, q, *, rounds=1):
    """Play all strategies with two models (the first member's is 0, up to names)."""
    tally, honest = Tally(n, t, c, q), range(n - c)
    for models in itertools.product(itertools.product((0, 1), repeat=rounds), repeat=n - c):
        if any(models[0]):
            continue
        options = [[None, *shown(n, q, holder)] for _ in range(rounds) for holder in honest]
        for chosen in itertools.product(*options):
            numbered = zip(itertools.product(range(rounds), honest), chosen, strict=True)
            tally.play(models, [(holder, round, told) for (round, holder), told in numbered if told])
    return tally


def leaving_out(n, t, c, q, rng):
    """Leave as many honest members as can be out of what t - c holders are shown: the strategy that meets h."""
    told = {holder: set(range(n)) for holder in range(n - c)}
    for member in rng.permutation(n - c).tolist():
        fullest = sorted((holder for holder in told if holder != member), key=lambda one: (-len(told[one]), one))
        if len(fullest := fullest[: t - c]) == t - c and all(len(told[holder]) > q for holder in fullest):
            for holder in fullest:
                told[holder].discard(member)
    return {holder: frozenset(members) for holder, members in told.items()}


def some_strategies(n, t, c, q, count, *, broken=KEPT, rounds=2, seed=0):
    """Play random strategies: a few sets shown to many, or as many left out as can be; models mixed or not."""
    tally, rng, honest = Tally(n, t, c, q), np.random.default_rng(seed), range(n - c)

    def accepted(holder):
        rest = rng.permutation([member for member in range(n) if member != holder])
        return frozenset((holder, *rest[: rng.integers(q - 1, n)].tolist()))

    for number in range(count):
        mixed = rng.random() < 0.5
        models = [tuple(int(mixed and rng.random() < 0.25) for _ in range(rounds)) for _ in honest]
        answers = []
        for round in range(rounds):
            hidden = [accepted(int(rng.integers(n - c))) for _ in range(rng.integers(1, 4))]
            told = leaving_out(n, t, c, q, rng) if number % 3 == 0 else {}
            for holder in honest:
                if rng.random() > 0.08:
                    few = hidden[rng.integers(len(hidden))] | {holder}
                    answers.append((holder, round, told.get(holder, few if rng.random() < 0.7 else accepted(holder))))
                    if broken.answers_twice and rng.random() < 0.5:
                        answers.append((holder, round, accepted(holder)))
        tally.play(models, answers, broken)
    return tally


# The theorem

SMALL = [(3, 3, 1, 3), (4, 3, 1, 3), (4, 4, 2, 4), (5, 4, 2, 4), (5, 5, 3, 5)]
"""n, t, c, q."""
LARGER = [(5, 4, 1, 4), (6, 5, 3, 5), (6, 5, 2, 5)]


@pytest.mark.parametrize("sizes", [*SMALL, *(pytest.param(sizes, marks=pytest.mark.slow) for sizes in LARGER)])
def test_every_strategy_in_one_round_reads_one_sum_or_nothing(sizes):
    """Lemmas 3 to 7; h is met with equality where a sum can be read at all."""
    tally = every_strategy(*sizes)
    assert tally.wrong == 0
    assert tally.read > 0
    assert tally.smallest == tally.least >= 2


@pytest.mark.parametrize("sizes", [(3, 3, 1, 3), (4, 4, 2, 4), (5, 5, 3, 5)])
def test_every_strategy_in_two_rounds_with_two_models(sizes):
    tally = every_strategy(*sizes, rounds=2)
    assert tally.wrong == 0
    assert tally.smallest == tally.least


@pytest.mark.parametrize("sizes", [(4, 3, 1, 3), (5, 4, 2, 4), (7, 6, 2, 6)])
def test_random_strategies_in_two_rounds(sizes):
    assert some_strategies(*sizes, 250).wrong == 0


@pytest.mark.slow
@pytest.mark.parametrize("n", range(6, 13))
def test_random_strategies_of_larger_cohorts(n):
    usual = parameters(n)
    tally = some_strategies(n, usual.threshold, usual.colluders, usual.quorum, 1500)
    assert tally.wrong == 0
    assert tally.read > 100
    assert tally.smallest >= usual.honest


@pytest.mark.parametrize("n", [5, 10, 20, pytest.param(50, marks=pytest.mark.slow)])
def test_the_bound_is_tight(n):
    """Lemma 7: an aggregator that leaves out as many as it may reads a sum of h honest members, and no smaller one."""
    usual = parameters(n)
    sizes = n, usual.threshold, usual.colluders, usual.quorum
    tally, rng = Tally(*sizes), np.random.default_rng(0)
    for _ in range(4):
        told = leaving_out(*sizes, rng)
        tally.play([(0,)] * (n - usual.colluders), [(holder, 0, members) for holder, members in told.items()])
    assert tally.wrong == 0
    assert tally.smallest == usual.honest


# What breaks it


@pytest.mark.parametrize("sizes", [(4, 3, 2, 3), (5, 3, 1, 3), (6, 4, 2, 4)])
def test_with_too_low_a_threshold_two_sums_are_read(sizes):
    n, t, c, q = sizes
    assert 2 * t <= n + c
    with pytest.raises(InputError, match="2t > n"):
        Parameters(n, c, t, q)
    assert some_strategies(*sizes, 400).wrong > 0


@pytest.mark.parametrize("field", ["answers_twice", "one_polynomial", "boxes_without_round"])
def test_each_rule_is_needed(field):
    broken, found = Broken(**{field: True}), 0
    for sizes in ((5, 4, 2, 4), (7, 6, 2, 6), (7, 5, 2, 5)):
        found += some_strategies(*sizes, 300, broken=broken).wrong
    assert found > 0


def test_boxes_or_seeds_must_be_bound_to_the_model():
    """Either suffices; without both, one sum holds updates from two models."""
    sizes = (5, 4, 1, 4)
    for one in (Broken(seeds_without_model=True), Broken(boxes_without_model=True)):
        assert some_strategies(*sizes, 300, broken=one).wrong == 0
    assert some_strategies(*sizes, 300, broken=Broken(seeds_without_model=True, boxes_without_model=True)).wrong > 0


@pytest.mark.parametrize("n", [4, 5, 7])
def test_a_liar_with_a_copied_key_reads_one_update_if_pairs_are_not_named(n):
    """It is left out of every sum: then the masks towards it are opened, which are those towards its victim."""
    usual = parameters(n)
    told = frozenset(range(n - 1))
    models = [(0,)] * (n - 1)
    answers = [(holder, 0, told) for holder in range(n - 1)]
    for copies in ((), ((n - 1, 0),)):
        _, basis = found = learned(n, usual.threshold, 1, models, answers, Broken(copies=copies))
        assert ((1, *[0] * (n - 2)) in basis) == bool(copies)
        assert judge(found, models, 2)[1] == bool(copies)


# Parameters


@pytest.mark.parametrize(
    ("n", "t", "d", "c", "h", "most"),
    [
        (3, 3, 0, 1, 2, 1),
        (4, 3, 1, 1, 2, 1),
        (5, 4, 1, 2, 2, 2),
        (7, 6, 1, 2, 4, 4),
        (10, 8, 2, 3, 5, 5),
        (20, 16, 4, 7, 8, 11),
        (50, 40, 10, 17, 19, 29),
        (99, 80, 19, 34, 39, 60),
    ],
)
def test_parameters_of_a_cohort(n, t, d, c, h, most):
    found = parameters(n)
    assert (found.threshold, found.drop_outs, found.colluders, found.honest) == (t, d, c, h)
    assert found.quorum == t
    assert most_colluders(n) == most


@pytest.mark.parametrize("n", range(3, 100))
def test_every_size_of_a_cohort_keeps_the_conditions_of_the_theorem(n):
    for least in {0, 3, n}:
        found = parameters(n, least)
        assert 2 * found.threshold > n + found.colluders
        assert found.colluders < found.threshold <= found.quorum <= n
        assert found.quorum >= least
        assert 2 <= found.honest <= n - found.drop_outs - found.colluders


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        ((5, 2, 3, 4), "2t > n"),
        ((4, 3, 3, 4), "t > c"),
        ((5, 2, 4, 3), "t <= q"),
        ((5, 2, 4, 6), "t <= q"),
        ((5, -1, 4, 4), "c >= 0"),
        ((4, 3, 4, 4), "h=1"),
    ],
)
def test_parameters_that_protect_nothing_are_refused(sizes, rule):
    with pytest.raises(InputError, match=rule):
        Parameters(*sizes)
