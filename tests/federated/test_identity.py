"""Who is who: identities, what they seal and sign, the members file, and the directory of nodes."""

import base64
import copy
import hashlib
import pickle
import re
import tomllib

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from blindsight.crypto.sealedbox import ExchangeKey, of_low_order, seal_for
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, StorageError
from blindsight.federated import identity as module
from blindsight.federated.identity import (
    PROTOCOL,
    Directory,
    Identity,
    Members,
    PublicIdentity,
    _SecretState,
    answer_hello,
    hello,
    verify_signed,
)
from blindsight.rng import seeded_bytes
from blindsight.sums.messages import write_state
from blindsight.sums.terms import KEY_GENERATOR


def party(name, seed):
    source = seeded_bytes(seed)
    return Identity(name, SigningKey.generate(source), ExchangeKey.generate(source))


ANN, BOB, EVE = party("ann", 1), party("bob", 2), party("eve", 3)
SEALED = ANN.seal(b"a secret", to=BOB.public, purpose="set-up", run="run 1")
SIGNED = ANN.sign(b"a claim", purpose="hello")
CONTEXT = b"blindsight sealed message 2"
NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=64)


def read(sealed, *, by=BOB, sender=ANN, purpose="set-up", run="run 1"):
    return by.unseal(sealed, sender=sender.public, purpose=purpose, run=run)


@given(body=st.binary(max_size=300), purpose=st.text(max_size=40), run=st.text(max_size=40))
def test_a_sealed_message_arrives_and_hides_its_content(body, purpose, run):
    marked = b"marked content " + body
    sealed, again = (ANN.seal(marked, to=BOB.public, purpose=purpose, run=run) for _ in range(2))
    assert read(sealed, purpose=purpose, run=run) == read(again, purpose=purpose, run=run) == marked
    assert b"marked content" not in sealed
    assert again[:32] != sealed[:32]
    assert again[32:] != sealed[32:]
    for other in (EVE, ANN):  # not even the one who wrote it
        with pytest.raises(MessageError, match="another recipient"):
            read(sealed, by=other, purpose=purpose, run=run)


@given(bit=st.integers(0, 8 * len(SEALED) - 1), length=st.integers(0, len(SEALED) - 1))
@example(bit=255, length=0)
def test_a_sealed_message_with_a_flipped_bit_or_cut_short_is_refused(bit, length):
    altered = bytearray(SEALED)
    altered[bit // 8] ^= 1 << bit % 8
    for spoilt in (bytes(altered), SEALED[:length]):
        with pytest.raises(MessageError, match="altered"):
            read(spoilt)


@given(garbage=st.binary(max_size=200))
def test_garbage_is_refused_sealed_or_not(garbage):
    for attempt in (
        lambda: read(garbage),
        lambda: read(seal_for(BOB.public.exchange_key, garbage, context=CONTEXT)),
        lambda: verify_signed(garbage, ANN.public, purpose="hello"),
        lambda: PublicIdentity.from_bytes(garbage),
    ):
        with pytest.raises(MessageError):
            attempt()


def handed_on():
    return seal_for(EVE.public.exchange_key, BOB._exchange.open(SEALED, context=CONTEXT), context=CONTEXT)


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: read(SEALED, purpose="answer"), "'set-up'.*'answer'"),
        (lambda: read(SEALED, run="run 2"), "'run 1'.*'run 2'"),
        (lambda: read(SEALED, sender=EVE), "does not take part"),
        (lambda: read(SEALED, sender=party("ann", 4)), "not signed by 'ann'"),
        (lambda: read(handed_on(), by=EVE), "somebody else"),
        (
            lambda: read(party("ann", 3).seal(b"lies", to=BOB.public, purpose="set-up", run="run 1")),
            "not signed by 'ann'",  # Eve's keys, Ann's name
        ),
        (lambda: verify_signed(SIGNED, ANN.public, purpose="bye"), "'hello'.*'bye'"),
        (lambda: verify_signed(SIGNED, BOB.public, purpose="hello"), "does not take part"),
        (lambda: verify_signed(SIGNED, party("ann", 4).public, purpose="hello"), "not signed by 'ann'"),
        (
            lambda: read(seal_for(BOB.public.exchange_key, SIGNED, context=CONTEXT), purpose="hello"),
            "somebody else",  # a signature is not sealed
        ),
        (
            lambda: verify_signed(BOB._exchange.open(SEALED, context=CONTEXT), ANN.public, purpose="set-up"),
            "somebody else",
        ),
        (lambda: verify_signed(ANN.signer.sign(b"a claim", author="ann"), ANN.public, purpose="hello"), None),
    ],
)
def test_sealed_messages_and_signatures_are_good_for_their_author_recipient_purpose_and_run_alone(attempt, words):
    assert verify_signed(SIGNED, ANN.public, purpose="hello") == b"a claim"
    with pytest.raises(MessageError, match=words):
        attempt()


