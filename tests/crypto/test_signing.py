"""A signed message is believed from its author and from nobody else."""

import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from blindsight.crypto.signing import Signed, SigningKey, verify
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.rng import seeded_bytes

ANNA = SigningKey.generate(seeded_bytes(1))
BERT = SigningKey.generate(seeded_bytes(2))
KEYS = {"anna": ANNA.public, "bert": BERT.public}
ENVELOPE = ANNA.sign(b"42", author="anna")


def test_signature_is_plain_ed25519_over_label_author_and_body():
    signed = decode(ENVELOPE, Signed)
    key = Ed25519PrivateKey.from_private_bytes(seeded_bytes(1)(32)).public_key()
    key.verify(signed.signature, b"blindsight signed message 1\0" + b"\0\0\0\4anna" + b"42")


@pytest.mark.parametrize(
    ("author", "body", "signature"),
    [
        ("anna", b"43", None),
        ("bert", b"42", None),
        ("anna", b"42", bytes(64)),
        ("anna", b"42", b""),
        ("anna", b"42", BERT._key.sign(b"42")),
        ("anna", b"42", ANNA._key.sign(b"42")),
    ],
)
def test_forgeries_are_refused(author, body, signature):
    kept = decode(ENVELOPE, Signed).signature
    with pytest.raises(MessageError, match=author):
        verify(encode(Signed(author, body, kept if signature is None else signature)), KEYS)


def test_strangers_and_other_messages_are_refused():
    assert verify(ENVELOPE, KEYS) == ("anna", b"42")
    moved = encode(Signed("annax", b"42", decode(ANNA.sign(b"x42", author="anna"), Signed).signature))
    for envelope, keys in (
        (ENVELOPE, {"bert": BERT.public}),
        (ENVELOPE[:-1], KEYS),
        (ENVELOPE, {"anna": b"not a key"}),
        (moved, {"annax": ANNA.public}),  # the boundary between author and body is signed
    ):
        with pytest.raises(MessageError):
            verify(envelope, keys)
    with pytest.raises(MessageError, match="at most 50"):
        verify(ENVELOPE, KEYS, max_bytes=50)


def test_key_comes_back_from_its_own_bytes_and_shows_nothing():
    again = SigningKey(ANNA.secret_bytes())
    assert again.public == ANNA.public
    assert repr(ANNA) == "<SigningKey, hidden>"
    with pytest.raises(PrivacyError):
        pickle.dumps(ANNA)
    with pytest.raises(InputError, match="got 5"):
        SigningKey(b"short")
