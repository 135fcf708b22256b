"""The run-config, read with care: every setting has a type, and a wrong one gets a sentence."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blindsight.errors import InputError
from blindsight.federated.identity import KeyStore, Members, server_store
from blindsight.sums import Patience


@dataclass(frozen=True)
class Settings:
    """The settings of a run by name."""

    values: dict[str, Any]

    def text(self, name: str) -> str:
        return str(self._of(name, str))

    def path(self, name: str) -> Path:
        if not (given := self.text(name)):
            raise InputError(f"the run-config must name {name!r}: flwr run --run-config '{name}=\"...\"'.")
        return Path(given).expanduser()

    def whole(self, name: str) -> int:
        return int(self._of(name, int))

    def number(self, name: str) -> float:
        return float(self._of(name, int, float))

    def flag(self, name: str) -> bool:
        return bool(self._of(name, bool))

    def store(self) -> tuple[KeyStore, Members]:
        """Return the server's key store and the members, of which the server must be one."""
        members = Members.read(self.path("members"))
        return server_store(self.path("home"), members), members

    def patience(self) -> Patience:
        return Patience(
            round=self.number("round-seconds"),
            step=self.number("step-seconds"),
            generator=self.number("key-generator-seconds"),
        )

    def _of(self, name: str, *kinds: type) -> Any:
        value = self.values.get(name)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise InputError(f"{name!r} in the run-config must be {wanted}; got {value!r}.")
        return value
