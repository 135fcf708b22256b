"""Fetching against a real HTTP server on this machine; archives that are damaged or hostile."""

import errno
import fcntl
import hashlib
import io
import os
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blindsight.errors import FetchError, StorageError, UnknownNameError
from blindsight.files import exclusive_lock
from blindsight.papers import fetching
from blindsight.papers.collections import fetch
from blindsight.papers.fetching import (
    ATTEMPTS,
    MANIFEST,
    Collection,
    RemoteFile,
    Source,
    copy,
    damaged_archives,
    fetch_collection,
    is_intact,
    tar_members,
    zip_members,
)
from blindsight.progress import silent

PICTURES = {"a/one.bin": bytes(range(256)) * 4000, "b/two.bin": b"second picture"}


def tar_of(members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"toy/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


ARCHIVE = tar_of(PICTURES)
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()


def contents_of(members):
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(members.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass
class Server:
    """Serves `content` at every address, and can be told to misbehave."""

    content: bytes = ARCHIVE
    ranges: bool = True
    status: int | None = None
    cut: list[int] = field(default_factory=list)  # after how many bytes the next connections break
    when_asked: Callable[[], None] = lambda: None
    pause: Callable[[], None] | None = None  # called half-way, before the rest is sent
    asked: list[str | None] = field(default_factory=list)  # the Range header of each request
    url: str = ""

    def answer(self, request):
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        self.when_asked()
        if self.status is not None:
            request.send_error(self.status)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.ranges else 0
        if start >= len(self.content):
            request.send_error(416)
            return
        body = self.content[start:]
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        sent = body[: self.cut.pop(0)] if self.cut else body
        half = len(sent) // 2
        request.wfile.write(sent[:half])
        if self.pause is not None:
            request.wfile.flush()
            self.pause()
        request.wfile.write(sent[half:])


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server():
    behaviour = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            behaviour.answer(self)

        def log_message(self, *arguments):
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *arguments):  # a client that was killed is no error of the server
            pass

    with Quiet(("127.0.0.1", 0), Handler) as running:
        behaviour.url = f"http://127.0.0.1:{running.server_address[1]}/toy.tar"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield behaviour
        running.shutdown()
        thread.join()


def unpack_toy(archives, into):
    for path, content in tar_members(archives[0], r"toy/(?P<path>\w+/\w+\.bin)"):
        copy(content, into / path)


def toy(*origins, contents=None):
    sources = tuple(Source(f"source{number}", (origin,), unpack_toy) for number, origin in enumerate(origins))
    return Collection("toy", "Toy pictures", 2, len(ARCHIVE), "public domain", "http://toy", sources, contents)


def web(url):
    return RemoteFile(url, "toy.tar", len(ARCHIVE), SHA256)


def get(collection, cache):
    return fetch_collection(collection, cache=cache, progress=silent)


def pictures_in(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def unreachable():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/toy.tar"


def test_a_collection_is_fetched_once_and_nothing_else_is_left(server, tmp_path):
    seen = []

    def note(what, done, total):
        if what == "downloading toy.tar":
            seen.append((done, total))

    collection = toy(web(server.url), contents=contents_of(PICTURES))
    folder = fetch_collection(collection, cache=tmp_path, progress=note)
    assert folder == tmp_path / "toy"
    assert pictures_in(folder) == PICTURES
    assert seen[-1] == (len(ARCHIVE), len(ARCHIVE))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 2
    assert get(collection, tmp_path) == folder
    assert server.asked == [None]
    assert {path.name for path in tmp_path.iterdir()} == {"toy", "toy.lock"}


@pytest.mark.parametrize(
    ("ranges", "cut", "asked"),
    [(True, [500_000, 200_000], ["bytes=500000-", "bytes=700000-"]), (False, [500_000], ["bytes=500000-"])],
    ids=["continued", "from the beginning"],
)
def test_a_cut_connection_is_taken_up_again(server, tmp_path, ranges, cut, asked):
    server.cut, server.ranges = cut, ranges
    assert pictures_in(get(toy(web(server.url)), tmp_path)) == PICTURES
    assert server.asked == [None, *asked]


def test_a_connection_that_keeps_breaking_is_given_up_and_continued_next_time(server, tmp_path):
    server.cut = [1000] * ATTEMPTS
    with pytest.raises(FetchError, match="8000 bytes"):
        get(toy(web(server.url)), tmp_path)
    assert pictures_in(get(toy(web(server.url)), tmp_path)) == PICTURES
    assert server.asked[-1] == "bytes=8000-"


def test_a_file_with_the_wrong_checksum_is_thrown_away(server, tmp_path):
    server.content = ARCHIVE[:-1] + b"!"
    with pytest.raises(FetchError, match="checksum"):
        get(toy(web(server.url)), tmp_path)
    assert server.asked == [None]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "toy.lock"]


def test_a_file_that_never_ends_is_cut_off(server, tmp_path):
    server.content = ARCHIVE * 10
    seen = []
    note = lambda _, done, total: seen.append(done)  # noqa: E731
    with pytest.raises(FetchError, match="larger"):
        fetch_collection(toy(web(server.url)), cache=tmp_path, progress=note)
    assert len(ARCHIVE) < seen[-1] < 2 * len(ARCHIVE)
    assert not list(tmp_path.glob("toy.download/*"))


def test_unpacked_files_that_are_not_the_collection_are_thrown_away(server, tmp_path):
    unsigned = RemoteFile(server.url, "toy.tar")
    with pytest.raises(FetchError, match="not toy"):
        get(toy(unsigned, contents=contents_of(PICTURES | {"b/two.bin": b"other"})), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"toy.lock"}


@pytest.mark.parametrize("content", [b"no archive at all", b"", ARCHIVE[:5000]])
def test_a_damaged_archive_is_one_sentence(server, tmp_path, content):
    server.content = content or b"\n"
    with pytest.raises(FetchError, match=r"source0: (toy from source0 is damaged|what source0 holds is not toy)"):
        get(toy(RemoteFile(server.url, "toy.tar"), contents=contents_of(PICTURES)), tmp_path)


def test_an_error_of_the_server_names_the_address(server, tmp_path):
    server.status = 404
    with pytest.raises(FetchError, match=f"404 .*{server.url}"):
        get(toy(web(server.url)), tmp_path)


def test_offline_says_what_was_not_reached_and_what_to_do(tmp_path):
    url = unreachable()
    with pytest.raises(FetchError) as caught:
        get(toy(web(url)), tmp_path)
    for fact in ("source0: 127.0.0.1:", "could not be reached", f"put toy.tar from {url} into {tmp_path / 'by-hand'}"):
        assert fact in str(caught.value)


def test_a_file_brought_by_hand_is_used_if_it_is_the_right_one_and_kept(tmp_path):
    given = tmp_path / "by-hand" / "toy.tar"
    given.parent.mkdir()
    given.write_bytes(ARCHIVE[:-1] + b"!")
    with pytest.raises(FetchError, match="could not be reached"):
        get(toy(web(unreachable())), tmp_path)
    given.write_bytes(ARCHIVE)
    assert pictures_in(get(toy(web(unreachable())), tmp_path)) == PICTURES
    assert given.read_bytes() == ARCHIVE


def test_sources_are_tried_in_order(server, tmp_path):
    collection = toy(web(unreachable()), web(server.url))
    assert pictures_in(get(collection, tmp_path)) == PICTURES
    assert server.asked == [None]


def test_an_unknown_collection_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="'cifar10'"):
        fetch("cifar-10")


