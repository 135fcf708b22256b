"""A whole federation on one machine: a Flower SuperLink and one SuperNode for each party, as real processes over TLS.

What runs is what would run on several machines; only the addresses differ. The SuperLink shows a certificate of the
federation's own authority, keeps its state in a database on disk and admits no node whose key is not registered. The
server's side of a run is executed by a process of its own (Flower: SuperExec), which shows the SuperLink a shared
secret: so it outlives a SuperLink that was killed, and no stranger can take its place. Every node has a folder, a key
and a port of its own. Telemetry, update checks and the installation of dependencies at run time are off. Nothing keeps
running when the `with` block ends, however it ends.

    FOLDER/certificates/     the authority's and the server's (blindsight.federated.invite)
    FOLDER/superlink/        the SuperLink's database and Flower home
    FOLDER/aggregator/       the secret it shares with the SuperLink, and the Flower home of the server's side
    FOLDER/operator/         Flower's home of whoever types `flwr run`
    FOLDER/nodes/NAME/       a node's key, its id at the SuperLink, and its own Flower home
    FOLDER/logs/             what each process wrote
"""

import re
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from apps.federated.deployment.processes import Service, check_port, free_ports
from apps.federated.deployment.signoff import sign_off
from blindsight.errors import InputError, ServiceError, StorageError, UnknownNameError
from blindsight.extras import require
from blindsight.federated import commands
from blindsight.federated.commands import CONNECTION, Operator
from blindsight.federated.commands import ConfigValue as ConfigValue  # part of NodeSpec, offered with it
from blindsight.federated.invite import Certificates, make_certificates, make_node_key
from blindsight.files import atomic_writer, check_writable
from blindsight.rng import system_bytes

HOST = "127.0.0.1"
_SERVERS = ("superlink", "aggregator")  # their logs lie beside those of the nodes
_NODE_ID = re.compile(r"SuperNode ID: (\d+)\b")


@dataclass(frozen=True)
class NodeSpec:
    """One party's node: its name, what its operator tells it (`--node-config`), and its environment."""

    name: str
    node_config: Mapping[str, ConfigValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


class Loopback:
    """A SuperLink and its SuperNodes on this machine; use it in a `with` statement."""

    def __init__(
        self,
        app: Path,
        nodes: Sequence[NodeSpec],
        folder: Path,
        *,
        port: int | None = None,
        certificates: Path | None = None,
        aggregator_env: Mapping[str, str] | None = None,
        timeout: float = 120.0,
        warm: bool = True,
    ) -> None:
        """Name the app, the nodes and where all files go; certificates are made unless a folder with some is named."""
        self.app = app.resolve()
        self.nodes = {node.name: node for node in nodes}
        self.folder = folder.resolve()
        self.timeout = timeout
        self._warm = warm
        self.node_ids: dict[str, int] = {}
        self._port = port
        self._given_ports: set[int] = set() if port is None else {port}
        self._aggregator_env = dict(aggregator_env or {})
        self.certificates = Certificates((certificates or folder / "certificates").resolve())
        self._own_certificates = certificates is None
        self._services: dict[str, Service] = {}
        _check_nodes(nodes)

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self.restart_superlink()
            self.restart_aggregator()
            for name in self.nodes:
                self._register(name)
            for name in self.nodes:
                self._service(name).start()
            for name in self.nodes:
                self._await_node(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the nodes, then the servers."""
        for service in reversed(list(self._services.values())):
            service.stop()

    # ---- runs

    def run(self, run_config: Mapping[str, ConfigValue] | None = None) -> int:
        """Submit the app and return the run's number; the run goes on by itself."""
        options = ["--run-config", commands.configuration(run_config)] if run_config else []
        return int(self._operator().asked("run", str(self.app), CONNECTION, *options)["run-id"])

    def status(self, run_id: int) -> str:
        """Return where a run stands: pending, starting, running, or finished:completed, :failed, :stopped."""
        return str(self._operator().asked("list", CONNECTION, "--run-id", str(run_id))["runs"][0]["status"])

    def wait(self, run_id: int, timeout: float) -> str:
        """Wait until a run has finished and return how; a SuperLink that is away for a while is waited for, too."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            with suppress(ServiceError):
                self._operator().flwr("log", str(run_id), CONNECTION, "--stream", timeout=left)  # ends with the run
                if (status := self.status(run_id)).startswith("finished"):
                    return status
            time.sleep(min(1.0, left))
        raise ServiceError(f"run {run_id} has not finished within {timeout:g} s.")

    def log(self, run_id: int) -> str:
        """Return what the run's server side wrote so far."""
        return self._operator().flwr("log", str(run_id), CONNECTION, "--show")

    def stop_run(self, run_id: int) -> None:
        """Stop a run that has not finished."""
        self._operator().flwr("stop", str(run_id), CONNECTION)

    @property
    def processes(self) -> dict[str, int]:
        """The process below which each party runs: "superlink", "aggregator", and "node NAME" of each node."""
        return {name: service.pid for name, service in self._services.items()}

    # ---- faults

    def kill(self, name: str) -> None:
        """Kill a node and all it started (SIGKILL), as if its machine had lost its power."""
        self._service(name).kill()

    def stop(self, name: str) -> None:
        """Stop a node in peace: it signs itself off."""
        self._service(name).stop()

    def start(self, name: str) -> None:
        """Start a node again with the same key, and wait until the SuperLink accepted it.

        The SuperLink refuses a key that is online, and believes for up to a minute that a killed node is; so the node
        is signed off before.
        """
        service = self._service(name)
        if service.running:
            raise InputError(f"node {name} is running already.")
        self._sign_off(name)
        service.start()
        self._await_node(name)

    def supernode(self, node: NodeSpec) -> Service:
        """Return a node's process, not started; one that is no member of this federation is the caller's to end."""
        home = self.folder / "nodes" / node.name
        if not (home / "node.key").exists():
            make_node_key(home / "node.key")
        command = commands.supernode(
            self._address,
            authority=self.certificates.authority,
            key=home / "node.key",
            host=HOST,
            port=self._free_port(),
            node_config=node.node_config,
            warm=self._warm,
        )
        return self._make_service(_label(node.name), command, home=home / "flower", log=node.name, env=node.env)

    def node_id(self, name: str) -> int:
        """Return the id the SuperLink told the node when it was last started."""
        found = _NODE_ID.search(self._service(name).output())
        if found is None:
            raise ServiceError(f"node {name} has not been accepted by the SuperLink.")
        return int(found[1])

    def kill_superlink(self) -> None:
        """Kill the SuperLink (SIGKILL); nodes and runs wait for its return."""
        self._services["superlink"].kill()

    def restart_superlink(self) -> None:
        """Start the SuperLink on the same port, with the database it left, and wait until it answers."""
        check_port(self.port)
        service = self._services["superlink"]
        service.start()
        service.wait_until(self._superlink_answers, timeout=self.timeout)

    def kill_aggregator(self) -> None:
        """Kill the server's side of every run (SIGKILL); the SuperLink declares those runs failed within a minute."""
        self._services["aggregator"].kill()

    def restart_aggregator(self) -> None:
        """Start what executes the server's side of runs."""
        self._services["aggregator"].start()

    # ---- how it is done

    @property
    def port(self) -> int:
        """The one port of the SuperLink."""
        assert self._port is not None  # chosen before anything is started
        return self._port

    @property
    def _address(self) -> str:
        return f"{HOST}:{self.port}"

    def _prepare(self) -> None:
        """Check all that can be checked, and make the files, before any process starts."""
        require("flwr", extra="federated", purpose="running a federation")
        if not (self.app / "pyproject.toml").is_file():
            raise StorageError(f"{self.app} is not a Flower app: it has no pyproject.toml.")
        if self._port is None:
            self._port = self._free_port()
        check_port(self._port)
        check_writable(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if self._own_certificates and not self.certificates.folder.exists():
            make_certificates(self.certificates.folder)
        self.certificates.check()
        self._services["superlink"] = self._superlink()
        self._services["aggregator"] = self._aggregator()
        for name, node in self.nodes.items():
            self._services[_label(name)] = self.supernode(node)

    def _superlink(self) -> Service:
        home = self.folder / "superlink"
        home.mkdir(exist_ok=True)
        command = commands.superlink(
            HOST, self.port, certificates=self.certificates, database=home / "state.db", secret=self._secret()
        )
        return self._make_service("superlink", command, home=home)

    def _aggregator(self) -> Service:
        command = commands.aggregator(
            self._address, authority=self.certificates.authority, secret=self._secret(), warm=self._warm
        )
        home = self.folder / "aggregator" / "flower"
        return self._make_service("aggregator", command, home=home, env=self._aggregator_env)

    def _make_service(
        self, name: str, command: list[str], *, home: Path, log: str | None = None, env: Mapping[str, str] | None = None
    ) -> Service:
        environment = {**commands.environment(home), **(env or {})}
        return Service(name, command, log=self.folder / "logs" / f"{log or name}.log", environment=environment)

    def _secret(self) -> Path:
        path = self.folder / "aggregator" / "secret"
        if not path.exists():
            with atomic_writer(path, private=True) as stream:
                stream.write(system_bytes(32))
        return path

    def _free_port(self) -> int:
        """Return a port that is free and was not given to a process of this federation, which may not run yet."""
        port = next(port for port in free_ports(len(self._given_ports) + 1) if port not in self._given_ports)
        self._given_ports.add(port)
        return port

    def _register(self, name: str) -> None:
        """Tell the SuperLink the node's public key, once, and keep the id it gave the node."""
        home = self.folder / "nodes" / name
        identifier = home / "node-id"
        known = identifier.exists()
        if not known:
            node_id = self._operator().register(name, home / "node.key.pub")
            identifier.write_text(f"{node_id}\n")
        self.node_ids[name] = int(identifier.read_text())
        if known:  # this folder was used before, and the node may not have been stopped in peace
            self._sign_off(name)

    def _sign_off(self, name: str) -> None:
        key = self.folder / "nodes" / name / "node.key"
        sign_off(self._address, authority=self.certificates.authority, key=key, node_id=self.node_ids[name])

    def _await_node(self, name: str) -> None:
        service = self._service(name)
        service.wait_until(lambda: _NODE_ID.search(service.output()) is not None, timeout=self.timeout)

    def _superlink_answers(self) -> bool:
        trust = ssl.create_default_context(cafile=str(self.certificates.authority))
        try:
            with urlopen(f"https://{self._address}/health", timeout=5, context=trust) as answer:
                return bool(answer.status == 200)
        except (URLError, ConnectionError, TimeoutError):
            return False

    def _operator(self) -> Operator:
        return Operator(self.folder / "operator", address=self._address, authority=self.certificates.authority)

    def _service(self, name: str) -> Service:
        if name not in self.nodes:
            raise UnknownNameError("node", name, self.nodes)
        return self._services[_label(name)]


def _check_nodes(nodes: Sequence[NodeSpec]) -> None:
    names = [node.name for node in nodes]
    if not names:
        raise InputError("a federation needs at least one node; got none.")
    for name in names:
        if name in _SERVERS:
            raise InputError(f"{name} is the name of a server here. Call the node otherwise.")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,30}", name):
            raise InputError(f"a node's name consists of 1 to 31 letters, digits, dots, dashes or _; got {name!r}.")
    if len(set(names)) < len(names):
        raise InputError(f"every node needs a name of its own; got {', '.join(sorted(names))}.")


def _label(name: str) -> str:
    return f"node {name}"
