"""The members file says who takes part; whoever is not in it, or has other keys, is told so."""

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blindsight.errors import CorruptFileError, InputError, PrivacyError, StorageError
from blindsight.federated.identity import PublicIdentity
from blindsight.federated.members import Members


def identity(name, number):
    return PublicIdentity(name, bytes([number]) * 32, bytes(32))


PARTIES = [identity(name, number) for number, name in enumerate(["key generator", "cem", "ann", "aggregator", "bob"])]
MEMBERS = Members({party.name: party.fingerprint for party in PARTIES})
NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=64)


def test_members_are_recognised_and_users_are_sorted():
    for party in PARTIES:
        MEMBERS.check(party)
    assert MEMBERS.users == ("ann", "bob", "cem")


def test_a_stranger_is_refused():
    with pytest.raises(PrivacyError, match="'eve'"):
        MEMBERS.check(identity("eve", 2))


def test_a_member_with_other_keys_is_refused_and_both_fingerprints_are_named():
    impostor = identity("ann", 9)
    both = f"{re.escape(impostor.fingerprint)}.*{re.escape(MEMBERS.fingerprints['ann'])}"
    with pytest.raises(PrivacyError, match=both):
        MEMBERS.check(impostor)
    with pytest.raises(PrivacyError, match="Somebody else"):
        MEMBERS.check(PublicIdentity("ann", bytes([2]) * 32, bytes([1]) * 32))  # her signatures, another's letters


@given(names=st.sets(NAMES, max_size=8))
def test_a_members_file_comes_back_whatever_the_names(names):
    members = Members({name: identity("x", number).fingerprint for number, name in enumerate(names)})
    assert tomllib.loads(members.to_toml())["members"] == members.fingerprints


def test_a_members_file_is_read(tmp_path):
    path = tmp_path / "members.toml"
    path.write_text(MEMBERS.to_toml())
    assert Members.read(path) == MEMBERS


def test_what_was_agreed_cannot_be_changed_from_outside():
    agreed = dict(MEMBERS.fingerprints)
    members = Members(agreed)
    agreed["eve"] = agreed.pop("ann")
    assert members == MEMBERS


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[members", "no members file"),
        ("", "one table"),
        ("members = 3", "one table"),
        ("[members]\n[users]", "one table"),
        ("[members]\nann = 5", "fingerprint of 'ann' is a text"),
        ("[members]\nann.b = 'x'", "fingerprint of 'ann' is a text"),
        ("[members]\nann = 'SHA256:abc'", "43 characters of base64; got 'SHA256:abc'"),
        (f"[members]\n' ann' = '{PARTIES[0].fingerprint}'", "a name is 1 to 64 printable"),
        (f"[members]\nann = '{PARTIES[0].fingerprint}'\nann = '{PARTIES[1].fingerprint}'", "no members file"),
        (f"[members]\na = '{PARTIES[0].fingerprint}'\nb = '{PARTIES[0].fingerprint}'", "'a' and 'b' have the same"),
    ],
)
def test_a_wrong_members_file_gets_a_sentence(text, sentence, tmp_path):
    path = tmp_path / "members.toml"
    path.write_text(text)
    with pytest.raises(CorruptFileError, match=sentence) as caught:
        Members.read(path)
    assert str(path) in str(caught.value)


def test_a_members_file_that_is_missing_or_no_text_gets_a_sentence(tmp_path):
    with pytest.raises(StorageError, match="does not exist"):
        Members.read(tmp_path / "members.toml")
    (tmp_path / "members.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(CorruptFileError, match="no members file"):
        Members.read(tmp_path / "members.toml")


def test_a_fingerprint_is_checked_before_anything_is_compared_with_it():
    with pytest.raises(InputError, match="a fingerprint is"):
        Members({"ann": MEMBERS.fingerprints["ann"] + "="})