@pytest.mark.parametrize("damage", ["truncated", "altered", "missing", "manifest", "manifest is a list"])
def test_damage_is_noticed_and_fetched_again(server, tmp_path, damage):
    collection = toy(web(server.url))
    folder = get(collection, tmp_path)
    picture = folder / "b" / "two.bin"
    if damage == "truncated":
        before = picture.stat()
        picture.write_bytes(b"")
        os.utime(picture, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif damage == "altered":
        picture.write_bytes(b"SECOND PICTURE")
        os.utime(picture, ns=(1, 1))
    elif damage == "missing":
        picture.unlink()
    else:
        (folder / MANIFEST).write_text("[]" if "list" in damage else "{")
    assert not is_intact(folder)
    assert pictures_in(get(collection, tmp_path)) == PICTURES
    assert len(server.asked) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"toy", "toy.lock"}


def test_files_that_were_copied_are_hashed_again_and_believed(server, tmp_path):
    folder = get(toy(web(server.url)), tmp_path / "here")
    shutil.copytree(folder, tmp_path / "there" / "toy", copy_function=shutil.copyfile)
    os.utime(tmp_path / "there" / "toy" / "b" / "two.bin", ns=(1, 1))
    get(toy(web(server.url)), tmp_path / "there")
    assert len(server.asked) == 1


