"""Download collections of pictures: complete and verified, or not at all, however often a transfer was interrupted.

The cache holds, for a collection called NAME::

    NAME/            the collection's files and a manifest of their sizes and checksums; it appears in one rename
    NAME.download/   what has been downloaded so far, to be continued; removed when the collection is complete
    NAME.part/       what is being unpacked, NAME.old/ what is being replaced; neither is ever read
    NAME.lock        held by the one process that fetches, while others wait and then use its result
    by-hand/         archives that the user has put there, used instead of downloading them

A file whose size and modification time are those of the manifest is trusted, any other is hashed again; if it is
damaged, the collection is fetched again.

Over HTTP a file is called `*.part` while it arrives. What an earlier attempt left there is continued with a Range
request if the server supports that, and discarded if the whole then does not match its checksum.

Of an archive, only regular files whose name matches a pattern are unpacked, under the name the pattern captures; a
link or device in their place, a path that leaves the archive, or more bytes than any collection has is refused.
Archives are read as streams: nothing is unpacked that is not wanted.
"""

import gzip
import hashlib
import json
import re
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol, TypedDict
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from blindsight.errors import FetchError, StorageError
from blindsight.files import atomic_writer, exclusive_lock, sha256_of, storage_errors, sync_folder
from blindsight.progress import Progress

MANIFEST = "blindsight-manifest.json"
ATTEMPTS = 8  # how often a broken transfer is taken up again before giving up
LARGEST = 4 * 2**30  # no collection unpacks to more bytes than this: a larger one is a mistake or a bomb

_REMEDY = "Make room, or set BLINDSIGHT_CACHE to a folder that can be written."
_LARGEST_DOWNLOAD = 2 * 2**30
_SERVER_SECONDS = 30.0
_CHUNK = 2**18

Members = Iterator[tuple[str, IO[bytes]]]
"""Pairs of (path relative to the collection's folder, content); each content must be read before the next pair."""


class _File(TypedDict):
    size: int
    modified_ns: int
    sha256: str


class Origin(Protocol):
    """One file that can be brought here; a user can put it into `by_hand` under its `filename`, from its `url`."""

    @property
    def filename(self) -> str: ...
    @property
    def url(self) -> str: ...
    def bring(self, folder: Path, by_hand: Path, progress: Progress) -> Path:
        """Return where the verified file lies: in `by_hand` if the user put it there, else in `folder`."""


@dataclass(frozen=True)
class Source:
    """One origin of a collection: files to bring, and how they are turned into the collection's own files."""

    name: str
    files: tuple[Origin, ...]
    unpack: Callable[[Sequence[Path], Path], None]


@dataclass(frozen=True)
class Collection:
    """A public collection of pictures; `sources` are tried in order.

    `contents` is the SHA-256 of the list of its files, sorted by path and written as by `sha256sum`. Where it is None,
    the checksum of the archive alone certifies what is in it.
    """

    name: str
    title: str
    pictures: int
    size: int  # bytes to download
    licence: str
    homepage: str
    sources: tuple[Source, ...]
    contents: str | None = None


@dataclass(frozen=True)
class RemoteFile:
    """A file somewhere on the web; `sha256` is None only where no checksum is published for the file itself."""

    url: str
    filename: str
    size: int | None = None
    sha256: str | None = None

    def bring(self, folder: Path, by_hand: Path, progress: Progress) -> Path:
        for place in (by_hand, folder):
            if is_genuine(place / self.filename, self.size, self.sha256):
                return place / self.filename
        return download(self, folder, progress)


def fetch_collection(collection: Collection, *, cache: Path, progress: Progress) -> Path:
    """Return the folder with the verified files of a collection, fetched now if they are not in the cache yet."""
    folder, lock = cache / collection.name, cache / f"{collection.name}.lock"
    if is_intact(folder, collection.contents):
        return folder
    with storage_errors("write to", cache, _REMEDY):
        cache.mkdir(parents=True, exist_ok=True)
        lock.touch()
    with exclusive_lock(lock):
        if not is_intact(folder, collection.contents):  # another process may have fetched it while this one waited
            _try_sources(collection, cache, progress)
    return folder


