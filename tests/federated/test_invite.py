"""Joining: an invitation admits one party once, and parties with different lists see different codes."""

import json

import pytest

from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.commands import operator_of
from blindsight.federated.identity import IDENTITY_FILE, Identity, Members
from blindsight.federated.invite import Federation, Invitation, admitted, follow, short_code
from blindsight.sums.terms import KEY_GENERATOR

APP = "0" * 64
OWNERS = ("ann", "bob", "cem")


@pytest.fixture
def federation(tmp_path):
    return Federation.begin(tmp_path / "operator", "superlink.example:8000", APP)


def invited(federation, name, tmp_path):
    """Carry an invitation as a file, as people do."""
    path = tmp_path / f"{name}.invitation"
    path.write_text(federation.invite(name).to_toml())
    return Invitation.read(path)


def join(federation, invitation, home):
    return invitation.answered(home, federation.admit(invitation.request(home)))


def test_everybody_sees_one_code_and_the_list_is_kept_when_all_are_there(federation, tmp_path):
    names = (KEY_GENERATOR, *OWNERS)
    invitations = {name: invited(federation, name, tmp_path) for name in names}
    early = join(federation, invitations["ann"], tmp_path / "ann")
    assert early.awaited == ("bob", "cem", KEY_GENERATOR)
    with pytest.raises(InputError, match="bob"):
        early.accept(tmp_path / "ann", invitations["ann"])
    for name in names:
        join(federation, invitations[name], tmp_path / name)
    federation.registered("ann", 7)
    seen = {name: join(federation, invitations[name], tmp_path / name) for name in names}
    assert {admission.code for admission in seen.values()} == {federation.code}
    assert [name for name in names if seen[name].registered] == ["ann"]
    for name in names:
        seen[name].accept(tmp_path / name, invitations[name])
        assert Members.read(tmp_path / name / "members.toml") == federation.members
    generator = federation.members.fingerprints[KEY_GENERATOR]
    assert seen["bob"].node_config(tmp_path / "bob", None)["key-generator"] == generator
    assert seen["bob"].node_config(tmp_path / KEY_GENERATOR, None)["role"] == "key-generator"


def test_other_keys_another_authority_or_app_give_another_code(federation, tmp_path):
    listed = dict(federation.members.fingerprints)
    other = Identity.create(tmp_path / "mallory" / IDENTITY_FILE, "aggregator").public.fingerprint
    codes = {
        short_code(Members(fingerprints), authority, app)
        for fingerprints in (listed, {"aggregator": other})
        for authority in ("one", "two")
        for app in ("x", "y")
    }
    assert len(codes) == 8


def test_fewer_than_three_owners_are_refused(federation, tmp_path):
    for name in (KEY_GENERATOR, "ann", "bob"):
        invitation = invited(federation, name, tmp_path)
        admission = join(federation, invitation, tmp_path / name)
    with pytest.raises(PrivacyError, match="3"):
        admission.accept(tmp_path / "bob", invitation)


def test_an_invitation_admits_one_party_once(federation, tmp_path):
    first, second = federation.invite("ann"), federation.invite("ann")
    with pytest.raises(PrivacyError):  # the second has replaced the first
        federation.admit(first.request(tmp_path / "ann"))
    request = second.request(tmp_path / "ann")
    assert federation.admit(request) == federation.admit(request)
    with pytest.raises(PrivacyError, match="other keys"):
        federation.admit(second.request(tmp_path / "thief"))
    with pytest.raises(InputError, match="ann"):
        federation.invite("ann")


def test_what_was_not_invited_or_altered_is_refused(federation, tmp_path):
    request = json.loads(federation.invite("ann").request(tmp_path / "ann"))
    bad = [request | {key: "00"} for key in request] + [request | {"name": "bob"}, {}, [], 7]
    for document in bad:
        status, _ = admitted(federation.home, json.dumps(document).encode())
        assert status == 403, document
    assert admitted(federation.home, b"{" * 20_000)[0] == 403
    assert Federation.load(federation.home).awaited == ("ann",)
    with pytest.raises(MessageError):
        federation.admit(b"\xff")