def test_a_manifest_of_other_contents_is_not_believed(server, tmp_path):
    folder = get(toy(web(server.url)), tmp_path)
    assert is_intact(folder, contents_of(PICTURES))
    assert not is_intact(folder, contents_of(PICTURES | {"b/two.bin": b"other"}))


def test_a_folder_of_the_user_is_never_replaced(server, tmp_path):
    mine = tmp_path / "toy" / "diary.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(StorageError, match="has not put there"):
        get(toy(web(server.url)), tmp_path)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    ("left", "content", "asked"),
    [
        ("toy.download/toy.tar.part", b"x" * 1000, ["bytes=1000-", None]),
        ("toy.download/toy.tar.part", ARCHIVE + b"x", [f"bytes={len(ARCHIVE) + 1}-", None]),
        ("toy.part/a/one.bin", b"half", [None]),
    ],
    ids=["wrong bytes", "too long a beginning", "half unpacked"],
)
def test_what_an_earlier_attempt_left_is_not_trusted(server, tmp_path, left, content, asked):
    (tmp_path / left).parent.mkdir(parents=True)
    (tmp_path / left).write_bytes(content)
    assert pictures_in(get(toy(web(server.url)), tmp_path)) == PICTURES
    assert server.asked == asked


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_fetching import get, pictures_in, PICTURES, toy, web
assert pictures_in(get(toy(web(sys.argv[2])), Path(sys.argv[3]))) == PICTURES
"""


def in_another_process(url, cache):
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", CHILD, str(here), url, str(cache)], env=environment)


def test_of_two_processes_one_downloads_and_both_get_the_result(server, tmp_path):
    asked = threading.Event()

    def try_lock():
        with (tmp_path / "toy.lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        asked.set()

    server.when_asked = try_lock
    child = in_another_process(server.url, tmp_path)
    assert asked.wait(timeout=60)
    assert pictures_in(get(toy(web(server.url)), tmp_path)) == PICTURES
    assert child.wait(timeout=60) == 0
    assert server.asked == [None]


def test_what_another_process_fetched_while_this_one_waited_is_used(server, tmp_path, monkeypatch):
    @contextmanager
    def lock_after_another(path):
        monkeypatch.setattr(fetching, "exclusive_lock", exclusive_lock)
        get(toy(web(server.url)), tmp_path)
        with exclusive_lock(path):
            yield

    monkeypatch.setattr(fetching, "exclusive_lock", lock_after_another)
    assert pictures_in(get(toy(web(server.url)), tmp_path)) == PICTURES
    assert server.asked == [None]


def test_a_killed_process_leaves_nothing_that_is_trusted(server, tmp_path):
    half_sent, go_on = threading.Event(), threading.Event()

    def wait():
        half_sent.set()
        go_on.wait(timeout=60)

    server.pause = wait
    child = in_another_process(server.url, tmp_path)
    assert half_sent.wait(timeout=60)
    child.kill()
    child.wait(timeout=60)
    go_on.set()
    assert not (tmp_path / "toy").exists()
    assert not is_intact(tmp_path / "toy")
    assert pictures_in(get(toy(web(server.url)), tmp_path)) == PICTURES


def test_a_cache_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="BLINDSIGHT_CACHE"):
        get(toy(web(unreachable())), tmp_path / "file" / "cache")


def test_a_read_only_cache_is_one_sentence(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(StorageError, match=r"read-only.*BLINDSIGHT_CACHE"):
        get(toy(web(unreachable())), tmp_path)


def test_a_complete_collection_is_used_from_a_read_only_cache(server, tmp_path, monkeypatch):
    folder = get(toy(web(server.url)), tmp_path)
    monkeypatch.setattr(Path, "touch", None)
    monkeypatch.setattr(Path, "mkdir", None)
    assert get(toy(web(server.url)), tmp_path) == folder


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_while_downloading_is_one_sentence(server, tmp_path):
    full = tmp_path / "toy.download" / "toy.tar.part"
    full.parent.mkdir()
    full.symlink_to("/dev/full")
    with pytest.raises(StorageError, match="full"):
        get(toy(web(server.url)), tmp_path)
    assert not (tmp_path / "toy").exists()


def test_a_full_disk_while_unpacking_leaves_nothing_half_done(server, tmp_path):
    def fill_disk(archives, into):
        unpack_toy(archives, into)
        raise OSError(errno.ENOSPC, "No space left on device")

    collection = toy(web(server.url))
    full = replace(collection, sources=(replace(collection.sources[0], unpack=fill_disk),))
    with pytest.raises(StorageError, match="full"):
        get(full, tmp_path)
    assert not (tmp_path / "toy").exists()
    assert not (tmp_path / "toy.part").exists()
    get(collection, tmp_path)
    assert server.asked == [None]  # the archive was whole and did not have to come again


ANY = r"(?P<path>.+)"


def tar_with(*entries):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for entry in entries:
            member = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            member.size = 4 if member.isfile() else 0
            tar.addfile(member, io.BytesIO(b"evil") if member.isfile() else None)
    packed.seek(0)
    return packed


def zip_with(folder, *entries):
    path = folder / "some.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for entry in entries:
            packed.writestr(entry, b"evil")
    return path


@pytest.mark.parametrize("name", ["../escaped", "/etc/escaped", "a/../../escaped", "a\\..\\..\\escaped"])
def test_paths_that_lead_out_are_refused_even_when_not_wanted(name, tmp_path):
    for pattern in (ANY, "(?P<path>wanted)"):
        with pytest.raises(FetchError, match="unsafe path"):
            list(tar_members(tar_with("a/fine", name), pattern))
        with pytest.raises(FetchError, match="unsafe path"):
            list(zip_members(zip_with(tmp_path, "a/fine", name), pattern))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused_in_place_of_a_file(kind):
    member = tarfile.TarInfo("picture")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(FetchError, match="link or device"):
        list(tar_members(tar_with(member), ANY))
    assert list(tar_members(tar_with(member), "(?P<path>other)")) == []


def test_links_in_a_zip_archive_are_refused(tmp_path):
    member = zipfile.ZipInfo("picture")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(FetchError, match="link or folder"):
        list(zip_members(zip_with(tmp_path, member), ANY))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "LARGEST", 10)
    assert len(list(tar_members(tar_with("1", "2"), ANY))) == 2
    for unpack in (
        lambda: list(tar_members(tar_with("1", "2", "3"), ANY)),
        lambda: list(zip_members(zip_with(tmp_path, "1", "2", "3"), ANY)),
        lambda: copy(io.BytesIO(b"x" * 11), tmp_path / "copied"),
    ):
        with pytest.raises(FetchError, match="10 bytes"):
            unpack()


def test_a_full_disk_is_not_blamed_on_the_archive():
    with pytest.raises(OSError, match="No space left"), damaged_archives("toy"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_is_never_written_twice(tmp_path):
    copy(io.BytesIO(b"first"), tmp_path / "file")
    with pytest.raises(FileExistsError):
        copy(io.BytesIO(b"second"), tmp_path / "file")


@settings(deadline=None, max_examples=25)
@example(content=b"\x1f\x8b\x08", cut=3)
@given(content=st.binary(max_size=300), cut=st.integers(0, 200))
def test_no_broken_archive_raises_anything_but_a_sentence(content, cut, tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    path = folder / "broken"
    for broken in (content, tar_with("a").getvalue()[:cut], zip_with(folder, "a").read_bytes()[:cut]):
        path.write_bytes(broken)
        for members in (tar_members, zip_members):
            with suppress(FetchError), damaged_archives("toy"):
                for _, stream in members(path, ANY):
                    stream.read()
