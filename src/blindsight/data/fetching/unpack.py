"""Take the wanted files out of an archive, and nothing else.

Whatever an archive holds, only regular files whose name matches a pattern are handed out, under the name the pattern
captures; a link or device in their place, a path that leaves the archive, or more bytes than any collection has is
refused. Archives are read as streams: nothing is unpacked that is not wanted.
"""

import gzip
import re
import shutil
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from blindsight.errors import FetchError

LARGEST = 4 * 2**30
"""No collection unpacks to more bytes than this: a larger one is a mistake or a bomb."""

_CHUNK = 2**20

Members = Iterator[tuple[str, IO[bytes]]]
"""Pairs of (path relative to the collection's folder, content); each content must be read before the next pair."""


@contextmanager
def damaged_archives(what: str) -> Iterator[None]:
    """Turn what decoders raise on broken data, which is nearly anything, into one sentence about `what`."""
    try:
        yield
    except FetchError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # from the operating system: a full disk says nothing about the archive
        raise FetchError(f"{what} is damaged: it cannot be unpacked ({error}).") from error


def tar_members(archive: Path | IO[bytes], pattern: str) -> Members:
    """Hand out the files of a tar archive (plain or compressed) whose name matches; the group `path` names them."""
    wanted, total = re.compile(pattern), 0
    with _open_tar(archive) as tar:
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
    """Hand out the files of a zip archive (or wheel) whose name matches; the group `path` names them."""
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


def deb_members(archive: Path, pattern: str) -> Members:
    """Hand out the files of a Debian package whose name matches; needs dpkg-deb, but not root, and installs nothing."""
    program = shutil.which("dpkg-deb")
    if program is None:
        raise FetchError("dpkg-deb, which unpacks Debian packages, is not installed.")
    command = [program, "--fsys-tarfile", str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:  # noqa: S603
        assert process.stdout is not None
        yield from tar_members(process.stdout, pattern)


def copy(content: IO[bytes] | gzip.GzipFile, target: Path) -> None:
    """Write a stream to a new file, folders made as needed, and refuse to write without end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with target.open("xb") as stream:
        while chunk := content.read(_CHUNK):
            written = _within_limit(written + len(chunk))
            stream.write(chunk)


def _open_tar(archive: Path | IO[bytes]) -> tarfile.TarFile:
    if isinstance(archive, Path):
        return tarfile.open(archive, "r|*")
    return tarfile.open(fileobj=archive, mode="r|*")


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
