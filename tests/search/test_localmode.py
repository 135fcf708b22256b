"""Local mode end to end: what is released, what it loses, what it finds, and that private data never enter."""

import itertools

import numpy as np
import pytest

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.metrics import query_average_precision
from blindsight.rng import science, seeded_bytes
from blindsight.search.localmode import LocalHasher


def _mixture(n, kinds=6, dimension=20, seed=0):
    centres = 2.5 * science(99).standard_normal((kinds, dimension))
    generator = science(seed)
    drawn = generator.integers(kinds, size=n)
    return (centres[drawn] + generator.standard_normal((n, dimension))).astype(np.float32), drawn


PUBLIC, CLASSES = _mixture(500)
PRIVATE, LABELS = _mixture(600, seed=1)
QUERIES, WANTED = _mixture(40, seed=2)


@pytest.fixture(scope="module")
def hasher():
    return LocalHasher(3.0, kinds=6).fit(PUBLIC)


@pytest.fixture(scope="module")
def subsets():
    return LocalHasher(0.7, kinds=6, symbols=6, mechanism="subset").fit(PUBLIC)


def _precision(hasher, released):
    relevant = WANTED[:, None] == LABELS
    return query_average_precision(-hasher.scores(QUERIES, released), relevant).mean()


@pytest.mark.parametrize("name", ["hasher", "subsets"])
def test_whole_release_path_loses_exactly_the_mechanisms_loss(name, request):
    fitted = request.getfixturevalue(name)
    # From any two records the released output has probabilities that differ by at most e^loss, and some by that much.
    table = fitted.design_.probabilities()[fitted.codebook_.cells_of(PRIVATE)]
    worst = max(np.abs(np.log(a / b)).max() for a, b in itertools.combinations(np.unique(table, axis=0), 2))
    assert worst == pytest.approx(fitted.mechanism_.loss) == pytest.approx(fitted.epsilon)
    assert fitted.statement().epsilon == fitted.mechanism_.loss


@pytest.mark.parametrize("name", ["hasher", "subsets"])
def test_release_depends_on_the_record_by_its_symbol_alone(name, request):
    fitted = request.getfixturevalue(name)
    symbols = fitted.true_symbols(PRIVATE)
    drawn = fitted.release(PRIVATE, source=seeded_bytes(5))
    np.testing.assert_array_equal(drawn, fitted.design_.release(symbols, source=seeded_bytes(5)))
    assert drawn.dtype == np.int64
    assert 0 <= drawn.min() <= drawn.max() < fitted.outputs_


@pytest.mark.parametrize("name", ["hasher", "subsets"])
def test_scores_are_the_posterior_sum_by_brute_force(name, request):
    fitted = request.getfixturevalue(name)
    codebook, table = fitted.codebook_, fitted.design_.probabilities()
    released = fitted.release(PRIVATE[:25], source=seeded_bytes(1))
    scores, relevance = fitted.scores(QUERIES[:4], released), codebook.relevance_of(QUERIES[:4])
    for query, item in itertools.product(range(4), range(25)):
        likely = codebook.prior * table[:, released[item]]
        expected = sum(p * r for p, r in zip(likely / likely.sum(), relevance[query], strict=True))
        assert scores[query, item] == pytest.approx(expected)
    np.testing.assert_array_equal(scores, fitted.symbol_scores(QUERIES[:4])[:, released])


def test_more_epsilon_finds_more_with_no_fewer_symbols_and_leaves_chance_behind():
    fits = [LocalHasher(epsilon, kinds=6, mechanism="kary").fit(PUBLIC) for epsilon in (0.5, 2.0, 6.0)]
    found = [_precision(fitted, fitted.release(PRIVATE, source=seeded_bytes(3))) for fitted in fits]
    assert found == sorted(found)
    assert found[0] > 1 / 6 + 0.02
    assert found[-1] > 0.9
    assert fits[0].k_ < fits[2].k_
    assert fits[0].k_ <= fits[1].k_ <= fits[2].k_


def test_nothing_private_changes_what_was_learned(hasher):
    before = hasher.digest
    hasher.release(PRIVATE, source=seeded_bytes(0))
    hasher.scores(QUERIES, [0, 1])
    assert hasher.digest == before == LocalHasher(3.0, kinds=6).fit(PUBLIC).digest
    alone = hasher.true_symbols(PRIVATE[3:4])
    np.testing.assert_array_equal(hasher.true_symbols(PRIVATE)[3:4], alone)  # whatever the other records are


