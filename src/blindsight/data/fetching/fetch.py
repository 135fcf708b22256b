"""Collections on demand: whatever `fetch` returns is complete and verified, however often it was cut short before.

The cache holds, for a collection called NAME::

    NAME/            the collection's files and a manifest of their sizes and checksums; it appears in one rename
    NAME.download/   what has been downloaded so far, to be continued; goes when the collection is complete
    NAME.part/       what is being unpacked, NAME.old/ what is being replaced; neither is ever looked at
    NAME.lock        held by the one process that fetches, while others wait and then use its result
    by-hand/         archives that the user has put there, used instead of downloading them

A file whose size and time of change are those of the manifest is believed, any other is hashed again; if it turns out
damaged, the collection is fetched anew.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from blindsight.data.fetching.download import RemoteFile
from blindsight.data.fetching.packages import Package
from blindsight.data.fetching.sources import FETCHABLE, Collection, Source
from blindsight.data.fetching.unpack import damaged_archives
from blindsight.errors import FetchError, StorageError, UnknownNameError
from blindsight.files import atomic_writer, cache_folder, exclusive_lock, sha256_of, storage_errors, sync_folder
from blindsight.progress import Progress, silent

MANIFEST = "blindsight-manifest.json"

_REMEDY = "Make room, or set BLINDSIGHT_CACHE to a folder that can be written."


class _File(TypedDict):
    size: int
    modified_ns: int
    sha256: str


def fetch(name: str, *, cache: Path | None = None, progress: Progress = silent, via: str | None = None) -> Path:
    """Return the folder with the verified files of a collection, fetched now if they are not in the cache yet.

    The collection's sources are tried in order, or only the one called `via`. `progress` counts bytes.
    """
    if name not in FETCHABLE:
        raise UnknownNameError("collection", name, FETCHABLE)
    return fetch_collection(FETCHABLE[name], cache=cache or cache_folder(), progress=progress, via=via)


def fetch_collection(collection: Collection, *, cache: Path, progress: Progress, via: str | None) -> Path:
    """Do what `fetch` does for any collection, also one that is not in the table."""
    sources = {source.name: source for source in collection.sources}
    if via is not None and via not in sources:
        raise UnknownNameError(f"source of {collection.name}", via, sources)
    folder, lock = cache / collection.name, cache / f"{collection.name}.lock"
    if is_intact(folder, collection.contents):
        return folder
    with storage_errors("write to", cache, _REMEDY):
        cache.mkdir(parents=True, exist_ok=True)
        lock.touch()
    with exclusive_lock(lock):
        if not is_intact(folder, collection.contents):  # another process may have fetched it while this one waited
            _try_sources(collection, [sources[via]] if via else collection.sources, cache, progress)
    return folder


def is_intact(folder: Path, contents: str | None = None) -> bool:
    """Tell whether `folder` holds exactly what its manifest says, and the manifest what `contents` vouches for."""
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


def _try_sources(collection: Collection, sources: Sequence[Source], cache: Path, progress: Progress) -> None:
    failures = []
    for source in sources:
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
    """Name the files that a person could bring instead, and where to find them."""
    for source in collection.sources:
        names = [file.filename for file in source.files if isinstance(file, RemoteFile | Package)]
        urls = [file.url for file in source.files if isinstance(file, RemoteFile)]
        if names:
            where = urls[0] if len(urls) == 1 else "".join(urls[:1]).rpartition("/")[0]
            return f"{', '.join(names)} from {where}" if where else ", ".join(names)
    return "its files"


def _fetch_from(source: Source, collection: Collection, cache: Path, progress: Progress) -> None:
    folder, downloads, staged, old = (
        cache / f"{collection.name}{suffix}" for suffix in ("", ".download", ".part", ".old")
    )
    _refuse_foreign(folder)
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


def _refuse_foreign(folder: Path) -> None:
    """Never replace a folder that was not made here."""
    if folder.exists() and not (folder / MANIFEST).exists() and any(folder.iterdir()):
        raise StorageError(
            f"{folder} holds files that Blindsight has not put there. Move them away, or set BLINDSIGHT_CACHE."
        )


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
    """Return the SHA-256 of the list of files as `sha256sum` writes it, sorted by path."""
    lines = (f"{files[path]['sha256']}  {path}\n" for path in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
