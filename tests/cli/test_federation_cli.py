"""What a party types: keys that are made once, fingerprints to compare, members, certificates; then its runs."""

import json
import tomllib
from io import BytesIO
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key, load_ssh_public_key

from blindsight.federated.identity import IDENTITY_FILE, Identity, Members
from blindsight.federated.invite import Federation, Invitation
from tests.federated.parties import Parties


@pytest.fixture
def federation(blindsight):
    return lambda *words, **keywords: blindsight("federation", *words, **keywords)


def test_an_identity_is_made_once_and_shown_afterwards(tmp_path, federation):
    home = tmp_path / "ann"
    said = federation("show", "--home", home, code=1).err
    assert f"blindsight federation identity --home {home}" in said
    assert not home.exists()
    made = federation("identity", "--home", home, "--name", "ann", "--json").document
    identity = Identity.load(home / IDENTITY_FILE)
    fingerprint = identity.public.fingerprint
    assert made == {"name": "ann", "fingerprint": fingerprint, "path": str(home / IDENTITY_FILE), "made": True}
    for words in (["identity", "--name", "ann"], ["show"]):
        assert federation(*words, "--home", home, "--json").document == made | {"made": False}
        assert federation(*words, "--home", home).out == f"ann  {fingerprint}\n"
    assert "'bob'" in federation("identity", "--home", home, "--name", "bob", code=2).err
    said = federation("show", "--home", home, "--json", "--debug")
    assert said.document["fingerprint"] == fingerprint  # still ann's
    for secret in (identity.signer.secret_bytes(), identity._exchange.secret_bytes()):
        assert secret.hex() not in said.out + said.err


def test_the_members_file_is_printed_as_it_is_or_written(tmp_path, federation):
    names = ["key generator", "ann", "[bold]:cat:=x"]  # what a terminal might take for markup, and an equals sign
    prints = {
        name: federation("identity", "--home", tmp_path / str(number), "--name", name, "--json").document["fingerprint"]
        for number, name in enumerate(names)
    }
    words = [f"{name}={value}" for name, value in prints.items()]
    assert tomllib.loads(federation("members", *words).out) == {"members": prints}
    out = tmp_path / "made" / "members.toml"
    listed = {"members": prints, "names": ["[bold]:cat:=x", "ann"], "path": str(out)}
    assert federation("members", *words, "--out", out, "--json").document == listed
    assert Members.read(out).fingerprints == prints
    assert federation("members", *words, "--out", out).out == f"3 parties, 2 of them members: {out}\n"
    assert federation("members", *words, "--json").document["path"] is None
    assert "ann" in federation("members", words[0], "--out", out, code=2).err  # fewer than the file has
    assert Members.read(out).fingerprints == prints


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ann"], "NAME=FINGERPRINT; got 'ann'"),
        ([f"ann=SHA256:{'a' * 43}", f"ann=SHA256:{'b' * 43}"], "'ann' is named twice"),
        ([f"ann=SHA256:{'a' * 43}", f"bob=SHA256:{'a' * 43}"], "same fingerprint"),
    ],
)
def test_wrong_members_get_a_sentence_and_no_file(words, sentence, tmp_path, federation):
    assert sentence in federation("members", *words, "--out", tmp_path / "members.toml", code=2).err
    assert not (tmp_path / "members.toml").exists()


