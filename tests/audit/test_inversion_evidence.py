"""What each party holds: everything in the clear, nothing at the aggregator, a few numbers from a sift."""

import numpy as np
import pytest

from blindsight.audit.inversion.evidence import aggregator_samples, plain_samples, sifted_rows
from blindsight.errors import UnknownNameError
from blindsight.sift import LinearSift
from blindsight.sift.layers import Layers
from blindsight.sift.quantiser import Quantiser
from blindsight.sift.symbolsift import SymbolSift


def samples(rows, seed=0, size=150):
    """Features as they are: some far larger than others."""
    sizes = 10 / np.sqrt(1 + np.arange(size))
    return (sizes * np.random.default_rng(seed).normal(1, 2, size=(rows, size))).astype(np.float32)


def cosines(left, right):
    return np.sum(left * right, axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)


def test_a_plain_update_gives_the_features_away_with_sign_and_length():
    features = samples(5)
    assert plain_samples(features) == pytest.approx(features, rel=1e-5, abs=1e-5)


def test_the_aggregator_reads_a_plain_round_without_being_told_where_to_look():
    features = samples(20)
    found = aggregator_samples(features, samples(50, seed=1), scheme="plain")
    assert np.mean(cosines(found, features) > 0.99) >= 0.6


@pytest.mark.parametrize("scheme", ["masks", "block-dphe"])
def test_the_aggregator_of_a_hidden_round_reads_noise_that_looks_like_features(scheme):
    rng = np.random.default_rng(0)
    features, public = (rng.normal(size=(rows, 200)).astype(np.float32) for rows in (10, 50))
    found = aggregator_samples(features, public, scheme=scheme, key_bits=1024, insecure=True)
    # Features in uniformly random directions: a cosine with any other vector beyond .5 has P < 1e-11.
    assert np.abs(cosines(found, features)).max() < 0.5
    lengths = np.linalg.norm(public, axis=1)
    assert (np.linalg.norm(found, axis=1) >= 0.999 * lengths.min()).all()
    assert (np.linalg.norm(found, axis=1) <= 1.001 * lengths.max()).all()


def test_an_unknown_scheme_is_refused():
    with pytest.raises(UnknownNameError, match="block-dphe"):
        aggregator_samples(samples(3), samples(3), scheme="block")


def test_real_numbers_of_a_sift_stay_and_symbols_become_one_hot():
    features = samples(12, size=3)
    linear = LinearSift(np.zeros(3), np.ones(3), np.eye(3)[:, :2])
    assert np.array_equal(sifted_rows(linear, features), features[:, :2])
    layers = Layers(np.zeros(3), np.ones(3), (np.eye(3),), (np.zeros(3),))
    symbols = SymbolSift(layers, np.eye(3)[:, [0, 1, 2, 0]], np.zeros(4), (2, 2))
    rows = sifted_rows(symbols, features)
    assert np.array_equal(np.flatnonzero(rows), 4 * np.arange(12) + symbols.symbols(features))
    edges = np.tile(np.linspace(-5, 5, 255), (2, 1))
    rounded = LinearSift(np.zeros(3), np.ones(3), np.eye(3)[:, :2], Quantiser(edges))
    assert rounded.alphabet == 256**2
    assert np.array_equal(sifted_rows(rounded, features), rounded.apply(features))
