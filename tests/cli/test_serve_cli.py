"""The service as an operator starts it: a real process, its token, its end, its next start, and what checks its log."""

import json
import os
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from blindsight.cli import run

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")

from blindsight.client import Client  # noqa: E402
from blindsight.errors import PrivacyError  # noqa: E402
from blindsight.service.foundation import drawn_frames  # noqa: E402

Capture = pytest.CaptureFixture[str]
TOKEN = re.compile(r"blindsight_[A-Za-z0-9_-]{43}")


class Process:
    """`blindsight serve` on few pictures, without the page's exhibits."""

    def __init__(self, folder: Path, *words: str) -> None:
        small = ("--port", "0", "-n", "500", "--attackers", "quick", "--no-page")
        command = [Path(sys.executable).with_name("blindsight"), "serve", "--folder", folder, *small, *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(list(map(str, command)), env=environment, **pipes)
        self.said = ""
        while (found := re.search(r"https?://[^\s\"]+", self.said)) is None:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            self.said += line
        self.url = found.group()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to end; return its exit code and all it said on standard output."""
        self.process.send_signal(number)
        self.said += self.process.stdout.read()  # what was read ahead included, which `communicate` would lose
        self.errors = self.process.stderr.read()
        return self.process.wait(), self.said


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*words: str) -> Process:
        started.append(Process(tmp_path / "service", *words))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        one.process.stdout.close()
        one.process.stderr.close()


def document(capsys: Capture) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def token_command(folder: Path, *words: str) -> int:
    return run(["token", *words, "--folder", str(folder), "--json"])


def test_it_starts_shows_its_token_once_stops_and_goes_on(
    serve: Callable[..., Process], tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "service"
    first = serve()
    assert httpx.get(f"{first.url}/v1/health").json()["status"] == "ok"
    assert httpx.get(f"{first.url}/v1/me").status_code == 401

    assert token_command(folder, "create", "ann", "owner", "--days", "2") == 0  # while it runs
    with Client(first.url, document(capsys)["token"]) as ann:
        ann.set_private(["male"])
        ann.add_frame(drawn_frames(1, random_state=9)[0])
    code, said = first.stop()
    assert code == 0
    (token,) = TOKEN.findall(said)
    assert "Traceback" not in first.errors
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(token.encode() not in file.read_bytes() for file in folder.rglob("*") if file.is_file())

    second = serve("--json")
    assert token_command(folder, "rotate", "ann") == 0
    with Client(second.url, document(capsys)["token"]) as ann:
        assert len(ann.frames()) == 1
        assert token_command(folder, "revoke", "ann") == 0
        with pytest.raises(PrivacyError):
            ann.frames()
    with Client(second.url, token) as operator:
        assert operator.me.role == "operator"
        assert (operator.person("ann").private, operator.person("ann").frames) == (("male",), 1)
        assert [entry.action for entry in operator.log()][:3] == ["create principal", "create principal", "person"]
        assert operator.check_log().ok
    code, said = second.stop(signal.SIGINT)
    assert code == 0
    assert TOKEN.search(said + second.errors) is None


def test_an_unfinished_verification_is_done_after_the_next_start(
    serve: Callable[..., Process], tmp_path: Path, capsys: Capture
) -> None:
    folder, tokens = tmp_path / "service", {}
    service = serve("--attackers", "modern")
    for name, role in (("ann", "owner"), ("weather", "app")):
        assert token_command(folder, "create", name, role) == 0
        tokens[name] = document(capsys)["token"]
    with Client(service.url, tokens["ann"]) as ann, Client(service.url, tokens["weather"]) as weather:
        ann.set_private(["male"])
        weather.register_app(["smiling"])
        job = weather.propose("ann").id
    assert service.stop()[0] == 0
    with Client(serve("--attackers", "quick").url, tokens["weather"]) as weather:
        assert weather.wait(job, pause=0.1).state == "done"


def test_tls_by_a_certificate_and_nobody_else_in_the_folder_or_on_the_port(
    serve: Callable[..., Process], tmp_path: Path, capsys: Capture
) -> None:
    certificate, key = certified(tmp_path)
    service = serve("--certificate", str(certificate), "--key", str(key))
    assert service.url.startswith("https://127.0.0.1:")
    answer = httpx.get(f"{service.url}/v1/health", verify=ssl.create_default_context(cafile=str(certificate)))
    assert answer.json()["status"] == "ok"
    assert "strict-transport-security" in answer.headers

    port = service.url.rpartition(":")[2]
    assert run(["serve", "--folder", str(tmp_path / "service"), "--port", "0", "-n", "500", "--no-page"]) == 1
    assert "another service uses" in capsys.readouterr().err
    assert run(["serve", "--folder", str(tmp_path / "other"), "--port", port]) == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    with socket.create_connection(("127.0.0.1", int(port))):
        assert service.stop()[0] == 0  # a connection that says nothing does not keep it


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--host", "0.0.0.0"], "tokens would travel readable"),
        (["--host", "no such host", "--insecure-without-tls"], "no address of this machine"),
        (["--certificate", "none.pem"], "without a key"),
        (["--certificate", "none.pem", "--key", "none.pem"], "there is none at"),
        (["--database", "mysql://user:secret@host/name"], "the database must be a URL"),
        (["--data", "face"], "Did you mean 'faces'?"),
        (["--data", "digits", "-n", "100"], "no labels"),
        (["--features", "pixel", "-n", "500"], "Did you mean 'pixels'?"),
        (["--port", "70000"], "70000"),
        (["--requests-per-minute", "0"], "0"),
    ],
)
def test_bad_options_get_one_sentence(words: list[str], sentence: str, tmp_path: Path, capsys: Capture) -> None:
    assert run(["serve", "--folder", str(tmp_path / "service"), "--port", "0", *words]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if not line.endswith(" ...")]
    assert len(error) == 1
    assert error[0].startswith("error: ")
    assert sentence in error[0]
    assert "secret" not in error[0]
    assert not (tmp_path / "service" / "service.db").exists() or words[0] in ("--data", "--features")


def test_a_certificate_that_is_none_gets_a_sentence(tmp_path: Path, capsys: Capture) -> None:
    certificate, key = certified(tmp_path)
    certificate.write_text("not a certificate")
    asked = ["serve", "--folder", str(tmp_path / "service"), "--certificate", str(certificate), "--key", str(key)]
    assert run(asked) == 2
    assert "must be PEM files that belong together" in capsys.readouterr().err


def test_a_network_without_tls_only_if_said_so(tmp_path: Path) -> None:
    from blindsight.errors import InputError
    from blindsight.service.settings import ServiceSettings

    assert not ServiceSettings(tmp_path, host="0.0.0.0", without_tls=True).encrypted
    with pytest.raises(InputError, match="tokens would travel readable"):
        ServiceSettings(tmp_path, host="0.0.0.0")


def test_missing_extra_is_named(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run(["serve", "--folder", str(tmp_path / "service")]) == 1
    assert "pip install 'blindsight-vision[service]'" in capsys.readouterr().err


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """The folder of a service with an operator, made without starting it."""
    from blindsight.service.database import open_database
    from blindsight.service.principals import Principals

    database = open_database(f"sqlite:///{tmp_path / 'service' / 'service.db'}")
    Principals(database).first_run()
    database.close()
    return tmp_path / "service"


def test_tokens_are_made_listed_replaced_and_revoked(known: Path, capsys: Capture) -> None:
    assert token_command(known, "create", "ann", "owner", "--days", "30") == 0
    made = document(capsys)
    assert (made["name"], made["role"]) == ("ann", "owner")
    assert TOKEN.fullmatch(made["token"])

    assert token_command(known, "rotate", "ann") == 0
    assert document(capsys)["token"] != made["token"]
    assert token_command(known, "revoke", made["id"]) == 0
    capsys.readouterr()
    assert token_command(known, "list") == 0
    shown = document(capsys)["principals"]
    assert [(one["name"], bool(one["expires"]), bool(one["revoked"])) for one in shown] == [
        ("operator", False, False),
        ("ann", True, True),
    ]
    assert "token" not in shown[1]
    assert run(["verify-log", "--folder", str(known), "--json"]) == 0
    assert document(capsys)["entries"] == 3


def test_a_change_that_is_refused_leaves_no_entry(known: Path, capsys: Capture) -> None:
    assert token_command(known, "revoke", "operator") == 2
    assert "last operator" in document(capsys)["error"]
    assert token_command(known, "create", "operator", "app") == 2
    assert "is taken" in document(capsys)["error"]
    assert token_command(known, "rotate", "operater") == 2
    assert "Did you mean 'operator'?" in document(capsys)["error"]
    assert run(["verify-log", "--folder", str(known), "--json"]) == 0
    assert document(capsys)["entries"] == 0


@pytest.mark.parametrize("words", [["token", "list"], ["token", "create", "ann", "owner"], ["verify-log"]])
def test_a_folder_without_a_service_is_left_alone(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert run([*words, "--folder", str(tmp_path / "none")]) == 1
    assert "there is no service" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def logged(folder: Path, names: str = "abcd") -> None:
    for name in names:
        assert token_command(folder, "create", name, "app") == 0


def test_verify_log_finds_an_edited_row(known: Path, capsys: Capture) -> None:
    logged(known)
    capsys.readouterr()
    asked = ["verify-log", "--folder", str(known)]
    assert run([*asked, "--json"]) == 0
    head = document(capsys)["head"]
    with closing(sqlite3.connect(known / "service.db", isolation_level=None)) as database:
        database.execute("DROP TRIGGER log_keeps_content")
        database.execute("UPDATE log SET details = replace(details, '\"b\"', '\"x\"') WHERE position = 2")
    assert run(asked) == 1
    said = capsys.readouterr().out
    assert "entry 2 was altered" in said
    assert "The 1 entries before hold" in said
    assert run([*asked, "--json", "--head", head]) == 1
    assert document(capsys)["broken_at"] == 2


def test_verify_log_finds_entries_cut_off_by_a_noted_head(known: Path, capsys: Capture) -> None:
    logged(known)
    capsys.readouterr()
    asked = ["verify-log", "--folder", str(known), "--json"]
    assert run(asked) == 0
    head = document(capsys)["head"]
    with closing(sqlite3.connect(known / "service.db", isolation_level=None)) as database:
        database.execute("DROP TRIGGER log_keeps_rows")
        database.execute("DELETE FROM log WHERE position = 4")
    assert run(asked) == 0  # a shorter history is whole in itself
    assert run([*asked, "--head", head]) == 1


def test_verify_log_checks_an_export(known: Path, tmp_path: Path, capsys: Capture) -> None:
    from blindsight.service.database import open_database
    from blindsight.service.log import AuditLog

    logged(known)
    export = tmp_path / "log.jsonl"
    with closing(open_database(f"sqlite:///{known / 'service.db'}")) as database, export.open("w") as stream:
        AuditLog(database).export(stream)
    assert run(["verify-log", str(export)]) == 0
    capsys.readouterr()
    export.write_text(export.read_text().replace('"name": "c"', '"name": "z"'))
    assert run(["verify-log", str(export), "--json"]) == 1
    assert document(capsys)["broken_at"] == 3
    assert run(["verify-log", str(tmp_path / "none.jsonl")]) == 1


def certified(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine and its key."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths
