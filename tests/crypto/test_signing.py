"""A signed message is believed from its author and from nobody else."""

import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from blindsight.crypto.signing import Signed, SigningKey, of_small_order, verify
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


FIELD, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, FIELD) % FIELD


def added(one, two):
    """The sum of two points of the Edwards curve of RFC 8032."""
    (a, b), (c, d) = one, two
    mixed = D * a * b * c * d % FIELD
    x = (a * d + c * b) * pow(1 + mixed, -1, FIELD) % FIELD
    return x, (b * d + a * c) * pow(1 - mixed, -1, FIELD) % FIELD


def times(count, point):
    total = (0, 1)
    for bit in bin(count)[2:]:
        total = added(total, total)
        total = added(total, point) if bit == "1" else total
    return total


def torsion():
    """The eight points that eight times are nothing: multiples by the order of points with any y."""
    for y in range(2, 100):
        square = (y * y - 1) * pow(D * y * y + 1, -1, FIELD) % FIELD
        x = pow(square, (FIELD + 3) // 8, FIELD)
        x = x if x * x % FIELD == square else x * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
        point = times(ORDER, (x, y))
        if x * x % FIELD == square and times(4, point) != (0, 1):
            return [times(count, point) for count in range(8)]
    raise AssertionError


SMALL = [
    (y + more + (sign << 255)).to_bytes(32, "little")
    for y in {y for _, y in torsion()}
    for more in (0, FIELD)
    for sign in (0, 1)
    if y + more < 2**255
]


@pytest.mark.parametrize("key", SMALL)
def test_keys_of_small_order_are_refused_in_all_encodings(key):
    """One constant signature would fit every message."""
    assert of_small_order(key)
    constant = (1).to_bytes(32, "little") + bytes(32)
    for number in range(20):
        with pytest.raises(MessageError, match="eve"):
            verify(encode(Signed("eve", b"%d" % number, constant)), KEYS | {"eve": key})


def test_other_keys_are_of_large_order():
    assert len(SMALL) == 14
    for seed in range(50):
        assert not of_small_order(SigningKey.generate(seeded_bytes(seed)).public)
