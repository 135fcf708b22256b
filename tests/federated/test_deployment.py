"""What a federation on one machine needs: certificates, keys that fit Flower, processes that leave nothing behind."""

import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from apps.federated.deployment import processes
from apps.federated.deployment.loopback import Loopback, NodeSpec
from apps.federated.deployment.processes import Service, check_port, free_ports
from blindsight.errors import InputError, ServiceError, StorageError, UnknownNameError
from blindsight.federated.commands import configuration
from blindsight.federated.invite import make_certificates, make_node_key

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0  # seconds, for what takes one on a machine that does nothing else
# A child, a grandchild in a session of its own and an orphan, all of which ignore SIGTERM; each writes its process id.
FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
generation = int(sys.argv[2])
if generation < 3:
    subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[1], str(generation + 1)], start_new_session=True)
print("pid", os.getpid(), flush=True)
if generation != 2:
    time.sleep(600)
"""


# ---- certificates


@pytest.fixture
def certificates(tmp_path):
    return make_certificates(tmp_path / "certificates", ["localhost", "127.0.0.1", "learn.example.org"])


def handshake(certificates, trust, host):
    """Let a server with these certificates and a client that trusts `trust` shake hands over a pair of sockets."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.server, certificates.server_key)
    ours, theirs = socket.socketpair()

    def serve():
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with trust.wrap_socket(ours, server_hostname=host) as believed:
            return believed.version()
    finally:
        ours.close()
        thread.join()


def test_the_server_is_believed_under_its_names_by_those_who_hold_the_authority(certificates, tmp_path):
    trust = ssl.create_default_context(cafile=str(certificates.authority))
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(certificates, trust, "other.example.org")
    trust.verify_flags |= ssl.VERIFY_X509_STRICT
    for host in ("localhost", "127.0.0.1", "learn.example.org"):
        assert handshake(certificates, trust, host) == "TLSv1.3"
    other = ssl.create_default_context(cafile=str(make_certificates(tmp_path / "other").authority))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"signature|issuer"):
        handshake(certificates, other, "localhost")
    server = x509.load_pem_x509_certificate(certificates.server.read_bytes())
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_private_keys_are_their_owners_alone_and_of_the_kind_flower_reads(certificates, tmp_path):
    public = make_node_key(tmp_path / "node.key")
    for path in (certificates.authority_key, certificates.server_key, tmp_path / "node.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"PRIVATE" not in public.read_bytes()
    private = load_ssh_private_key((tmp_path / "node.key").read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    assert load_ssh_public_key(public.read_bytes()) == private.public_key()


def test_nothing_is_overwritten(certificates, tmp_path):
    before = {path: path.read_bytes() for path in certificates.folder.iterdir()}
    with pytest.raises(StorageError, match=r"authority\.crt"):
        make_certificates(certificates.folder)
    assert {path: path.read_bytes() for path in certificates.folder.iterdir()} == before
    make_node_key(tmp_path / "node.key")
    (tmp_path / "node.key").unlink()
    with pytest.raises(StorageError, match=r"node\.key\.pub"):
        make_node_key(tmp_path / "node.key")
    assert not (tmp_path / "node.key").exists()


@pytest.mark.parametrize("hosts", [[], [""], ["learn.example.org:9092"], ["two words"]])
def test_a_host_that_is_none_is_refused_and_nothing_written(hosts, tmp_path):
    with pytest.raises(InputError):
        make_certificates(tmp_path / "certificates", hosts)
    assert not (tmp_path / "certificates").exists()


# ---- processes


def service(tmp_path, *command, grace=5.0):
    return Service("the service", command, log=tmp_path / "log", environment=os.environ, grace=grace)


def family(tmp_path):
    return service(tmp_path, sys.executable, "-c", FAMILY, FAMILY, "1", grace=0.2)


def pids(text):
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("pid")]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", [Service.stop, Service.kill])
def test_no_descendant_outlives_a_service(tmp_path, end):
    parent = family(tmp_path)
    parent.start()
    try:
        parent.wait_until(lambda: len(pids(parent.output())) == 3, timeout=PATIENCE)
        everyone = pids(parent.output())
        assert sum(map(alive, everyone)) >= 2
    finally:
        end(parent)
    assert not any(map(alive, everyone))
    assert not parent.running


def test_no_descendant_outlives_an_owner_that_was_killed(tmp_path):
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom apps.federated.deployment.processes import Service\n"
        "s = Service('s', [sys.executable, '-c', sys.argv[1], sys.argv[1], '1'], log=Path(sys.argv[2]),"
        " environment=os.environ, grace=0.2)\n"
        "s.start(); time.sleep(600)"
    )
    log = tmp_path / "log"
    path = os.pathsep.join([str(ROOT), *sys.path])
    owner = subprocess.Popen([sys.executable, "-c", code, FAMILY, str(log)], env=os.environ | {"PYTHONPATH": path})
    try:
        assert eventually(lambda: log.exists() and len(pids(log.read_text())) == 3)
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert eventually(lambda: not any(alive(pid) for pid in pids(log.read_text())))


