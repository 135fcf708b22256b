"""The commands of a Flower federation over TLS with authenticated nodes, as lists of words.

On one machine and on several they differ only in addresses. All switch off telemetry, update checks and the
installation of dependencies at run time. `serve` runs the operator's side of a federation of invited parties,
`start_node` a party's.
"""

import hashlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from blindsight.errors import InputError, PrivacyError, ServiceError
from blindsight.extras import require
from blindsight.federated.invite import ADMISSION, Admission, Certificates, Federation, Invitation
from blindsight.files import atomic_writer

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
    "OMP_NUM_THREADS": "1",
}

ConfigValue = str | int | float | bool
FEDERATION_VARIABLE, APP_VARIABLE = "BLINDSIGHT_FEDERATION", "BLINDSIGHT_APP"
CONNECTION = "federation"
APP = Path(__file__).parent / "flower" / "app"
OWN_APP = "blindsight"
"""In the place of a digest: Blindsight's own app, as the installed version has it. So versions can change."""


def superlink(host: str, port: int, *, certificates: Certificates, database: Path, secret: Path) -> list[str]:
    """The relay: admits registered nodes alone, and lets those who show `secret` execute the server's side of runs."""
    return [
        *_launched("superlink", warm=True),
        *("--host", host, "--port", str(port)),
        *("--ssl-ca-certfile", str(certificates.authority)),
        *("--ssl-certfile", str(certificates.server), "--ssl-keyfile", str(certificates.server_key)),
        *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
        *("--database", str(database)),
        *("--isolation", "process", "--superexec-auth-secret-file", str(secret)),
    ]


def aggregator(address: str, *, authority: Path, secret: Path, warm: bool = True) -> list[str]:
    """The server's side of runs: waits for them at the SuperLink and executes them, one process for each."""
    return [
        *_launched("superexec", warm),
        *("--runtime-api-address", address),
        *("--root-certificates", str(authority)),
        *("--superexec-auth-secret-file", str(secret)),
    ]


def supernode(
    address: str,
    *,
    authority: Path,
    key: Path,
    host: str,
    port: int,
    node_config: Mapping[str, ConfigValue],
    warm: bool = True,
) -> list[str]:
    """A party's node: asks the SuperLink at `address` for messages; `port` is for its own processes, not for others."""
    return [
        *_launched("supernode", warm),
        *("--superlink", address),
        *("--root-certificates", str(authority), "--auth-supernode-private-key", str(key)),
        *("--host", host, "--port", str(port)),
        *(("--node-config", configuration(node_config)) if node_config else ()),
    ]


def configuration(values: Mapping[str, ConfigValue]) -> str:
    """Write settings the way Flower's `--node-config` and `--run-config` read them.

    >>> configuration({"role": "user", "rounds": 3, "noise": False})
    'role="user" rounds=3 noise=false'
    """
    return " ".join(f"{key}={_value(key, value)}" for key, value in values.items())


def environment(home: Path) -> dict[str, str]:
    """Return this process's environment with Flower kept quiet, at home in `home`, and its programs found first."""
    path = f"{_PROGRAMS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home)}


def program(name: str) -> str:
    return str(_PROGRAMS / name)


_PROGRAMS = Path(sys.executable).parent


def _launched(name: str, warm: bool) -> list[str]:
    """The command that starts a Flower program, by the launcher with a warm executor or directly."""
    if warm:
        return [sys.executable, "-m", "blindsight.federated.flower.launcher", name]
    return [program(f"flower-{name}")]


def _value(key: str, value: ConfigValue) -> str:
    if isinstance(value, str) and re.search(r'["\\\x00-\x1f\x7f]', value):
        raise InputError(f"the setting {key!r} must not contain quotation marks, backslashes or control characters.")
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


