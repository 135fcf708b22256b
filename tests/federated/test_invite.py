"""Joining: an invitation admits one party once, and parties with different lists see different codes."""

import json
from dataclasses import replace

import pytest

from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.commands import operator_of
from blindsight.federated.identity import IDENTITY_FILE, Identity, Members
from blindsight.federated.invite import Federation, Invitation, admitted, follow_handover, short_code
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


def join(federation, invitation, home, **named):
    return invitation.answered(home, federation.admit(invitation.request(home)), **named)


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
    node_of = pytest.importorskip("blindsight.federated.flower.mod").node_of
    nodes = [node_of(seen["bob"].node_config(tmp_path / name, None)) for name in ("bob", KEY_GENERATOR)]
    assert [node.role for node in nodes] == ["member", "key-generator"]


def everybody(federation, tmp_path, owners=OWNERS):
    """Invite an aggregator's parties and let all accept; return their invitations."""
    names = (KEY_GENERATOR, *owners)
    invitations = {name: invited(federation, name, tmp_path) for name in names}
    for name in names:
        join(federation, invitations[name], tmp_path / name)
    for name in names:
        join(federation, invitations[name], tmp_path / name).accept(tmp_path / name, invitations[name])
    return invitations


def replace_keys(federation, tmp_path, *names):
    """Put keys of the operator's own in the place of parties', as a hostile operator would; return the fingerprints."""
    for name in names:
        forged = Identity.create(tmp_path / "mallory" / name / IDENTITY_FILE, name).public.to_bytes().hex()
        federation.joined[name] = {"node-key": "", **federation.joined.get(name, {}), "identity": forged}
    return {name: federation.members.fingerprints[name] for name in names}


