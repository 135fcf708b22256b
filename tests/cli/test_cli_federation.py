"""What a party types: keys that are made once, fingerprints to compare, members, certificates; then its runs."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key, load_ssh_public_key

from blindsight.cli import run
from blindsight.federated.identity import IDENTITY_FILE, Identity
from blindsight.federated.members import Members
from tests.federated.village import Village

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def federation(*words: object) -> int:
    return run(["federation", *map(str, words)])


def document(capsys: Capture) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def fingerprint(home: Path, name: str, capsys: Capture) -> str:
    assert federation("identity", "--home", home, "--name", name, "--json") == 0
    return str(document(capsys)["fingerprint"])


def test_an_identity_is_made_once_and_shown_afterwards(tmp_path: Path, capsys: Capture) -> None:
    home = tmp_path / "ann"
    assert federation("identity", "--home", home, "--name", "ann", "--json") == 0
    made = document(capsys)
    identity = Identity.load(home / IDENTITY_FILE)
    fingerprint = identity.public.fingerprint
    assert made == {"name": "ann", "fingerprint": fingerprint, "path": str(home / IDENTITY_FILE), "made": True}
    for words in (["identity", "--name", "ann"], ["show"]):
        assert federation(*words, "--home", home, "--json") == 0
        assert document(capsys) == made | {"made": False}
        assert federation(*words, "--home", home) == 0
        assert capsys.readouterr().out == f"ann  {fingerprint}\n"


def test_a_home_belongs_to_one_name(tmp_path: Path, capsys: Capture) -> None:
    before = fingerprint(tmp_path, "ann", capsys)
    assert federation("identity", "--home", tmp_path, "--name", "bob") == 2
    assert "is the home of 'ann'; got --name 'bob'" in capsys.readouterr().err
    assert fingerprint(tmp_path, "ann", capsys) == before


def test_an_empty_home_is_shown_the_way(tmp_path: Path, capsys: Capture) -> None:
    assert federation("show", "--home", tmp_path) == 1
    assert f"blindsight federation identity --home {tmp_path}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_secrets_are_never_printed(tmp_path: Path, capsys: Capture) -> None:
    federation("identity", "--home", tmp_path, "--name", "ann")
    federation("show", "--home", tmp_path, "--json", "--debug")
    captured = capsys.readouterr()
    identity = Identity.load(tmp_path / IDENTITY_FILE)
    for secret in (identity.signer.secret_bytes(), identity._exchange.secret_bytes()):
        assert secret.hex() not in captured.out + captured.err


def test_the_members_file_is_printed_as_it_is_or_written(tmp_path: Path, capsys: Capture) -> None:
    names = ["key generator", "ann", "[bold]:cat:=x"]  # what a terminal might take for markup, and an equals sign
    prints = {name: fingerprint(tmp_path / str(number), name, capsys) for number, name in enumerate(names)}
    words = [f"{name}={value}" for name, value in prints.items()]
    assert federation("members", *words) == 0
    assert tomllib.loads(capsys.readouterr().out) == {"members": prints}

    out = tmp_path / "made" / "members.toml"
    assert federation("members", *words, "--out", out, "--json") == 0
    assert document(capsys) == {"members": prints, "users": ["[bold]:cat:=x", "ann"], "path": str(out)}
    assert Members.read(out).fingerprints == prints
    assert federation("members", *words, "--out", out) == 0
    assert capsys.readouterr().out == f"3 members, 2 of them users: {out}\n"
    assert federation("members", *words, "--json") == 0
    assert document(capsys)["path"] is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ann"], "given as NAME=FINGERPRINT; got 'ann'"),
        (["ann=SHA256:short"], "43 characters of base64"),
        ([f"ann=SHA256:{'a' * 43}", f"ann=SHA256:{'b' * 43}"], "'ann' is named twice"),
        ([f"ann=SHA256:{'a' * 43}", f"bob=SHA256:{'a' * 43}"], "same fingerprint"),
        ([f"=SHA256:{'a' * 43}"], "a name is 1 to 64"),
    ],
)
def test_wrong_members_get_a_sentence_and_no_file(
    words: list[str], sentence: str, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "members.toml"
    assert federation("members", *words, "--out", out) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


def test_certificates_are_made_for_the_hosts(tmp_path: Path, capsys: Capture) -> None:
    words = ["--out", tmp_path / "tls", "--host", "server.example.org", "--host", "10.0.0.7", "--days", 30]
    assert federation("certificates", *words, "--json") == 0
    made = document(capsys)
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
    assert federation("certificates", *words) == 1
    assert "never overwritten" in capsys.readouterr().err


def test_a_node_key_is_a_pair(tmp_path: Path, capsys: Capture) -> None:
    assert federation("node-key", "--out", tmp_path, "--json") == 0
    made = document(capsys)
    private = load_ssh_private_key(Path(made["private"]).read_bytes(), password=None)
    assert private.public_key() == load_ssh_public_key(Path(made["public"]).read_bytes())
    assert Path(made["private"]).stat().st_mode & 0o777 == 0o600
    assert federation("node-key", "--out", tmp_path) == 1
    assert "never overwritten" in capsys.readouterr().err


def test_tables_say_what_is_secret(tmp_path: Path, capsys: Capture) -> None:
    assert federation("certificates", "--out", tmp_path, "--host", "localhost") == 0
    out = capsys.readouterr().out
    assert out.startswith("TLS for localhost, 365 days")
    assert [line.split()[0] for line in out.splitlines() if ": secret" in line] == ["authority_key", "server_key"]
    assert federation("node-key", "--out", tmp_path) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if ": secret" in line] == ["private"]


@pytest.fixture
def played(tmp_path: Path) -> Village:
    """A federation that has played one round of each of two runs."""
    village = Village(tmp_path)
    for scheme in ("dphe", "masks"):
        server = village.open(scheme)
        village.draw(1)
        server.play(1, ())
    return village


def test_a_party_sees_its_runs_and_the_key_generator_what_it_opened(played: Village, capsys: Capture) -> None:
    opened = "the sum of ann, bob, cem, dan was released"
    for party, sentences in (("ann", 0), ("aggregator", 0), ("key generator", 1)):
        home = played.homes[party].path
        assert federation("runs", "--home", home, "--json") == 0
        listed = document(capsys)
        assert listed["name"] == party
        runs = {run["scheme"]: run for run in listed["runs"]}
        assert set(runs) == {"dphe", "masks"}
        assert runs["dphe"]["users"] == ["ann", "bob", "cem", "dan"]
        assert runs["dphe"]["weights"] == 120
        assert [opened in sentence for sentence in runs["dphe"]["opened"]] == [True] * sentences
        assert runs["masks"]["opened"] == []
        assert federation("runs", "--home", home) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"Runs of {party}")
        assert all(run["run"] in out for run in runs.values())
        assert out.count(opened) == sentences


def test_a_run_is_forgotten_by_its_name(played: Village, capsys: Capture) -> None:
    home = played.homes["key generator"].path
    assert federation("runs", "--home", home, "--json") == 0
    dphe, masks = sorted(document(capsys)["runs"], key=lambda run: run["scheme"])
    assert federation("forget", "--home", home, "--run", dphe["run"], "--json") == 0
    said = document(capsys)
    assert said["forgotten"] == dphe  # with the record of what was opened, for whoever keeps it
    assert said["files"] > 0
    assert not Path(dphe["folder"]).exists()
    assert federation("forget", "--home", home, "--run", dphe["run"]) == 2
    assert "unknown run" in capsys.readouterr().err
    assert federation("forget", "--home", home, "--run", masks["run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"key generator has forgotten the run {masks['run']}: its keys and state, ")
    assert federation("runs", "--home", home) == 0
    assert capsys.readouterr().out == "key generator keeps no run.\n"
    assert (home / IDENTITY_FILE).exists()


def test_runs_of_a_home_that_is_none(tmp_path: Path, capsys: Capture) -> None:
    for words in (["runs"], ["forget", "--run", "r1"]):
        assert federation(*words, "--home", tmp_path / "nowhere") == 1
        assert "blindsight federation identity" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