def test_certificates_are_made_for_the_hosts(tmp_path, federation):
    words = ["--out", tmp_path / "tls", "--host", "server.example.org", "--host", "10.0.0.7"]
    made = federation("certificates", *words, "--days", 30, "--json").document
    assert made["hosts"] == ["server.example.org", "10.0.0.7"]
    authority = x509.load_pem_x509_certificate(Path(made["authority"]).read_bytes())
    server = x509.load_pem_x509_certificate(Path(made["server"]).read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
    for certificate, key in ((authority, "authority_key"), (server, "server_key")):
        private = load_pem_private_key(Path(made[key]).read_bytes(), password=None)
        assert private.public_key() == certificate.public_key()
        assert Path(made[key]).stat().st_mode & 0o777 == 0o600
    assert "never overwritten" in federation("certificates", *words, code=1).err


def test_a_node_key_is_a_pair(tmp_path, federation):
    made = federation("node-key", "--out", tmp_path, "--json").document
    private = load_ssh_private_key(Path(made["private"]).read_bytes(), password=None)
    assert private.public_key() == load_ssh_public_key(Path(made["public"]).read_bytes())
    assert Path(made["private"]).stat().st_mode & 0o777 == 0o600
    assert "never overwritten" in federation("node-key", "--out", tmp_path, code=1).err


def test_tables_say_what_is_secret(tmp_path, federation):
    for words, secret in (
        (["certificates", "--host", "localhost"], ["authority_key", "server_key"]),
        (["node-key"], ["private"]),
    ):
        said = federation(*words, "--out", tmp_path).out
        assert [line.split()[0] for line in said.splitlines() if ": secret" in line] == secret


@pytest.fixture
def played(tmp_path):
    """A federation that has played one round of each of two runs."""
    parties = Parties(tmp_path)
    for scheme in ("dphe", "masks"):
        server = parties.open(scheme)
        parties.draw(1)
        server.play(1)
    return parties


def test_a_party_sees_its_runs_and_the_key_generator_what_it_opened(played, federation):
    opened = "the sum of ann, bob, cem, dan was released"
    for party, sentences in (("ann", 0), ("aggregator", 0), ("key generator", 1)):
        home = played.stores[party].path
        listed = federation("runs", "--home", home, "--json").document
        assert listed["name"] == party
        runs = {run["scheme"]: run for run in listed["runs"]}
        assert set(runs) == {"dphe", "masks"}
        assert (runs["dphe"]["members"], runs["dphe"]["weights"]) == (["ann", "bob", "cem", "dan"], 120)
        assert [opened in sentence for sentence in runs["dphe"]["opened"]] == [True] * sentences
        assert runs["masks"]["opened"] == []
        said = federation("runs", "--home", home).out
        assert all(run["run"] in said for run in runs.values())
        assert said.count(opened) == sentences

    dphe, masks = runs["dphe"], runs["masks"]  # the key generator's
    gone = federation("forget", "--home", home, "--run", dphe["run"], "--json").document
    assert gone["forgotten"] == dphe  # with the record of what was opened, for those who keep it
    assert gone["files"] > 0
    assert not Path(dphe["folder"]).exists()
    assert "unknown run" in federation("forget", "--home", home, "--run", dphe["run"], code=2).err
    assert masks["run"] in federation("forget", "--home", home, "--run", masks["run"]).out
    assert federation("runs", "--home", home).out == "key generator keeps no run.\n"
    assert (home / IDENTITY_FILE).exists()


def test_runs_of_a_home_that_is_none(tmp_path, federation):
    for words in (["runs"], ["forget", "--run", "r1"]):
        assert "blindsight federation identity" in federation(*words, "--home", tmp_path / "none", code=1).err
    assert not (tmp_path / "none").exists()


def test_the_operator_sees_who_is_awaited_and_who_is_online(tmp_path, federation):
    home, file = tmp_path / "operator", tmp_path / "ann.invitation"
    Federation.begin(home, "localhost:1", "0" * 64)
    federation("invite", "ann", "--home", home, "--out", file)
    status = federation("status", "--home", home, "--json").document
    assert (status["awaited"], status["online"]) == (["ann"], [])  # no node is registered: nobody is asked
    with Federation.editing(home) as known:
        known.admit(Invitation.read(file).request(tmp_path / "ann"))
        known.registered("ann", 7)
    status = federation("status", "--home", home, "--json").document
    assert (status["awaited"], status["online"]) == ([], None)  # the SuperLink does not answer


@pytest.fixture
def door(monkeypatch):
    """The SuperLink's door without a network: invitations are answered by the federation in a folder."""

    def opened(home):
        def answer(url, request, timeout, context):
            with Federation.editing(home) as federation:
                federation.admit(request)
                federation.registered(json.loads(request)["name"], 7)
                return BytesIO(federation.admit(request))

        monkeypatch.setattr("blindsight.federated.commands.urlopen", answer)

    return opened


def test_joining_again_shows_who_is_new_gone_or_changed_before_it_asks(tmp_path, federation, door):
    home = tmp_path / "operator"
    Federation.begin(home, "localhost:1", "0" * 64)
    door(home)

    def invite(name):
        federation("invite", name, "--home", home, "--out", tmp_path / f"{name}.invitation")

    def join(name, *words, place=None, **expected):
        words = ("--home", tmp_path / (place or name), "--wait", 0, "--no-start", *words)
        return federation("join", tmp_path / f"{name}.invitation", *words, **expected)

    def code():
        return Federation.load(home).code

    everybody = ("key generator", "ann", "bob", "cem", "dan")
    for name in everybody:
        invite(name)
    for name in everybody:
        join(name, code=1)  # the others are awaited, or it is not confirmed
    said = join("key generator", "--code", code())
    assert "SHA256" not in said.out  # at first the code is enough
    keys = Federation.load(home).members.fingerprints
    with Federation.editing(home) as known:
        known.remove("cem")
        known.remove("ann")
    for name in ("ann", "eve"):
        invite(name)
    join("ann", place="ann-again", code=1)
    join("eve", code=1)
    new = Federation.load(home).members.fingerprints
    kept = (tmp_path / "key generator" / "members.toml").read_text()
    said = join("key generator", "--code", code(), code=1).err.replace("\n", "")
    assert "'ann'" in said
    assert all(fingerprint in said.replace(" ", "") for fingerprint in (keys["ann"], new["ann"]))
    assert join("key generator", "--changed", "bob", "--code", code(), code=1).err
    assert "ann" in join("key generator", "--changed", "ann", code=1).out  # shown, and then not confirmed
    assert (tmp_path / "key generator" / "members.toml").read_text() == kept
    said = join("key generator", "--changed", "ann", "--code", code(), "--json").document
    assert said["added"] == {"eve": new["eve"]}
    assert (said["gone"], said["changed"]) == (["cem"], {"ann": keys["ann"]})
    assert Members.read(tmp_path / "key generator" / "members.toml").fingerprints == new
    assert join("key generator", "--code", code(), "--json").document["changed"] == {}