class TestJoiningAgain:
    @pytest.fixture
    def invitations(self, federation, tmp_path):
        return everybody(federation, tmp_path, (*OWNERS, "dan"))

    def refused(self, federation, invitations, tmp_path, name, forged, **named):
        home = tmp_path / name
        before = {path.name: path.read_bytes() for path in home.iterdir()}
        with pytest.raises(PrivacyError) as error:
            join(federation, invitations[name], home, **named)
        for other, fingerprint in forged.items():
            assert repr(other) in str(error.value)
            assert fingerprint in str(error.value)
        assert {path.name: path.read_bytes() for path in home.iterdir()} == before
        return str(error.value)

    @pytest.mark.parametrize("swapped", [("ann", "bob", "cem"), ("ann",), ("aggregator",), (KEY_GENERATOR,)])
    def test_keys_that_were_accepted_before_do_not_change_while_another_party_is_invited(
        self, federation, invitations, tmp_path, swapped
    ):
        forged = replace_keys(federation, tmp_path, *swapped)
        invitations["eve"] = invited(federation, "eve", tmp_path)
        join(federation, invitations["eve"], tmp_path / "eve")
        for name in {KEY_GENERATOR, "dan"} - set(swapped):
            self.refused(federation, invitations, tmp_path, name, forged)

    def test_nor_after_a_party_was_removed(self, federation, invitations, tmp_path):
        federation.remove("dan")
        forged = replace_keys(federation, tmp_path, "ann", "bob")
        said = self.refused(federation, invitations, tmp_path, KEY_GENERATOR, forged)
        assert "cem" not in said

    def test_nor_by_being_gone_in_between(self, federation, invitations, tmp_path):
        federation.remove("ann")
        home, invitation = tmp_path / KEY_GENERATOR, invitations[KEY_GENERATOR]
        for _ in range(2):
            found = join(federation, invitation, home)
            found.accept(home, invitation)
        assert "ann" not in Members.read(home / "members.toml").fingerprints
        forged = replace_keys(federation, tmp_path, "ann")
        self.refused(federation, invitations, tmp_path, KEY_GENERATOR, forged)

    def test_a_party_that_is_back_with_the_keys_it_had_is_taken_in(self, federation, invitations, tmp_path):
        kept = federation.joined["ann"]
        federation.remove("ann")
        home, invitation = tmp_path / KEY_GENERATOR, invitations[KEY_GENERATOR]
        found = join(federation, invitation, home)
        assert (found.added, found.gone, found.changed) == ({}, ("ann",), {})
        found.accept(home, invitation)
        federation.joined["ann"] = kept
        found = join(federation, invitation, home)
        assert (set(found.added), found.gone, found.changed) == ({"ann"}, (), {})

    def test_other_keys_are_accepted_for_the_parties_that_are_named_alone(self, federation, invitations, tmp_path):
        federation.remove("ann")
        join(federation, invited(federation, "ann", tmp_path), tmp_path / "ann-again")
        new, home, bob = federation.members.fingerprints["ann"], tmp_path / KEY_GENERATOR, federation.joined["bob"]
        forged = replace_keys(federation, tmp_path, "bob")
        said = self.refused(federation, invitations, tmp_path, KEY_GENERATOR, forged, changed=["ann"])
        assert new not in said
        old = Members.read(home / "members.toml").fingerprints["ann"]
        federation.joined["bob"] = bob
        found = join(federation, invitations[KEY_GENERATOR], home, changed=["ann"])
        assert found.changed == {"ann": old}
        found.accept(home, invitations[KEY_GENERATOR])
        assert Members.read(home / "members.toml") == federation.members
        again = join(federation, invitations[KEY_GENERATOR], home)  # with the keys that were named, silently
        assert (again.added, again.gone, again.changed) == ({}, (), {})

    def test_an_invitation_from_before_a_change_is_good_after_it(self, federation, invitations, tmp_path):
        invitations["eve"] = invited(federation, "eve", tmp_path)  # names ann's first keys
        join(federation, invitations["eve"], tmp_path / "eve").accept(tmp_path / "eve", invitations["eve"])
        federation.remove("ann")
        join(federation, invited(federation, "ann", tmp_path), tmp_path / "ann-again")
        self.refused(federation, invitations, tmp_path, "eve", {})
        join(federation, invitations["eve"], tmp_path / "eve", changed=["ann"]).accept(
            tmp_path / "eve", invitations["eve"]
        )
        assert not join(federation, invitations["eve"], tmp_path / "eve").changed

    def test_newcomers_and_leavers_change_nothing_for_the_others(self, federation, invitations, tmp_path):
        invitations["eve"] = invited(federation, "eve", tmp_path)
        join(federation, invitations["eve"], tmp_path / "eve")
        federation.remove("dan")
        seen = {name: join(federation, invitations[name], tmp_path / name) for name in (KEY_GENERATOR, "ann", "eve")}
        assert len({found.code for found in seen.values()}) == 1
        for name in (KEY_GENERATOR, "ann"):
            assert seen[name].added == {"eve": federation.members.fingerprints["eve"]}
            assert (seen[name].gone, seen[name].changed) == (("dan",), {})
        assert (seen["eve"].added, seen["eve"].gone, seen["eve"].changed) == ({}, (), {})  # there was nothing before

    @pytest.mark.parametrize("file", ["members.toml", "accepted.toml"])
    def test_a_damaged_file_is_no_clean_sheet(self, federation, invitations, tmp_path, file):
        (tmp_path / "dan" / file).write_text("[members]\n'ann' = ")
        with pytest.raises(CorruptFileError, match=file):
            join(federation, invitations["dan"], tmp_path / "dan")

    def test_the_list_of_a_home_that_was_set_up_by_hand_or_edited_counts(self, federation, invitations, tmp_path):
        home = tmp_path / "dan"
        (home / "accepted.toml").unlink()  # as set up by hand, or by an earlier version
        forged = replace_keys(federation, tmp_path, "ann")
        self.refused(federation, invitations, tmp_path, "dan", forged)
        (home / "members.toml").write_text(federation.members.to_toml())
        assert not join(federation, invitations["dan"], home).changed
        (home / "members.toml").unlink()
        assert join(federation, invitations["dan"], home).gone == ()

    def test_another_app_or_authority_is_refused(self, federation, invitations, tmp_path):
        home, old = tmp_path / "ann", invitations["ann"]
        answer = federation.admit(old.request(home))
        with pytest.raises(PrivacyError, match="1" * 64):
            replace(old, app="1" * 64).answered(home, answer)
        federation.rotate()
        with pytest.raises(PrivacyError, match="authority"):
            replace(old, authority=federation.certificates.authority.read_text()).answered(home, answer)
        assert replace(old, address="elsewhere.example:1").answered(home, answer).code  # TLS knows the authority's


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
            follow_handover(home, spoilt)
        assert (home / "authority.crt").read_text() == before
    follow_handover(home, first)
    follow_handover(home, second)
    with pytest.raises(PrivacyError, match="used before"):
        follow_handover(home, first)
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
