"""A sealed box is standard HPKE: the recipient opens it, and nobody else, and nothing that was altered."""

import copy
import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blindsight.crypto.sealedbox import ExchangeKey, seal, seal_for, unseal
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.rng import seeded_bytes

ANN = ExchangeKey.generate(seeded_bytes(1))
BOB = ExchangeKey.generate(seeded_bytes(2))
BOX = seal_for(ANN.public, b"a secret", context=b"test", source=seeded_bytes(3))
STANDARD = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)

# The points of low order, 0 and 1 also as they are when not reduced: each makes every shared secret zero.
P = 2**255 - 19
LOW_ORDER = [
    *(number.to_bytes(32, "little") for number in (0, 1, P - 1, P, P + 1)),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


def test_keys_agree_as_in_rfc_7748_section_6_1():
    alice = ExchangeKey(bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
    bob = ExchangeKey(bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
    assert alice.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert bob.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    shared = alice._key.exchange(X25519PublicKey.from_public_bytes(bob.public))
    assert shared.hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


@settings(max_examples=25)
@given(content=st.binary(max_size=300), context=st.binary(max_size=40), seed=st.integers(0, 2**32))
def test_the_standard_implementation_opens_what_is_sealed_here(content, context, seed):
    box = seal_for(ANN.public, content, context=context, source=seeded_bytes(seed))
    private = X25519PrivateKey.from_private_bytes(ANN.secret_bytes())
    assert STANDARD.decrypt(box, private, info=context) == content
    assert ANN.open(box, context=context) == content


@settings(max_examples=25)
@given(content=st.binary(max_size=300), context=st.binary(max_size=40))
def test_what_the_standard_implementation_seals_is_opened_here(content, context):
    box = STANDARD.encrypt(content, X25519PublicKey.from_public_bytes(ANN.public), info=context)
    assert ANN.open(box, context=context) == content


@given(bit=st.integers(0, 8 * len(BOX) - 1))
@example(bit=255)  # which X25519 ignores: it is the key's derivation that notices
def test_a_flipped_bit_or_a_missing_end_is_refused(bit):
    altered = bytearray(BOX)
    altered[bit // 8] ^= 1 << bit % 8
    for box in (bytes(altered), BOX[: bit // 8]):
        with pytest.raises(MessageError):
            ANN.open(box, context=b"test")


SEALED = seal(b"shared", b"a secret", purpose=b"test", source=seeded_bytes(4))


@given(bit=st.integers(0, 8 * len(SEALED) - 1))
def test_what_is_sealed_under_a_shared_secret_is_opened_with_it_alone(bit):
    assert unseal(b"shared", SEALED, purpose=b"test") == b"a secret"
    altered = bytearray(SEALED)
    altered[bit // 8] ^= 1 << bit % 8
    for secret, sealed, purpose in (
        (b"other", SEALED, b"test"),
        (b"shared", SEALED, b"tes"),
        (b"shared", bytes(altered), b"test"),
        (b"shared", SEALED[: bit // 8], b"test"),
    ):
        with pytest.raises(MessageError):
            unseal(secret, sealed, purpose=purpose)
    assert seal(b"shared", b"a secret", purpose=b"test") != SEALED


def test_another_recipient_or_context_is_refused():
    with pytest.raises(MessageError, match="another"):
        BOB.open(BOX, context=b"test")
    with pytest.raises(MessageError, match="another"):
        ANN.open(BOX, context=b"tes")


@pytest.mark.parametrize("point", LOW_ORDER)
def test_points_of_low_order_are_refused(point):
    with pytest.raises(InputError, match="low order"):
        seal_for(point, b"a secret", context=b"test")
    with pytest.raises(MessageError):
        ANN.open(point + BOX[32:], context=b"test")


def test_two_boxes_of_one_content_differ_in_key_and_ciphertext():
    first, second = (seal_for(ANN.public, bytes(64), context=b"") for _ in range(2))
    assert first[:32] != second[:32]
    assert first[32:] != second[32:]


def test_an_exchange_key_comes_back_from_its_own_bytes_and_shows_nothing():
    assert ExchangeKey(ANN.secret_bytes()).open(BOX, context=b"test") == b"a secret"
    assert repr(ANN) == "<ExchangeKey, hidden>"
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError):
            leave(ANN)
    with pytest.raises(InputError, match="got 5"):
        ExchangeKey(b"short")
    with pytest.raises(InputError, match="32 bytes"):
        seal_for(b"short", b"", context=b"")
