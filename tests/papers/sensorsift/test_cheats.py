"""Each cheating sift passes the published verifier while the app reads the private attribute, and meets its fate here.

Statistical margins: a blind guess on 1,500 test rows has a deviation of .013; all thresholds lie beyond five of them.
"""

import numpy as np
import pytest

from blindsight.errors import InputError, PrivacyError
from blindsight.metrics import balanced_accuracy
from blindsight.papers.sensorsift.cheats import collinear_pair, low_digits, xor_hash
from blindsight.sift.attackers import MODERN, PAPER
from blindsight.sift.certificate import certify
from blindsight.sift.harden import harden
from blindsight.sift.platform import Platform
from blindsight.sift.sift import LayeredSift, Layers, LinearSift, Quantiser
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

N, D, APP = 4500, 30, 2000


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
    with pytest.raises(InputError, match="whole-number"):
        low_digits(people[0] / 2, *people[1:])


BITS = 6


def parity_network():
    """A declared sift that lets out the signs of features 1 to 6, and the parity of those and of feature 0."""
    inputs = BITS + 1
    sharp, start = np.repeat(1e4 * np.eye(inputs), 2, axis=1), np.tile([1.0, 0.0], inputs)
    sign = np.kron(np.eye(inputs), [[1.0], [-1.0]])  # max(0, tx + 1) - max(0, tx) is 0 or 1
    count = np.repeat(sign.sum(axis=1, keepdims=True), inputs, axis=1)
    teeth = np.array([1.0] + [2.0 * (-1) ** k for k in range(1, inputs)])[:, None]  # of max(0, count - k)
    last = np.block([[np.eye(BITS), np.zeros((BITS, 1))], [np.zeros((inputs, BITS)), teeth]])
    weights = (sharp, np.hstack([sign[:, 1:], count]), last)
    biases = (start, np.r_[np.zeros(BITS), -np.arange(inputs)], np.zeros(inputs))
    return LayeredSift(Layers(np.zeros(inputs), np.ones(inputs), weights, biases), Quantiser([[0.5]] * inputs))


@pytest.fixture(scope="module")
def scrambled():
    """Two rows a person; feature 0 tells what is hidden, the others nothing."""
    rng = np.random.default_rng(1)
    who, hidden = np.repeat(np.arange(3750), 2), np.repeat(rng.integers(0, 2, 3750), 2).astype(np.int8)
    X = rng.normal(size=(7500, BITS + 1)).astype(np.float32)
    X[:, 0] += 4 * (hidden - 0.5)
    return VerificationSet(X, {"hidden": hidden}, who)


def asking(data, verifier):
    """A platform with Ann, who hides something, and two apps."""
    platform = Platform(data, verifier=verifier)
    platform.set_preferences("Ann", ["hidden"])
    for app in ("honest", "evil"):
        platform.add_app(app, ["shown"])
    return platform


@pytest.mark.parametrize("frames", [1, 2])
def test_an_xor_that_is_declared_as_a_network_is_refused(scrambled, frames):
    network, hidden = parity_network(), scrambled.labels["hidden"]
    released = network.apply(scrambled.features)
    assert balanced_accuracy(hidden, released.sum(axis=1) % 2) > 0.95
    fooled = Verifier(PAPER[:1])
    assert fooled.verify(released, {"hidden": hidden}, persons=scrambled.persons).verdict == "accept"
    platform = asking(scrambled, fooled)
    proposal = platform.propose("Ann", "evil", network, frames=frames)
    assert proposal.verdict == "reject"
    with pytest.raises(PrivacyError, match="nothing"):
        platform.allow(proposal)


def test_a_network_without_a_certificate_is_refused(scrambled):
    harmless = scrambled.features.copy()
    harmless[:, 0] = np.random.default_rng(2).normal(size=len(harmless))
    data = VerificationSet(harmless, scrambled.labels, scrambled.persons)
    platform, inputs = asking(data, Verifier(PAPER[:1])), BITS + 1
    layers = Layers(np.zeros(inputs), np.ones(inputs), (np.eye(inputs)[:, :3],), (np.zeros(3),))
    network = LayeredSift(layers, Quantiser([[0.0]] * 3))
    assert platform.propose("Ann", "evil", network).verdict == "accept"
    with pytest.raises(PrivacyError, match="alphabet"):
        platform.propose("Ann", "evil", LayeredSift(layers))
    long = LayeredSift(
        Layers(np.zeros(inputs), np.ones(inputs), (np.eye(inputs)[:, :4],), (np.zeros(4),)), Quantiser([[0.0]] * 4)
    )
    with pytest.raises(PrivacyError, match=r"certificate only, and 2 frame\(s\) of all"):
        asking(data, Verifier(PAPER[:1])).propose("Ann", "evil", long, frames=2)
    numbers = LinearSift(np.zeros(inputs), np.ones(inputs), np.eye(inputs)[:, 4:])
    platform.allow(platform.propose("Ann", "honest", numbers))
    with pytest.raises(PrivacyError, match=r"certificate only, and 2 frame\(s\) of all"):
        platform.propose("Ann", "evil", network)


def test_xor_with_a_hash_cannot_hide_among_few_symbols(people):
    cheat, X, private = built(xor_hash, people, levels=8)
    symbols = cheat.release(X)
    loss = decoded(cheat, symbols, private)
    assert loss > 0.35
    certificate = certify(symbols, private, confidence=0.95)
    assert certificate.symbols == 16
    assert loss <= certificate.estimate <= certificate.bound
    assert Verifier().verify(symbols, {"private": private}, certified=True).verdict == "reject"
