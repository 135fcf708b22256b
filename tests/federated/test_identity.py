"""A letter is read by its recipient, believed from its sender, and good for its purpose and run alone."""

import base64
import copy
import hashlib
import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blindsight.crypto.sealedbox import ExchangeKey, seal_for
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, StorageError
from blindsight.federated.identity import Identity, PublicIdentity, _PublicMessage, _SecretState, verify_signed
from blindsight.learn.dphe.storage import write_state
from blindsight.rng import seeded_bytes


def party(name, seed):
    source = seeded_bytes(seed)
    return Identity(name, SigningKey.generate(source), ExchangeKey.generate(source))


ANN, BOB, EVE = party("ann", 1), party("bob", 2), party("eve", 3)
LETTER = ANN.write(b"a secret", to=BOB.public, purpose="set-up", run="run 1")
SIGNED = ANN.sign(b"a claim", purpose="hello")
NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=64)


def read(letter, *, by=BOB, sender=ANN, purpose="set-up", run="run 1"):
    return by.read(letter, sender=sender.public, purpose=purpose, run=run)


@given(body=st.binary(max_size=300), purpose=st.text(max_size=40), run=st.text(max_size=40))
def test_a_letter_arrives_and_hides_its_content(body, purpose, run):
    marked = b"marked content " + body
    letter = ANN.write(marked, to=BOB.public, purpose=purpose, run=run)
    assert read(letter, purpose=purpose, run=run) == marked
    assert b"marked content" not in letter
    with pytest.raises(MessageError, match="another recipient"):
        read(letter, by=EVE, purpose=purpose, run=run)
    with pytest.raises(MessageError, match="another recipient"):  # not even the one who wrote it
        read(letter, by=ANN, purpose=purpose, run=run)


def test_two_letters_of_one_content_differ():
    again = ANN.write(b"a secret", to=BOB.public, purpose="set-up", run="run 1")
    assert read(again) == read(LETTER)
    assert again[:32] != LETTER[:32]
    assert again[32:] != LETTER[32:]


@given(bit=st.integers(0, 8 * len(LETTER) - 1))
@example(bit=255)
def test_a_letter_with_a_flipped_bit_is_refused(bit):
    altered = bytearray(LETTER)
    altered[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MessageError, match="was altered"):
        read(bytes(altered))


@given(length=st.integers(0, len(LETTER) - 1))
def test_a_letter_cut_short_is_refused(length):
    with pytest.raises(MessageError, match="was altered"):
        read(LETTER[:length])


@given(garbage=st.binary(max_size=200))
def test_garbage_is_refused_sealed_or_not(garbage):
    with pytest.raises(MessageError):
        read(garbage)
    with pytest.raises(MessageError):
        read(seal_for(BOB.public.exchange_key, garbage, context=b"blindsight letter 1"))
    with pytest.raises(MessageError):
        verify_signed(garbage, ANN.public, purpose="hello")
    with pytest.raises(MessageError):
        PublicIdentity.from_bytes(garbage)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"purpose": "answer"}, "what 'ann' signed is for 'set-up'; expected 'answer'."),
        ({"run": "run 2"}, "the letter from 'ann' is for run 'run 1'; this is run 'run 2'."),
        ({"sender": EVE}, "from someone who does not take part"),
        ({"sender": party("ann", 4)}, "not signed by 'ann'"),
    ],
)
def test_another_purpose_run_or_sender_is_refused(other, sentence):
    with pytest.raises(MessageError, match=sentence):
        read(LETTER, **other)


def test_a_letter_that_its_recipient_hands_on_is_refused():
    envelope = BOB._exchange.open(LETTER, context=b"blindsight letter 1")
    forwarded = seal_for(EVE.public.exchange_key, envelope, context=b"blindsight letter 1")
    with pytest.raises(MessageError, match="somebody else"):
        read(forwarded, by=EVE)


def test_nobody_writes_in_the_name_of_another():
    forged = party("ann", 3).write(b"lies", to=BOB.public, purpose="set-up", run="run 1")  # Eve's keys, Ann's name
    with pytest.raises(MessageError, match="not signed by 'ann'"):
        read(forged)


def test_a_signature_is_good_for_its_author_and_purpose():
    assert verify_signed(SIGNED, ANN.public, purpose="hello") == b"a claim"
    with pytest.raises(MessageError, match=r"'hello'.*'bye'"):
        verify_signed(SIGNED, ANN.public, purpose="bye")
    with pytest.raises(MessageError, match="does not take part"):
        verify_signed(SIGNED, BOB.public, purpose="hello")
    with pytest.raises(MessageError, match="not signed by 'ann'"):
        verify_signed(SIGNED, party("ann", 4).public, purpose="hello")


