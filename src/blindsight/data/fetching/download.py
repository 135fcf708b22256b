"""One file over HTTP: resumed where it broke off, believed only when its checksum fits, in place only when whole.

While it comes, the file is called `*.part`. What an earlier attempt left there is continued with an HTTP Range request
if the server can do that, and thrown away if the whole then does not match: old bytes are a saving, never evidence.
"""

from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from blindsight.errors import FetchError
from blindsight.files import sha256_of
from blindsight.progress import Progress

ATTEMPTS = 8
"""How often a broken transfer is taken up again before giving up."""

_LARGEST = 2 * 2**30
_TIMEOUT_SECONDS = 30.0
_CHUNK = 2**18


@dataclass(frozen=True)
class RemoteFile:
    """A file somewhere on the web; `sha256` is None only where no checksum is published for the file itself."""

    url: str
    filename: str
    size: int | None = None
    sha256: str | None = None

    def bring(self, folder: Path, by_hand: Path, progress: Progress) -> Path:
        """Return the verified file: as the user put it into `by_hand`, else downloaded into `folder`."""
        for place in (by_hand, folder):
            if is_genuine(place / self.filename, self.size, self.sha256):
                return place / self.filename
        return download(self, folder, progress)


def is_genuine(path: Path, size: int | None, sha256: str | None) -> bool:
    """Tell whether `path` is a file of this size and checksum; None stands for any."""
    if not path.is_file() or (size is not None and path.stat().st_size != size):
        return False
    return sha256 is None or sha256_of(path) == sha256


def download(file: RemoteFile, folder: Path, progress: Progress) -> Path:
    """Download `file` into `folder` and return its path; FetchError if it cannot be had or is not the right one."""
    target, part = folder / file.filename, folder / f"{file.filename}.part"
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        fresh = not part.exists()
        _receive_all(file, part, progress)
        if is_genuine(part, file.size, file.sha256):
            break
        part.unlink()
        if fresh:
            raise FetchError(f"{file.url} does not match its checksum; what arrived was thrown away.")
    part.replace(target)
    return target


def _receive_all(file: RemoteFile, part: Path, progress: Progress) -> None:
    for _ in range(ATTEMPTS):
        if _receive(file, part, progress):
            return
    raise FetchError(
        f"the connection to {_host(file.url)} broke off {ATTEMPTS} times; "
        f"fetch again to go on after the {_size(part)} bytes that have arrived."
    )


def _receive(file: RemoteFile, part: Path, progress: Progress) -> bool:
    """Append what is missing of the file to `part`; return whether it is complete."""
    start, limit = _size(part), file.size or _LARGEST
    response = _open(file.url, start)
    if response is None:  # nothing comes after `start`: what lies there is too long to be a beginning
        part.unlink()
        return False
    with response:
        if start and not (response.headers.get("Content-Range") or "").startswith(f"bytes {start}-"):
            start = 0  # the server sends it from the beginning
        total = None if response.length is None else start + response.length
        done = start
        with part.open("ab" if start else "wb") as stream:
            while done <= limit and (chunk := _next_chunk(response)):
                stream.write(chunk)
                done += len(chunk)
                progress(f"downloading {file.filename}", done, file.size or total)
    if done > limit:
        part.unlink()
        raise FetchError(f"{file.url} is larger than it should be; what arrived was thrown away.")
    return chunk is not None and (total is None or done == total)


def _open(url: str, start: int) -> HTTPResponse | None:
    """Ask for the file from byte `start` on; None if the server says that nothing comes after it."""
    headers = {"User-Agent": "blindsight"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=_TIMEOUT_SECONDS)  # noqa: S310
    except HTTPError as error:
        error.close()
        if error.code == 416:  # Range Not Satisfiable
            return None
        raise FetchError(f"{_host(url)} answered {error.code} {error.reason} to {url}.") from error
    except (HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        cause = getattr(reason, "strerror", None) or reason
        raise FetchError(f"{_host(url)} could not be reached ({cause}).") from error
    return response


def _next_chunk(response: HTTPResponse) -> bytes | None:
    """Read some more; b"" at the end, None if the connection broke."""
    try:
        return response.read(_CHUNK)
    except (HTTPException, OSError):
        return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _host(url: str) -> str:
    return urlsplit(url).netloc
