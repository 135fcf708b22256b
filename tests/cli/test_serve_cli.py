"""The service as an operator starts it: a real process, its token, its end, its next start, and what checks its log."""

import os
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")

from blindsight.client import Client, enrol  # noqa: E402
from blindsight.errors import MessageError, PrivacyError  # noqa: E402
from blindsight.federated.invite import make_certificates  # noqa: E402
from blindsight.service.verification import drawn_frames  # noqa: E402

TOKEN = re.compile(r"blindsight_[A-Za-z0-9_-]{43}")


class Process:
    """`blindsight serve` on few pictures, over TLS, without the page."""

    def __init__(self, folder, *words):
        small = ("--port", "0", "-n", "360", "--no-page")
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

    def stop(self, number=signal.SIGTERM):
        """Ask it to end; return its exit code and all it said on standard output."""
        self.process.send_signal(number)
        self.said += self.process.stdout.read()  # what was read ahead included, which `communicate` would lose
        self.errors = self.process.stderr.read()
        return self.process.wait(), self.said


@pytest.fixture
def serve(tmp_path):
    started: list[Process] = []

    def start(*words):
        started.append(Process(tmp_path / "service", *words))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        one.process.stdout.close()
        one.process.stderr.close()


@pytest.fixture
def token_command(blindsight, tmp_path):
    """`token ...` of the service in the test's folder."""
    return lambda *words, **keys: (
        blindsight("token", *words, "--folder", tmp_path / "service", "--json", **keys).document
    )


def test_it_starts_shows_its_token_once_stops_and_goes_on(serve, tmp_path, blindsight, token_command):
    """Two starts over TLS: tokens made meanwhile, one service per folder and port, unfinished work done later."""
    made = make_certificates(tmp_path / "tls", ["127.0.0.1"], days=2)
    trust = ssl.create_default_context(cafile=made.authority)
    tls = ["--certificate", made.server, "--key", made.server_key]
    client, folder, people = partial(Client.of, verify=trust), tmp_path / "service", {}
    first = serve(*tls, "--attackers", "modern")
    assert first.url.startswith("https://127.0.0.1:")
    answer = httpx.get(f"{first.url}/v1/health", verify=trust)
    assert answer.json()["status"] == "ok"
    assert "strict-transport-security" in answer.headers
    assert httpx.get(f"{first.url}/v1/me", verify=trust).status_code == 401

    for name, role in (("ann", "owner"), ("weather", "app")):  # while it runs
        code = token_command("create", name, role, "--days", 2)["code"]
        people[name] = enrol(first.url, code, verify=trust)
    with client(people["ann"]) as ann, client(people["weather"]) as weather:
        ann.set_private(["male"])
        ann.add_frame(drawn_frames(1, random_state=9)[0])
        weather.register_app(["smiling"])
        job = weather.propose("ann").id

    port = first.url.rpartition(":")[2]
    said = blindsight("serve", "--folder", folder, "--port", 0, "-n", 360, "--no-page", code=1).err
    assert "another service uses" in said
    said = blindsight("serve", "--folder", tmp_path / "other", "--port", port, code=1).err
    assert f"cannot listen on 127.0.0.1 port {port}" in said
    assert not (tmp_path / "other").exists()
    with socket.create_connection(("127.0.0.1", int(port))):
        code, said = first.stop()  # a connection that says nothing does not keep it
    assert code == 0
    (token,) = TOKEN.findall(said)
    assert "Traceback" not in first.errors
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(token.encode() not in file.read_bytes() for file in folder.rglob("*") if file.is_file())

    second = serve(*tls, "--attackers", "quick", "--verdict-seconds", 1, "--json")
    people = {name: replace(one, url=second.url) for name, one in people.items()}
    with client(people["weather"]) as weather:
        assert weather.wait(job, pause=0.1).state == "done"
    with client(people["ann"]) as ann:
        (frame,) = ann.frames()
        assert ann.picture(frame).startswith(b"\x89PNG")
    again = enrol(second.url, token_command("enrol", "ann")["code"], verify=trust)
    with client(again) as ann, client(people["ann"]) as before:
        with pytest.raises(PrivacyError, match="token"):
            before.frames()
        assert ann.frames() == (frame,)
        with pytest.raises(MessageError):  # which is sealed for the key of before
            ann.picture(frame)
        token_command("revoke", "ann")
        with pytest.raises(PrivacyError):
            ann.frames()
    with Client(second.url, token, verify=trust) as operator:
        assert operator.me.role == "operator"
        assert (operator.person("ann").private, operator.person("ann").frames) == (("male",), 1)
        assert [entry.action for entry in operator.log()][:3] == ["create principal", "create principal", "enrol"]
        assert operator.check_log().ok
    code, said = second.stop(signal.SIGINT)
    assert code == 0
    assert TOKEN.search(said + second.errors) is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--host", "0.0.0.0"], "tokens would travel readable"),
        (["--host", "no such host", "--insecure-without-tls"], "no address of this machine"),
        (["--certificate", "bad.pem", "--key", "bad.pem"], "must be PEM files"),
        (["--database", "mysql://user:secret@host/name"], "the database must be a URL"),
        (["--verification", "face"], "Did you mean 'faces'?"),
        (["--verification", "digits", "-n", "100"], "no labels"),
        (["--features", "pixel", "-n", "300"], "Did you mean 'pixels'?"),
        (["--port", "70000"], "70000"),
    ],
)
def test_bad_options_get_one_sentence(words, sentence, tmp_path, blindsight, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.pem").write_text("not a certificate")
    free = [] if "--port" in words else ["--port", 0]
    said = blindsight("serve", "--folder", "service", *free, *words, code=2).err
    (error,) = [line for line in said.splitlines() if not line.endswith(" ...")]
    assert error.startswith("error: ")
    assert sentence in error
    assert "secret" not in error
    assert not Path("service/service.db").exists() or words[0] in ("--verification", "--features")


def test_a_network_without_tls_only_if_said_so(tmp_path):
    from blindsight.service.settings import ServiceSettings

    assert not ServiceSettings(tmp_path, host="0.0.0.0", without_tls=True).encrypted


def test_missing_extra_is_named(tmp_path, blindsight, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    said = blindsight("serve", "--folder", tmp_path / "service", code=1).err
    assert "pip install '.[service]'" in said


@pytest.fixture
def known(tmp_path):
    """The folder of a service with an operator, made without starting it."""
    from blindsight.service.log import open_log
    from blindsight.service.principals import Principals
    from blindsight.service.store import open_database

    with closing(open_database(f"sqlite:///{tmp_path / 'service' / 'service.db'}")) as database:
        open_log(tmp_path / "service", database)
        Principals(database).first_run()
    return tmp_path / "service"


def test_tokens_are_made_listed_replaced_and_revoked(known, blindsight, token_command):
    made = token_command("create", "ann", "owner", "--days", 30)
    assert (made["name"], made["role"]) == ("ann", "owner")
    assert re.fullmatch("([A-Z2-7]{6}-){3}[A-Z2-7]{6}", made["code"])
    assert token_command("enrol", "ann")["code"] != made["code"]
    token_command("revoke", made["id"])
    operator, ann = token_command("list")["principals"]
    assert (operator["name"], operator["expires"], operator["revoked"]) == ("operator", "", "")
    assert (ann["name"], bool(ann["expires"]), bool(ann["revoked"])) == ("ann", True, True)
    assert "token" not in ann
    assert blindsight("verify-log", "--folder", known, "--json").document["entries"] == 4


def test_a_code_made_on_the_machine_ends_cameras_and_grants(tmp_path, token_command):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "service"))
    from smallservice import Cast, granted, open_service

    gateway = open_service(tmp_path / "service")
    cast = Cast(gateway, apps="X")
    camera = gateway.add_device(cast.ann, "door")[1]
    granted(gateway, cast, frames=2)
    gateway.close()
    token_command("enrol", "Ann")
    gateway = open_service(tmp_path / "service")
    assert gateway.authenticate(cast.ann_token) is None
    assert gateway.authenticate(str(camera)) is None
    assert [one.standing for one in gateway.grants(cast.ann)] == ["revoked"]
    assert gateway.keys.open_epochs() == {}
    gateway.close()


