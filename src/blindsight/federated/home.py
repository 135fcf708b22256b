"""A party's home: a folder of its own, which nobody else can read, with its identity and its part of every run."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from blindsight.errors import InputError, StorageError
from blindsight.federated.identity import IDENTITY_FILE, Identity
from blindsight.federated.members import Members
from blindsight.files import AnyPath, as_path, storage_errors
from blindsight.learn.dphe.terms import AGGREGATOR


@dataclass(frozen=True)
class Home:
    """The home at `path`, which must hold an identity already (`blindsight federation identity` makes one)."""

    path: Path

    def __post_init__(self) -> None:
        """Refuse a home into which others can look; its path may come as text and begin with ~."""
        object.__setattr__(self, "path", as_path(self.path))
        with storage_errors("use", self.path, "Make it with: blindsight federation identity"):
            mode = self.path.stat().st_mode
        if mode & 0o077:
            raise StorageError(f"others can look into {self.path}. Run: chmod 700 {self.path}")

    @cached_property
    def identity(self) -> Identity:
        """The party's keys."""
        return Identity.load(self.path / IDENTITY_FILE)

    def folder(self, run: str) -> Path:
        """Return where a run is kept, if it is; its name was chosen by somebody else, so it is not used as a path."""
        return self.path / "runs" / hashlib.sha256(run.encode()).hexdigest()[:32]

    def run(self, name: str) -> Path:
        """Return the folder of a run, made if need be."""
        folder = self.folder(name)
        with storage_errors("make", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder


def server_home(path: AnyPath, members: Members) -> Home:
    """Return the home of the server, which must be the aggregator among these members."""
    path = as_path(path)
    home = Home(path)
    if home.identity.name != AGGREGATOR:
        raise InputError(f"{path} is the home of {home.identity.name!r}; the server needs that of {AGGREGATOR!r}.")
    members.check(home.identity.public)
    return home