def eventually(condition):
    deadline = time.monotonic() + PATIENCE
    while not (happened := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return happened


def test_a_service_is_asked_to_stop_before_it_is_killed(tmp_path):
    polite = service(
        tmp_path, "sh", "-c", "trap 'echo farewell; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    )
    polite.start()
    polite.wait_until(lambda: "ready" in polite.output(), timeout=PATIENCE)
    polite.stop()
    assert "farewell" in polite.output()


def test_a_service_that_ends_before_it_is_ready_is_quoted(tmp_path):
    broken = service(tmp_path, "sh", "-c", "echo no such key; exit 3")
    broken.start()
    with pytest.raises(ServiceError, match="no such key"):
        broken.wait_until(lambda: False, timeout=PATIENCE)
    broken.stop()


def test_a_service_starts_again_and_its_output_anew(tmp_path):
    again = service(tmp_path, "sh", "-c", "echo once; sleep 600")
    for _ in range(2):
        again.start()
        again.wait_until(lambda: "once" in again.output(), timeout=PATIENCE)
        assert again.output().count("once") == 1
        with pytest.raises(InputError, match="running already"):
            again.start()
        again.kill()
    assert again.log.read_text().count("once") == 2


# ---- the federation, before anything is started


@pytest.fixture
def app(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "pyproject.toml").write_text("")
    return tmp_path / "app"


def refused(loopback):
    with loopback:
        raise AssertionError("it started")


def test_a_port_in_use_is_refused_before_anything_is_written(app, tmp_path):
    assert len(set(free_ports(20))) == 20
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ServiceError, match=f"port {port}"):
            check_port(port)
        with pytest.raises(ServiceError, match=f"port {port}"):
            refused(Loopback(app, [NodeSpec("user-1")], tmp_path / "folder", port=port))
    assert not (tmp_path / "folder").exists()


def test_no_two_processes_of_a_federation_are_given_one_port(app, tmp_path, monkeypatch):
    few = free_ports(6)
    monkeypatch.setattr(processes, "_LISTENING_PORTS", few)
    loopback = Loopback(app, [NodeSpec("user")], tmp_path / "folder", port=few[0])
    commands = [loopback.supernode(NodeSpec(f"user-{number}")).command for number in range(5)]
    assert sorted(command[command.index("--port") + 1] for command in commands) == sorted(map(str, few[1:]))


def test_a_missing_certificate_is_named(app, tmp_path, certificates):
    certificates.server_key.unlink()
    with pytest.raises(StorageError, match=r"server\.key"):
        refused(Loopback(app, [NodeSpec("user-1")], tmp_path / "folder", certificates=certificates.folder))
    assert not (tmp_path / "folder" / "logs").exists()


def test_a_folder_without_an_app_and_names_that_cannot_be_told_apart_are_refused(app, tmp_path):
    with pytest.raises(StorageError, match=r"pyproject\.toml"):
        refused(Loopback(tmp_path / "nowhere", [NodeSpec("user-1")], tmp_path / "folder"))
    for names in ([], ["user-1", "user-1"], ["../user"], ["superlink"], ["aggregator"], [""]):
        with pytest.raises(InputError):
            Loopback(app, [NodeSpec(name) for name in names], tmp_path / "folder")
    with pytest.raises(UnknownNameError, match="'user-1'"):
        Loopback(app, [NodeSpec("user-1")], tmp_path / "folder").kill("user-2")


def test_settings_are_read_by_flower_as_they_were_written_or_refused():
    for value in ('a"b', "a\\b", "a\nb"):
        with pytest.raises(InputError, match="'role'"):
            configuration({"role": value})
    read = pytest.importorskip("flwr.common.config").parse_config_args
    settings = {"role": "key generator", "pin": "SHA256:ab+/c", "home": "/x/y.toml", "n": 3, "eps": 0.5, "on": True}
    assert read([configuration(settings)]) == settings