@given(name=NAMES, keys=st.binary(min_size=64, max_size=64))
def test_a_public_identity_comes_back_and_its_fingerprint_covers_both_keys(name, keys):
    assume(not of_low_order(keys[32:]))
    public = PublicIdentity(name, keys[:32], keys[32:])
    assert PublicIdentity.from_bytes(public.to_bytes()) == public
    digest = hashlib.sha256(b"blindsight identity 1\0" + keys).digest()
    assert public.fingerprint == f"SHA256:{base64.b64encode(digest).decode()[:43]}"
    assert PublicIdentity("x", keys[:32], keys[32:]).fingerprint == public.fingerprint


def test_what_is_no_identity_is_refused(tmp_path):
    with pytest.raises(InputError, match="32 bytes"):
        PublicIdentity("ann", bytes(32), bytes(31))
    for field, wrong, words in (
        ("exchange_key", bytes(31), "32 bytes"),
        ("exchange_key", bytes(31) + b"\x80", "'ann' is of low order"),
        ("name", "ann\x1b[2J", "printable"),
    ):
        spoilt = PublicIdentity("ann", bytes(32), b"x" * 32)
        object.__setattr__(spoilt, field, wrong)
        with pytest.raises(MessageError, match=words):
            PublicIdentity.from_bytes(encode(spoilt))
    with pytest.raises(InputError, match="low order"):
        ANN.seal(b"", to=PublicIdentity("bob", BOB.public.signing_key, bytes(32)), purpose="", run="")
    for name in ("", "a" * 65, " ann", "ann ", "an\nn", "ann\x7f", "\ud800"):
        with pytest.raises(InputError, match="64 printable"):
            Identity.create(tmp_path / "home" / "identity.key", name)
    assert not (tmp_path / "home").exists()


def test_an_identity_comes_back_from_its_own_disk_and_is_never_overwritten(tmp_path):
    path = tmp_path / "home" / "identity.key"
    made = Identity.create(path, "bob")
    loaded, before = Identity.load(path), path.read_bytes()
    assert (loaded.public, loaded.name) == (made.public, "bob")
    assert read(ANN.seal(b"hi", to=made.public, purpose="set-up", run="run 1"), by=loaded) == b"hi"
    assert verify_signed(loaded.sign(b"hi", purpose="p"), made.public, purpose="p") == b"hi"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert Identity.create(tmp_path / "other", "bob").public.fingerprint != made.public.fingerprint
    with pytest.raises(StorageError, match="exists"):
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
    with pytest.raises(CorruptFileError, match="got 5"):
        Identity.load(path)


def test_nothing_shows_the_secrets():
    assert repr(ANN) == "<Identity, hidden>"
    assert ANN.signer.secret_bytes() not in ANN.public.to_bytes()
    assert ANN._exchange.secret_bytes() not in ANN.public.to_bytes()
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError):
            leave(ANN)


# ---- the members file


def public(name, number):
    return PublicIdentity(name, bytes([number]) * 32, bytes(32))


PARTIES = [public(name, number) for number, name in enumerate(["key generator", "cem", "ann", "aggregator", "bob"])]
MEMBERS = Members({party.name: party.fingerprint for party in PARTIES})


def test_members_are_recognised_strangers_and_other_keys_are_not(tmp_path):
    for one in PARTIES:
        MEMBERS.check(one)
    assert MEMBERS.names == ("ann", "bob", "cem")
    with pytest.raises(PrivacyError, match="'eve'"):
        MEMBERS.check(public("eve", 2))
    impostor = public("ann", 9)
    both = f"{re.escape(impostor.fingerprint)}.*{re.escape(MEMBERS.fingerprints['ann'])}"
    with pytest.raises(PrivacyError, match=both):
        MEMBERS.check(impostor)
    with pytest.raises(PrivacyError, match="'ann'"):
        MEMBERS.check(PublicIdentity("ann", bytes([2]) * 32, bytes([1]) * 32))  # her signatures, another's messages
    (tmp_path / "members.toml").write_text(MEMBERS.to_toml())
    assert Members.read(tmp_path / "members.toml") == MEMBERS
    agreed = dict(MEMBERS.fingerprints)
    members = Members(agreed)
    agreed["eve"] = agreed.pop("ann")  # what was agreed cannot be changed from outside
    assert members == MEMBERS


@given(names=st.sets(NAMES, max_size=8))
def test_a_members_file_comes_back_whatever_the_names(names):
    members = Members({name: public("x", number).fingerprint for number, name in enumerate(names)})
    assert tomllib.loads(members.to_toml())["members"] == members.fingerprints


