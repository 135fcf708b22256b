"""What each party types: the commands of a Flower federation over TLS with authenticated nodes, as lists of words.

On one machine and on several they are the same but for the addresses. All of them switch off what would talk to others
or change the installation: telemetry, update checks, and the installation of dependencies at run time.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from blindsight.errors import InputError
from blindsight.federated.certificates import Certificates

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
    "OMP_NUM_THREADS": "1",
}

ConfigValue = str | int | float | bool


def superlink(host: str, port: int, *, certificates: Certificates, database: Path, secret: Path) -> list[str]:
    """The relay: admits registered nodes alone, and lets whoever shows `secret` execute the server's side of runs."""
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
    """Return the path of a program that was installed beside the running Python."""
    return str(_PROGRAMS / name)


_PROGRAMS = Path(sys.executable).parent


def _launched(name: str, warm: bool) -> list[str]:
    """Return how a program of Flower is started: by the launcher with a warm executor, or as it is."""
    if warm:
        return [sys.executable, "-m", "blindsight.federated.flower.launcher", name]
    return [program(f"flower-{name}")]


def _value(key: str, value: ConfigValue) -> str:
    if isinstance(value, str) and re.search(r'["\\\x00-\x1f\x7f]', value):
        raise InputError(f"the setting {key!r} must not contain quotation marks, backslashes or control characters.")
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