class Operator:
    """The operator's `flwr` console; `home` holds the SuperLink's address and the authority that signs for it."""

    def __init__(self, home: Path, *, address: str, authority: Path) -> None:
        self._home = home.resolve()
        text = (
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{address}"\nroot-certificates = {json.dumps(str(authority.resolve()))}\n'
        )
        with atomic_writer(self._home / "config.toml") as stream:  # another console may be reading it
            stream.write(text.encode())

    def register(self, name: str, public_key: Path) -> int:
        """Tell the SuperLink a node's public key and return the id it gives the node."""
        return int(self.asked("supernode", "register", str(public_key), CONNECTION, "--name", name)["node-id"])

    def unregister(self, node: int) -> None:
        self.flwr("supernode", "unregister", str(node), CONNECTION)

    def online(self) -> set[int]:
        listed = self.asked("supernode", "list", CONNECTION, timeout=15.0)["nodes"]
        return {int(node["node-id"]) for node in listed if node["status"] == "online"}

    def asked(self, *arguments: str, timeout: float = 60.0) -> Any:
        output = self.flwr(*arguments, "--format", "json", timeout=timeout)
        answer = json.loads(output[output.index("{") :])
        if not answer.get("success"):
            raise ServiceError(f"flwr {arguments[0]} failed: {answer.get('error-message', output)}")
        return answer

    def flwr(self, *arguments: str, timeout: float = 60.0) -> str:
        """Return what `flwr` prints; `ServiceError` if it fails."""
        try:
            done = subprocess.run(  # noqa: S603
                [program("flwr"), *arguments],
                env=environment(self._home),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ServiceError(f"flwr {arguments[0]} did not answer within {timeout:.0f} s.") from None
        if done.returncode:
            said = " / ".join(line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip())
            raise ServiceError(f"flwr {arguments[0]} failed: {said}")
        return done.stdout


# Invited parties


def pinned(app: str) -> str:
    """Return the digest of the app that a party runs: Blindsight's own is that of the version installed here."""
    return app_digest(APP) if app == OWN_APP else app


def app_digest(folder: Path) -> str:
    """Return the SHA-256 of the bundle that Flower makes of an app, by which nodes know it."""
    build = require("flwr.cli.build", extra="federated", purpose="the digest of an app")
    if not (folder / "pyproject.toml").is_file():
        raise InputError(f"{folder} is not a Flower app: it has no pyproject.toml.")
    return hashlib.sha256(build.build_fab_from_disk(folder.resolve())).hexdigest()


@contextmanager
def _running(command: list[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=environment)  # noqa: S603
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


def operator_of(federation: Federation) -> Operator:
    """Return the console of a federation's operator, on the SuperLink's own machine."""
    port = federation.address.rpartition(":")[2]
    return Operator(
        federation.home / "flower", address=f"127.0.0.1:{port}", authority=federation.certificates.authority
    )


def serve(home: Path, *, host: str = "0.0.0.0", tell: Callable[[str], object] = print) -> None:  # noqa: S104
    """Run the SuperLink, its door and the aggregator's executor until one of them ends or the person stops it."""
    federation = Federation.load(home)
    port = int(federation.address.rpartition(":")[2])
    secret, certificates = home / "secret", federation.certificates
    link = superlink(host, port, certificates=certificates, database=home / "state.db", secret=secret)
    executor = aggregator(f"127.0.0.1:{port}", authority=certificates.authority, secret=secret)
    own = environment(home / "flower") | {FEDERATION_VARIABLE: str(home)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that both end with this process
    with _running(link, own) as first, _running(executor, own | {APP_VARIABLE: pinned(federation.app)}) as second:
        console, told = operator_of(federation), ""
        while first.poll() is None and second.poll() is None:
            try:
                register_joined(home, console, tell)
            except ServiceError as error:  # it is tried again
                if str(error) != told:
                    tell(told := str(error))
            time.sleep(1.0)


def run_app(home: Path, settings: Mapping[str, ConfigValue]) -> None:
    """Run Blindsight's own app in a federation that `serve` runs, show its log, and return when it has ended."""
    federation = Federation.load(home)
    if federation.app != OWN_APP:
        raise InputError(f"the parties of {home} were invited to another app than Blindsight's: use `flwr run`.")
    operator_of(federation)  # leaves the address for `flwr`
    chosen = {"home": str(home), "members-file": str(home / "members.toml"), **settings}
    command = [program("flwr"), "run", str(APP), CONNECTION, "--stream", "--run-config", configuration(chosen)]
    with _running(command, environment(home / "flower")) as process:
        process.wait()


def register_joined(home: Path, console: Operator, tell: Callable[[str], object]) -> None:
    """Tell the SuperLink the node keys of those who have joined since."""
    for name, one in Federation.load(home).joined.items():
        if "node-key" in one and "node" not in one:
            key = home / "flower" / "joining.pub"
            key.write_text(one["node-key"] + "\n")
            number = console.register(re.sub(r"[^A-Za-z0-9_.-]", "-", name), key)
            with Federation.editing(home) as federation:
                if name in federation.joined:
                    federation.registered(name, number)
            tell(f"{name} has joined.")


def request_admission(invitation: Invitation, home: Path, changed: Collection[str] = ()) -> Admission:
    """Join with an invitation, or ask again how things stand; parties in `changed` may have other keys than before."""
    trust = ssl.create_default_context(cadata=invitation.authority)
    try:
        with urlopen(f"https://{invitation.address}{ADMISSION}", invitation.request(home), 30, context=trust) as answer:
            return invitation.answered(home, answer.read(1 << 20), changed)
    except HTTPError as error:
        sentence = error.read(500).decode("utf-8", "replace")
        raise PrivacyError(f"the SuperLink at {invitation.address} does not admit this party: {sentence}") from None
    except (URLError, OSError) as error:
        raise ServiceError(f"the SuperLink at {invitation.address} does not answer: {error}") from None


def joined(
    invitation: Invitation,
    home: Path,
    *,
    seconds: float,
    tell: Callable[[str], object],
    changed: Collection[str] = (),
) -> Admission:
    """Join, and wait until everybody who was invited has, and the SuperLink knows this party's node."""
    until, told = time.monotonic() + seconds, ""
    while True:
        try:
            found = request_admission(invitation, home, changed)
            if found.registered and not found.awaited:
                return found
            waiting = f"Waiting for {', '.join(found.awaited) or 'the SuperLink'} ..."
        except ServiceError as error:
            waiting = str(error)
        if waiting != told:
            tell(told := waiting)
        if time.monotonic() > until:
            raise ServiceError(f"after {seconds:g} seconds: {waiting} Run the same command again later.")
        time.sleep(min(2.0, seconds))


def start_node(invitation: Invitation, admission: Admission, home: Path, *, data: Path | None, port: int) -> None:
    """Become the party's node: this process is replaced by it."""
    command = supernode(
        invitation.address,
        authority=home / "authority.crt",
        key=home / "node.key",
        host="127.0.0.1",
        port=port,
        node_config=admission.node_config(home, data),
    )
    os.execve(command[0], command, environment(home / "flower") | {APP_VARIABLE: pinned(invitation.app)})  # noqa: S606