def test_signatures_letters_and_other_signed_messages_do_not_pass_for_each_other():
    sealed = seal_for(BOB.public.exchange_key, SIGNED, context=b"blindsight letter 1")
    with pytest.raises(MessageError, match=r"letter\.1"):
        read(sealed, purpose="hello")
    envelope = BOB._exchange.open(LETTER, context=b"blindsight letter 1")
    with pytest.raises(MessageError, match=r"statement\.1"):
        verify_signed(envelope, ANN.public, purpose="set-up")
    with pytest.raises(MessageError):
        verify_signed(ANN.signer.sign(b"a claim", author="ann"), ANN.public, purpose="hello")


@given(name=NAMES, keys=st.binary(min_size=64, max_size=64))
def test_a_public_identity_comes_back_and_its_fingerprint_covers_both_keys(name, keys):
    public = PublicIdentity(name, keys[:32], keys[32:])
    assert PublicIdentity.from_bytes(public.to_bytes()) == public
    digest = hashlib.sha256(b"blindsight identity 1\0" + keys).digest()
    assert public.fingerprint == f"SHA256:{base64.b64encode(digest).decode()[:43]}"
    assert PublicIdentity("x", keys[:32], keys[32:]).fingerprint == public.fingerprint


def test_what_is_no_identity_is_refused():
    with pytest.raises(InputError, match="32 bytes each"):
        PublicIdentity("ann", bytes(32), bytes(31))
    with pytest.raises(MessageError, match="32 bytes each"):
        PublicIdentity.from_bytes(encode(_PublicMessage("ann", bytes(32), bytes(31))))
    with pytest.raises(MessageError, match="printable"):
        PublicIdentity.from_bytes(encode(_PublicMessage("ann\x1b[2J", bytes(32), bytes(32))))
    with pytest.raises(InputError, match="low order"):
        ANN.write(b"", to=PublicIdentity("bob", BOB.public.signing_key, bytes(32)), purpose="", run="")


@pytest.mark.parametrize("name", ["", "a" * 65, " ann", "ann ", "an\nn", "ann\x7f", "\ud800"])
def test_bad_names_are_refused_and_no_file_is_made(name, tmp_path):
    with pytest.raises(InputError, match="64 printable"):
        Identity.create(tmp_path / "home" / "identity.key", name)
    assert not (tmp_path / "home").exists()


def test_an_identity_comes_back_from_its_own_disk(tmp_path):
    path = tmp_path / "home" / "identity.key"
    made = Identity.create(path, "bob")
    loaded = Identity.load(path)
    assert loaded.public == made.public
    assert loaded.name == "bob"
    assert read(ANN.write(b"hi", to=made.public, purpose="set-up", run="run 1"), by=loaded) == b"hi"
    assert verify_signed(loaded.sign(b"hi", purpose="p"), made.public, purpose="p") == b"hi"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert Identity.create(tmp_path / "other", "bob").public.fingerprint != made.public.fingerprint


def test_an_identity_is_never_overwritten(tmp_path):
    path = tmp_path / "identity.key"
    Identity.create(path, "bob")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="exists already"):
        Identity.create(path, "eve")
    assert path.read_bytes() == before


def test_a_file_that_others_can_read_that_is_damaged_or_missing_is_refused(tmp_path):
    path = tmp_path / "identity.key"
    with pytest.raises(StorageError, match=f"--home {tmp_path}"):
        Identity.load(path)
    Identity.create(path, "bob")
    path.chmod(0o640)
    with pytest.raises(StorageError, match="chmod 600"):
        Identity.load(path)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match="saved"):
        Identity.load(path)
    write_state(path, _SecretState("bob", bytes(32), b"short"))
    with pytest.raises(CorruptFileError, match="32 bytes; got 5"):
        Identity.load(path)


def test_nothing_shows_the_secrets():
    assert repr(ANN) == "<Identity, hidden>"
    assert repr(ANN.public) == "PublicIdentity(name='ann')"
    assert ANN.signer.secret_bytes() not in ANN.public.to_bytes()
    assert ANN._exchange.secret_bytes() not in ANN.public.to_bytes()
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError):
            leave(ANN)
