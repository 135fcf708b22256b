"""Each cheating sift passes the published verifier while the app reads the private attribute, and meets its fate here.

Statistical margins: a blind guess on 1,500 test rows has a deviation of .013; all thresholds lie beyond five of them.
"""

import numpy as np
import pytest

from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy
from blindsight.sift.attackers import MODERN, PAPER
from blindsight.sift.certificate import certify
from blindsight.sift.cheats import collinear_pair, low_digits, xor_hash
from blindsight.sift.harden import harden
from blindsight.sift.verify import Verifier

N, D, APP = 5000, 30, 2000


@pytest.fixture(scope="module")
def people():
    """Whole-number features that tell a public and, independently, a private attribute: X, public, private."""
    rng = np.random.default_rng(0)
    public, private = rng.integers(0, 2, (2, N)).astype(np.int8)
    told = np.outer(public - 0.5, rng.standard_normal(D)) + np.outer(private - 0.5, rng.standard_normal(D))
    return np.clip(np.rint(128 + 40 * (0.6 * told + rng.standard_normal((N, D)))), 0, 255), public, private


def built(make, people, **options):
    """The cheat as an app builds it from its own rows, and the platform's rows."""
    X, public, private = people
    return make(X[:APP], public[:APP], private[:APP], **options), X[APP:], private[APP:]


def published(released, private):
    """PrivLoss by the five attackers of the paper."""
    return Verifier(PAPER, stop_early=False).verify(released, {"private": private}).priv_loss


def decoded(cheat, released, private):
    """PrivLoss by the app's own decoder."""
    return balanced_accuracy(private, cheat.decode(released)) - 0.5


@pytest.mark.parametrize("make", [collinear_pair, low_digits, xor_hash])
def test_the_published_verifier_is_fooled(make, people):
    cheat, X, private = built(make, people)
    released = cheat.release(X)
    assert decoded(cheat, released, private) > 0.35
    assert published(released, private) < 0.07
    assert abs(np.corrcoef(released[:, 0], people[1][APP:])[0, 1]) > 0.5  # and the app serves its public attribute


def test_collinear_pair_is_seen_when_whitened_and_harmless_when_hardened(people):
    cheat, X, private = built(collinear_pair, people)
    screen = [attacker for attacker in MODERN if attacker.view == "whitened"][:1]
    assert Verifier(screen).verify((cheat.sift, X), {"private": private}).verdict == "reject"
    hardened = harden(cheat.sift, people[0][:APP])
    assert hardened.width == 1  # the difference is gone, so there is nothing to decode
    verification = Verifier(screen).verify((hardened, X), {"private": private})
    assert verification.verdict == "accept"


def test_low_digits_are_rounded_away(people):
    cheat, X, private = built(low_digits, people)
    hardened = harden(cheat.sift, people[0][:APP])
    released = hardened.apply(X)
    assert abs(decoded(cheat, released, private)) < 0.07
    assert published(released, private) < 0.07
    assert abs(np.corrcoef(released[:, 0], people[1][APP:])[0, 1]) > 0.5  # what an honest app wants is still there


def test_xor_with_a_hash_is_no_sift(people):
    cheat, X, private = built(xor_hash, people)
    assert cheat.sift is None
    with pytest.raises(InputError, match="a pair of a sift and features"):
        Verifier(PAPER[:1]).verify((cheat, X), {"private": private})
    with pytest.raises(InputError, match="Quantise real numbers to few levels"):
        certify(cheat.release(X), private, confidence=0.95)


def test_xor_with_a_hash_cannot_hide_among_few_symbols(people):
    cheat, X, private = built(xor_hash, people, levels=8)
    symbols = cheat.release(X)
    loss = decoded(cheat, symbols, private)
    assert loss > 0.35
    certificate = certify(symbols, private, confidence=0.95)
    assert certificate.symbols == 16
    assert loss <= certificate.estimate <= certificate.bound
    assert Verifier().verify(symbols, {"private": private}, certified=True).verdict == "reject"


def test_low_digits_need_whole_numbers(people):
    X, public, private = people
    with pytest.raises(InputError, match="whole-number features"):
        low_digits(X / 2, public, private)