def test_public_labels_make_symbols_classes():
    fitted = LocalHasher(6.0).fit(PUBLIC, np.array(list("abcdef"))[CLASSES])
    assert fitted.labelled_
    assert fitted.k_ == 6
    assert (fitted.design_.symbol_of_cell[LABELS] == fitted.true_symbols(PRIVATE)).mean() > 0.97
    assert "labels" in fitted.statement().mechanism
    assert "without labels" not in fitted.statement().mechanism


@pytest.mark.parametrize("name", ["hasher", "subsets"])
def test_files_give_back_the_same_hasher(name, request, tmp_path):
    fitted, path = request.getfixturevalue(name), tmp_path / "hasher.npz"
    fitted.save(path)
    again = LocalHasher.load(path)
    assert again.digest == fitted.digest
    assert again.get_params() == fitted.get_params()
    assert type(again.mechanism_) is type(fitted.mechanism_)
    np.testing.assert_array_equal(again.symbol_scores(QUERIES), fitted.symbol_scores(QUERIES))
    drawn = (each.release(PRIVATE, source=seeded_bytes(2)) for each in (again, fitted))
    np.testing.assert_array_equal(next(drawn), next(drawn))
    assert again.statement() == fitted.statement()
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\1\2") - 1] ^= 1  # the last byte of the last array
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        LocalHasher.load(path)


_FITTED = LocalHasher(2.0, kinds=6, max_public=200).fit(PUBLIC)


def test_statement_tells_what_is_not_protected(hasher):
    statement = hasher.statement()
    assert (statement.unit, statement.delta, statement.neighbours) == ("record", 0.0, "replace")
    assert statement.status == "proven"
    assert hasher.statement(source=seeded_bytes(0)).void
    text = " ".join(statement.to_text().split())
    for words in ("public data only", "not noised", "exists", "same person"):
        assert words in text


@pytest.mark.parametrize(
    ("parameters", "labels", "named"),
    [
        *(({"epsilon": epsilon}, None, "epsilon") for epsilon in (0.0, -1.0, float("nan"))),
        *(({"symbols": symbols}, None, "symbols") for symbols in (1, "many")),
        ({"symbols": 501}, None, "501"),
        ({"kinds": 1}, None, "kinds"),
        ({"max_public": 2}, None, "max_public"),
        ({}, [0, 1], "label"),
        ({}, [3] * 500, "got 1"),
    ],
)
def test_bad_parameters_and_labels_are_refused(parameters, labels, named):
    with pytest.raises(InputError, match=named):
        LocalHasher(**{"epsilon": 1.0} | parameters).fit(PUBLIC, labels)


def test_bad_features_are_refused(hasher):
    for rows, named in [
        (np.where(np.isclose(PUBLIC, PUBLIC[0, 0]), np.nan, PUBLIC), "NaN"),
        (PUBLIC[:7], "got 7"),
        (np.tile(PUBLIC[:1], (50, 1)), "alike"),
    ]:
        with pytest.raises(InputError, match=named):
            LocalHasher(1.0).fit(rows)
    with pytest.raises(InputError, match="got 19"):
        hasher.release(PRIVATE[:, :19])
    for queries, released, named in [
        (np.full((1, 20), np.nan), [0], "NaN"),
        (QUERIES, [hasher.outputs_], "codebook"),
        (QUERIES, [0.5], "whole numbers"),
    ]:
        with pytest.raises(InputError, match=named):
            hasher.scores(queries, released)
    with pytest.raises(UnknownNameError, match="laplace"):
        LocalHasher(1.0, mechanism="laplace").fit(PUBLIC)
    with pytest.raises(InputError, match="not fitted"):
        LocalHasher(1.0).release(PRIVATE)
    few = LocalHasher(4.0, kinds=3).fit(PUBLIC[:12])  # few public rows still work
    assert few.release(PRIVATE[:5], source=seeded_bytes(0)).shape == (5,)
    assert len(_FITTED.codebook_.landmarks) == 200  # max_public bounds the codebook
    assert LocalHasher(2.0, max_public=100).fit(PUBLIC, CLASSES).codebook_.cells == 6