def test_a_change_that_is_refused_leaves_no_entry(known, blindsight, token_command):
    assert "last operator" in token_command("revoke", "operator", code=2)["error"]
    assert "is taken" in token_command("create", "operator", "app", code=2)["error"]
    assert "slashes" in token_command("create", "a/b", "owner", code=2)["error"]
    assert "Did you mean 'operator'?" in token_command("enrol", "operater", code=2)["error"]
    assert blindsight("verify-log", "--folder", known, "--json").document["entries"] == 1  # of before


@pytest.mark.parametrize("words", [["token", "list"], ["token", "create", "ann", "owner"], ["verify-log"]])
def test_a_folder_without_a_service_is_left_alone(words, tmp_path, blindsight):
    assert "there is no service" in blindsight(*words, "--folder", tmp_path / "none", code=1).err
    assert not (tmp_path / "none").exists()


@pytest.fixture
def logged(known, token_command):
    """The folder of a service whose log has four entries."""
    for name in "abcd":
        token_command("create", name, "app")
    return known


def tamper(folder, *statements):
    with closing(sqlite3.connect(folder / "service.db", isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


def test_verify_log_finds_entries_cut_off_by_a_noted_head_and_edited_ones(logged, blindsight):
    asked = ["verify-log", "--folder", logged]
    head = blindsight(*asked, "--json").document["head"]
    tamper(logged, "DROP TRIGGER log_keeps_rows", "DELETE FROM log WHERE position = 5")
    blindsight(*asked, code=1)  # the folder remembers its newest head
    (logged / "log.head").unlink()
    blindsight(*asked)  # a shorter history is whole in itself
    blindsight(*asked, "--head", head, code=1)
    edit = "UPDATE log SET details = replace(details, '\"b\"', '\"x\"') WHERE position = 3"
    tamper(logged, "DROP TRIGGER log_keeps_content", edit)
    said = blindsight(*asked, code=1).out
    assert "entry 3 was altered" in said
    assert "2 entries before hold" in said
    assert blindsight(*asked, "--json", "--head", head, code=1).document["broken_at"] == 3


def test_verify_log_checks_an_export(logged, tmp_path, blindsight):
    from blindsight.service.log import open_log
    from blindsight.service.store import open_database

    export = tmp_path / "log.jsonl"
    with closing(open_database(f"sqlite:///{logged / 'service.db'}")) as database, export.open("w") as stream:
        stream.writelines(open_log(logged, database).export())
    blindsight("verify-log", export)
    export.write_text(export.read_text().replace('"name": "c"', '"name": "z"'))
    assert blindsight("verify-log", export, "--json", code=1).document["broken_at"] == 4
    blindsight("verify-log", tmp_path / "none.jsonl", code=1)