def test_a_party_believes_no_list_without_its_keys_or_against_its_invitation(federation, tmp_path):
    invitation = invited(federation, "ann", tmp_path)
    answer = json.loads(federation.admit(invitation.request(tmp_path / "ann")))
    others = Identity.create(tmp_path / "other" / IDENTITY_FILE, "ann").public.fingerprint
    for name in ("ann", "aggregator"):
        forged = answer | {"members": answer["members"] | {name: others}}
        with pytest.raises(PrivacyError, match=name):
            invitation.answered(tmp_path / "ann", json.dumps(forged).encode())
    with pytest.raises(MessageError):
        invitation.answered(tmp_path / "ann", b"{}")


def test_a_lost_key_is_replaced_by_removing_and_inviting_again(federation, tmp_path):
    join(federation, invited(federation, "ann", tmp_path), tmp_path / "ann")
    federation.registered("ann", 7)
    before = federation.code
    assert federation.remove("ann") == 7
    join(federation, invited(federation, "ann", tmp_path), tmp_path / "ann-again")
    assert federation.code != before
    assert Federation.load(federation.home).members == federation.members
    for name in ("aggregator", "nobody"):
        with pytest.raises(UnknownNameError):
            federation.remove(name)


def test_another_authority_is_followed_once_from_the_present_one_and_by_the_aggregators_word_alone(
    federation, tmp_path
):
    names = (KEY_GENERATOR, *OWNERS)
    invitations = {name: invited(federation, name, tmp_path) for name in names}
    for name in (*names, *names):
        admission = join(federation, invitations[name], tmp_path / name)
    admission.accept(tmp_path / "cem", invitations["cem"])
    home, before = tmp_path / "cem", federation.certificates.authority.read_text()
    first, second = federation.rotate(), federation.rotate()
    assert (federation.home / "certificates.1" / "authority.crt").read_text() == before
    forged = json.loads(first)
    mallory = Identity.create(tmp_path / "mallory" / IDENTITY_FILE, "aggregator")
    envelope = bytes.fromhex(forged["signed"])
    for spoilt, error in [
        (second, PrivacyError),  # the first comes first
        (json.dumps(forged | {"identity": mallory.public.to_bytes().hex()}).encode(), PrivacyError),
        (json.dumps(forged | {"signed": (envelope[:-1] + bytes([envelope[-1] ^ 1])).hex()}).encode(), MessageError),
        (
            json.dumps(forged | {"signed": mallory.sign(b"{}", purpose="authority hand-over").hex()}).encode(),
            MessageError,
        ),
        (b"{}", MessageError),
        (b"\xff", MessageError),
    ]:
        with pytest.raises(error):
            follow(home, spoilt)
        assert (home / "authority.crt").read_text() == before
    follow(home, first)
    follow(home, second)
    with pytest.raises(PrivacyError, match="used before"):
        follow(home, first)
    renewed = invitations["cem"].renewed(home)
    assert renewed.authority == federation.certificates.authority.read_text() != before
    assert join(federation, renewed, home).code == federation.code != admission.code
    federation.certificates.check()


@pytest.mark.parametrize("text", ["", "name = 7", "nonsense", 'name = "ann"\nextra = 1'])
def test_what_is_no_invitation_is_refused(text, tmp_path):
    (tmp_path / "file").write_text(text)
    with pytest.raises(CorruptFileError):
        Invitation.read(tmp_path / "file")


def test_the_console_of_a_relative_home_is_the_same_from_every_folder(federation, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    operator_of(Federation.load("operator"))
    text = (tmp_path / "operator" / "flower" / "config.toml").read_text()
    assert str(tmp_path / "operator" / "certificates" / "authority.crt") in text