def is_intact(folder: Path, contents: str | None = None) -> bool:
    """Return True if `folder` holds exactly the files of its manifest, and the manifest the checksum `contents`."""
    try:
        files: dict[str, _File] = json.loads((folder / MANIFEST).read_bytes())["files"]
        if not files or (contents is not None and _digest(files) != contents):
            return False
        return all(_is_unchanged(folder / path, entry) for path, entry in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # not there, not readable, or not a manifest
        return False


def _is_unchanged(path: Path, entry: _File) -> bool:
    status = path.stat()
    if status.st_size != entry["size"]:
        return False
    return status.st_mtime_ns == entry["modified_ns"] or sha256_of(path) == entry["sha256"]


def _try_sources(collection: Collection, cache: Path, progress: Progress) -> None:
    failures = []
    for source in collection.sources:
        try:
            with storage_errors("store", cache / collection.name, _REMEDY):
                return _fetch_from(source, collection, cache, progress)
        except FetchError as error:
            failures.append(f"{source.name}: {str(error).rstrip('.')}")
    with suppress(OSError):
        (cache / f"{collection.name}.download").rmdir()  # unless something has arrived
    raise FetchError(
        f"cannot fetch {collection.name}: {'; '.join(failures)}. "
        f"Otherwise put {_wanted_by_hand(collection)} into {cache / 'by-hand'} and fetch again."
    )


def _wanted_by_hand(collection: Collection) -> str:
    """Return the names of files that a user could bring instead, and where they are."""
    for source in collection.sources:
        names = [file.filename for file in source.files if file.filename]
        urls = [file.url for file in source.files if file.url]
        if names:
            where = urls[0] if len(urls) == 1 else "".join(urls[:1]).rpartition("/")[0]
            return f"{', '.join(names)} from {where}" if where else ", ".join(names)
    return "its files"


def _fetch_from(source: Source, collection: Collection, cache: Path, progress: Progress) -> None:
    folder, downloads, staged, old = (
        cache / f"{collection.name}{suffix}" for suffix in ("", ".download", ".part", ".old")
    )
    if folder.exists() and not (folder / MANIFEST).exists() and any(folder.iterdir()):
        raise StorageError(
            f"{folder} holds files that Blindsight has not put there. Move them away, or set BLINDSIGHT_CACHE."
        )
    archives = [file.bring(downloads, cache / "by-hand", progress) for file in source.files]
    for left_behind in (staged, old):
        shutil.rmtree(left_behind, ignore_errors=True)
    staged.mkdir()
    try:
        progress(f"unpacking {collection.name}", 0, None)
        with damaged_archives(f"{collection.name} from {source.name}"):
            source.unpack(archives, staged)
        files = _list_files(staged)
        if not files or (collection.contents is not None and _digest(files) != collection.contents):
            shutil.rmtree(downloads, ignore_errors=True)
            raise FetchError(f"what {source.name} holds is not {collection.name}; it was thrown away.")
        with atomic_writer(staged / MANIFEST) as stream:
            stream.write(json.dumps({"collection": collection.name, "files": files}, indent=1).encode())
        if folder.exists():
            folder.rename(old)
        staged.rename(folder)
        sync_folder(cache)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    for done_with in (downloads, old):
        shutil.rmtree(done_with, ignore_errors=True)


def _list_files(folder: Path) -> dict[str, _File]:
    files: dict[str, _File] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        status = path.stat()
        files[path.relative_to(folder).as_posix()] = {
            "size": status.st_size,
            "modified_ns": status.st_mtime_ns,
            "sha256": sha256_of(path),
        }
    return files


def _digest(files: Mapping[str, _File]) -> str:
    lines = (f"{files[path]['sha256']}  {path}\n" for path in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def is_genuine(path: Path, size: int | None, sha256: str | None) -> bool:
    """Return True if `path` is a file of this size and checksum; None accepts any."""
    if not path.is_file() or (size is not None and path.stat().st_size != size):
        return False
    return sha256 is None or sha256_of(path) == sha256


def download(file: RemoteFile, folder: Path, progress: Progress) -> Path:
    """Download `file` into `folder` and return its path; FetchError if it cannot be had or is not the right one."""
    target, part = folder / file.filename, folder / f"{file.filename}.part"
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        fresh = not part.exists()
        for _ in range(ATTEMPTS):
            if _receive(file, part, progress):
                break
        else:
            raise FetchError(
                f"the connection to {_host(file.url)} broke off {ATTEMPTS} times; "
                f"fetch again to go on after the {_size(part)} bytes that have arrived."
            )
        if is_genuine(part, file.size, file.sha256):
            break
        part.unlink()
        if fresh:
            raise FetchError(f"{file.url} does not match its checksum; what arrived was thrown away.")
    part.replace(target)
    return target


def _receive(file: RemoteFile, part: Path, progress: Progress) -> bool:
    """Append what is missing of the file to `part`; return whether it is complete."""
    start, limit = _size(part), file.size or _LARGEST_DOWNLOAD
    response = _request(file.url, start)
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


def _request(url: str, start: int) -> HTTPResponse | None:
    """Request the file from byte `start` on; return None if the server has nothing after it."""
    headers = {"User-Agent": "blindsight"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=_SERVER_SECONDS)  # noqa: S310
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
    """Read the next bytes; return b"" at the end, None if the connection broke."""
    try:
        return response.read(_CHUNK)
    except (HTTPException, OSError):
        return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _host(url: str) -> str:
    return urlsplit(url).netloc


@contextmanager
def damaged_archives(what: str) -> Iterator[None]:
    """Turn any error that decoders raise on broken data into a FetchError about `what`."""
    try:
        yield
    except FetchError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # from the operating system: a full disk says nothing about the archive
        raise FetchError(f"{what} is damaged: it cannot be unpacked ({error}).") from error


def tar_members(archive: Path | IO[bytes], pattern: str) -> Members:
    """Yield the files of a tar archive (plain or compressed) whose name matches; the group `path` names them."""
    wanted, total = re.compile(pattern), 0
    where: dict[str, Any] = {"name": archive} if isinstance(archive, Path) else {"fileobj": archive}
    with tarfile.open(**where, mode="r|*") as tar:
        for member in tar:
            path = _safe_path(member.name, wanted)
            if path is None:
                continue
            content = tar.extractfile(member) if member.isfile() else None
            if content is None:
                raise FetchError(f"the archive holds a link or device where the file {path} should be.")
            total = _within_limit(total + member.size)
            yield path, content


def zip_members(archive: Path, pattern: str) -> Members:
    """Yield the files of a zip archive (or wheel) whose name matches; the group `path` names them."""
    wanted, total = re.compile(pattern), 0
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            path = _safe_path(member.filename, wanted)
            if path is None:
                continue
            if stat.S_ISLNK(member.external_attr >> 16) or member.is_dir():
                raise FetchError(f"the archive holds a link or folder where the file {path} should be.")
            total = _within_limit(total + member.file_size)
            with packed.open(member) as content:
                yield path, content


def copy(content: IO[bytes] | gzip.GzipFile, target: Path) -> None:
    """Write a stream to a new file, folders made as needed, and refuse to write without end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with target.open("xb") as stream:
        while chunk := content.read(_CHUNK):
            written = _within_limit(written + len(chunk))
            stream.write(chunk)


def _safe_path(name: str, wanted: re.Pattern[str]) -> str | None:
    """Return the path captured from a member's name, None if it is not wanted; refuse names that lead elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise FetchError(f"the archive holds the unsafe path {name!r}; nothing of it is used.")
    match = wanted.fullmatch(name)
    return match["path"] if match else None


def _within_limit(size: int) -> int:
    if size > LARGEST:
        raise FetchError(f"the archive unpacks to more than {LARGEST} bytes, which no collection does.")
    return size