def test_a_wrong_members_file_gets_a_sentence(tmp_path):
    path, (first, second, *_) = tmp_path / "members.toml", [one.fingerprint for one in PARTIES]
    with pytest.raises(StorageError, match="not exist"):
        Members.read(path)
    for text, words in [
        (b"\xff\xfe", "no members file"),
        (b"[members", "no members file"),
        (b"", "one table"),
        (b"members = 3", "one table"),
        (b"[members]\n[users]", "one table"),
        (b"[members]\nann = 5", "'ann'"),
        (b"[members]\nann.b = 'x'", "'ann'"),
        (b"[members]\nann = 'SHA256:abc'", "'SHA256:abc'"),
        (f"[members]\n' ann' = '{first}'".encode(), "64 printable"),
        (f"[members]\nann = '{first}'\nann = '{second}'".encode(), "no members file"),
        (f"[members]\na = '{first}'\nb = '{first}'".encode(), "'a' and 'b'"),
    ]:
        path.write_bytes(text)
        with pytest.raises(CorruptFileError, match=words) as caught:
            Members.read(path)
        assert str(path) in str(caught.value)
    with pytest.raises(InputError, match="fingerprint"):
        Members({"ann": MEMBERS.fingerprints["ann"] + "="})


# ---- the directory


@pytest.fixture
def identities(tmp_path):
    return {name: Identity.create(tmp_path / name, name) for name in ("ann", "bob", KEY_GENERATOR)}


@pytest.fixture
def directory(identities):
    return Directory(Members({name: identity.public.fingerprint for name, identity in identities.items()}))


def enter(directory, node, identity, role="member"):
    message = hello(node)
    directory.enter(node, tuple(answer_hello(identity, role, (message,), node)), message)


def test_members_get_in_under_their_names_and_nobody_else(directory, identities, tmp_path):
    enter(directory, 1, Identity.create(tmp_path / "eve", "eve"))
    enter(directory, 2, Identity.create(tmp_path / "false ann", "ann"))
    enter(directory, 3, identities["bob"], "key-generator")
    enter(directory, 4, identities[KEY_GENERATOR])
    directory.enter(5, tuple(answer_hello(identities["ann"], "member", (hello(5),), 5)), hello(5))
    directory.enter(6, (b"",), hello(6))
    message = hello(7)
    _, signed = answer_hello(identities["ann"], "member", (message,), 7)
    directory.enter(7, (identities["bob"].public.to_bytes(), signed), message)  # with another's signature
    assert not directory.nodes
    assert set(directory.refused) == {1, 2, 3, 4, 5, 6, 7}
    assert "Somebody else" in directory.refused[2]
    assert "another hello" in directory.refused[5]
    enter(directory, 8, identities["ann"])
    enter(directory, 9, identities[KEY_GENERATOR], "key-generator")
    directory.keep({8, 9, 10})
    assert directory.nodes == {"ann": 8, KEY_GENERATOR: 9}
    assert directory.known == {8, 9}


def test_a_node_cannot_pass_for_another_by_handing_its_hello_on(directory, identities):
    source = seeded_bytes(1)(32)
    message, altered = (hello(node, lambda count: source) for node in (1, 2))
    with pytest.raises(MessageError, match=r"node 2.*node 1"):
        answer_hello(identities["ann"], "member", (message,), 2)
    directory.enter(1, tuple(answer_hello(identities["ann"], "member", (altered,), 2)), message)
    assert not directory.nodes
    assert "another hello" in directory.refused[1]
    for parts in ((), (message, message)):
        with pytest.raises(MessageError, match="one part"):
            answer_hello(identities["ann"], "member", parts, 1)


def test_of_two_nodes_with_the_same_keys_the_first_stays_until_it_is_gone(directory, identities):
    enter(directory, 1, identities["ann"])
    enter(directory, 2, identities["ann"])  # started anew; the network has not noticed yet that node 1 is dead
    assert "'ann'" in directory.refused[2]
    enter(directory, 1, identities["ann"])
    directory.keep({1, 2})
    assert (directory.nodes, directory.known) == ({"ann": 1}, {1, 2})
    directory.keep({2})
    assert (directory.nodes, directory.known) == ({}, set())
    enter(directory, 2, identities["ann"])
    assert directory.nodes == {"ann": 2}


def test_nodes_of_another_protocol_are_told_to_install_the_same_version(identities, monkeypatch):
    message = hello(1)
    monkeypatch.setattr(module, "PROTOCOL", 99)
    with pytest.raises(MessageError, match=rf"protocol {PROTOCOL} .*protocol 99.*same version"):
        answer_hello(identities["ann"], "member", (message,), 1)
