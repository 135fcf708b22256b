"""The operator's console: `flwr` with a home of its own; it registers nodes, submits runs, watches and stops them."""

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apps.federated.deployment import commands
from apps.federated.deployment.commands import ConfigValue
from blindsight.errors import ServiceError

_CONNECTION = "federation"
_FINISHED = "finished"


class Operator:
    """Whoever types `flwr`; `home` holds the address of the SuperLink and the authority it is believed by."""

    def __init__(self, home: Path, *, address: str, authority: Path) -> None:
        self._home = home
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{_CONNECTION}"\n\n[superlink.{_CONNECTION}]\n'
            f'address = "{address}"\nroot-certificates = {json.dumps(str(authority))}\n'
        )

    def register(self, name: str, public_key: Path) -> int:
        """Tell the SuperLink a node's public key and return the id it gives the node."""
        return int(self._json("supernode", "register", str(public_key), _CONNECTION, "--name", name)["node-id"])

    def run(self, app: Path, run_config: Mapping[str, ConfigValue] | None = None) -> int:
        """Submit the app and return the run's number; the run goes on by itself."""
        options = ["--run-config", commands.configuration(run_config)] if run_config else []
        return int(self._json("run", str(app), _CONNECTION, *options)["run-id"])

    def status(self, run_id: int) -> str:
        """Return where a run stands: pending, starting, running, or finished:completed, :failed, :stopped."""
        return str(self._json("list", _CONNECTION, "--run-id", str(run_id))["runs"][0]["status"])

    def wait(self, run_id: int, timeout: float) -> str:
        """Wait until a run has finished and return how; a SuperLink that is away for a while is waited for, too."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._flwr("log", str(run_id), _CONNECTION, "--stream", timeout=left)  # ends with the run
                if (status := self.status(run_id)).startswith(_FINISHED):
                    return status
            except ServiceError:
                pass
            time.sleep(min(1.0, left))
        raise ServiceError(f"run {run_id} has not finished within {timeout:g} s.")

    def log(self, run_id: int) -> str:
        """Return what the run's server side wrote so far."""
        return self._flwr("log", str(run_id), _CONNECTION, "--show")

    def stop_run(self, run_id: int) -> None:
        """Stop a run that has not finished."""
        self._flwr("stop", str(run_id), _CONNECTION)

    def _json(self, *arguments: str) -> Any:
        output = self._flwr(*arguments, "--format", "json")
        answer = json.loads(output[output.index("{") :])
        if not answer.get("success"):
            raise ServiceError(f"flwr {arguments[0]} failed: {answer.get('error-message', output)}")
        return answer

    def _flwr(self, *arguments: str, timeout: float = 60.0) -> str:
        try:
            done = subprocess.run(  # noqa: S603
                [commands.program("flwr"), *arguments],
                env=commands.environment(self._home),
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
