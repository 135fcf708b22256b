"""Files appear whole or not at all, and failures read like sentences."""

import errno
import fcntl
import io
import os
import stat
import struct
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import run
from sys import executable
from threading import Event

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from blindsight.errors import CorruptFileError, InputError, MessageError, StorageError
from blindsight.files import (
    as_path,
    atomic_writer,
    cache_folder,
    exclusive_lock,
    file_lock,
    folder_content,
    pack_arrays,
    read_arrays,
    sha256_of,
    unpack_arrays,
    write_arrays,
    write_together,
)


@pytest.mark.parametrize("kind", [str, Path])
def test_path_begins_at_home(kind, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert as_path(kind("~/x")) == tmp_path / "x"
    assert as_path(kind("x~")) == Path("x~")


def test_file_appears_whole(tmp_path):
    target = tmp_path / "deep" / "result.bin"
    with atomic_writer(target) as stream:
        stream.write(b"whole")
        assert not target.exists()
    assert target.read_bytes() == b"whole"
    assert [entry.name for entry in target.parent.iterdir()] == ["result.bin"]


def test_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    target = tmp_path / "result.bin"
    target.write_bytes(b"old")

    def fail_half_way():
        with atomic_writer(target) as stream:
            stream.write(b"half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.bin"]


def test_private_file_is_readable_by_its_owner_only(tmp_path):
    with atomic_writer(tmp_path / "key", private=True) as stream:
        stream.write(b"secret")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_ordinary_file_follows_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic_writer(tmp_path / "report") as stream:
            stream.write(b"public")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "the file system is read-only"), (errno.EIO, "Input/output")],
)
def test_failing_disk_gets_a_sentence(tmp_path, number, reason):
    with pytest.raises(StorageError, match=f"cannot write .*result: {reason}"), atomic_writer(tmp_path / "result"):
        raise OSError(number, os.strerror(number))


def test_folder_below_a_file_gets_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a part of the path is a file"), atomic_writer(tmp_path / "file" / "x"):
        pass


def test_lock_keeps_other_processes_out(tmp_path):
    attempt = f"import fcntl; fcntl.flock(open({str(tmp_path / 'lock')!r}), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with exclusive_lock(tmp_path / "lock"):
        assert b"BlockingIOError" in run([executable, "-c", attempt], capture_output=True, check=False).stderr
    assert run([executable, "-c", attempt], check=False).returncode == 0


@pytest.mark.parametrize("link", [os.symlink, os.link, None], ids=["symbolic link", "hard link", "the same name"])
def test_a_file_is_locked_under_all_its_names(tmp_path, link):
    path = other = tmp_path / "state"
    path.write_text("")
    if link is not None:
        other = tmp_path / "other"
        link(path, other)
    attempt = f"import fcntl; fcntl.flock(open({str(path)!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with file_lock(other) as real:
        assert real == (other if link is os.link else path)
        assert b"BlockingIOError" in run([executable, "-c", attempt], capture_output=True, check=False).stderr
    assert run([executable, "-c", attempt], check=False).returncode == 0


def test_who_waits_for_a_file_that_is_replaced_locks_the_new_one(tmp_path):
    path = tmp_path / "state"
    path.write_text("old")
    holder, waiter, seen = os.open(path, os.O_RDWR), Event(), []
    fcntl.flock(holder, fcntl.LOCK_EX)

    def wait():
        waiter.set()
        with file_lock(path), path.open("r+") as stream:
            with pytest.raises(BlockingIOError):
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            seen.append(stream.read())

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        waiter.wait(60)
        time.sleep(0.2)  # it waits for the old file by now, or will find the new one at once
        write_new = tmp_path / "new"
        write_new.write_text("new")
        write_new.replace(path)
        os.close(holder)
        waiting.result(60)
    assert seen == ["new"]


def test_a_file_that_is_replaced_has_one_hard_link(tmp_path):
    path, other, link = tmp_path / "state", tmp_path / "other", tmp_path / "link"
    path.write_text("")
    link.symlink_to(path)
    for name in (path, link):
        with file_lock(name, replaced=True) as real:
            assert real == path
    os.link(path, other)
    for name in (path, link, other):
        with pytest.raises(StorageError, match=f"{name}.* 2 hard links"), file_lock(name, replaced=True):
            pass
    other.unlink()
    with file_lock(path, replaced=True):
        pass


def test_checksum_agrees_with_the_standard_example(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")  # FIPS 180-2, appendix B.1
    assert sha256_of(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(StorageError, match="does not exist"):
        sha256_of(tmp_path / "none")


ARRAYS = {
    "numbers": np.arange(6.0).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    "names": np.array(["a", "Grüße"]),
    "none": np.zeros((0, 3), dtype=np.uint8),
    "one": np.array(True),
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("verify", [False, True])
def test_arrays_come_back_as_they_were(tmp_path, mapped, verify):
    path = tmp_path / "arrays"
    write_arrays(path, "test.1", {"word": "Grüße"}, ARRAYS)
    document, arrays = read_arrays(path, "test.1", mapped=mapped, verify=verify)
    assert document == {"word": "Grüße"}
    assert list(arrays) == list(ARRAYS)
    for name, array in arrays.items():
        assert (array.dtype, array.shape, array.flags.aligned) == (ARRAYS[name].dtype, ARRAYS[name].shape, True)
        assert array.tobytes() == ARRAYS[name].tobytes()
        assert array.flags.writeable is not mapped
    with np.load(path, allow_pickle=False) as archive:  # an ordinary .npz
        assert np.array_equal(archive["names"], ARRAYS["names"])
    write_arrays(tmp_path / "again", "test.1", {"word": "Grüße"}, ARRAYS)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_arrays_that_numpy_saved_are_read(tmp_path):
    """`numpy.savez` aligns nothing."""
    write_arrays(tmp_path / "new", "test.1", {}, ARRAYS)
    with np.load(tmp_path / "new") as members, (tmp_path / "old").open("wb") as stream:
        np.savez(stream, **members)
    assert np.array_equal(read_arrays(tmp_path / "old", "test.1")[1]["numbers"], ARRAYS["numbers"])


def test_altered_arrays_are_refused_or_the_same(tmp_path):
    path = tmp_path / "arrays"
    write_arrays(path, "test.1", {}, ARRAYS)
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            arrays = read_arrays(path, "test.1")[1]
        except CorruptFileError:
            refused += 1
        else:  # a byte that says nothing about the content, such as a date
            assert all(arrays[name].tobytes() == ARRAYS[name].tobytes() for name in ARRAYS)
    assert refused > len(whole) // 25
    for shorter in (b"", whole[:10], whole[:-1], whole[: len(whole) // 2]):
        path.write_bytes(shorter)
        for mapped in (False, True):
            with pytest.raises(CorruptFileError):
                read_arrays(path, "test.1", mapped=mapped)


def test_arrays_of_another_kind_packed_or_pickled_are_refused(tmp_path):
    path = tmp_path / "arrays"
    write_arrays(path, "test.1", {}, ARRAYS)
    with pytest.raises(CorruptFileError, match=r"test\.2"):
        read_arrays(path, "test.2")
    with np.load(path) as members:
        content = dict(members)
    np.savez_compressed(tmp_path / "packed.npz", **content)
    np.savez(tmp_path / "pickled.npz", **content | {"one": np.array([None])}, allow_pickle=True)
    for name in ("packed.npz", "pickled.npz"):
        with pytest.raises(CorruptFileError):
            read_arrays(tmp_path / name, "test.1")
    with pytest.raises(InputError, match="one is object"):
        write_arrays(path, "test.1", {}, {"one": np.array([None])})


@settings(max_examples=50)
@given(arrays(st.sampled_from(["<f4", "<f8", "<i8", "|i1", "|b1", "<U3"]), array_shapes(min_dims=0, min_side=0)))
def test_arrays_arrive_as_they_were_sent(array):
    for sent in (array, np.asfortranarray(array)):
        arrived = unpack_arrays(pack_arrays({"it": sent}))["it"]
        assert (arrived.dtype, arrived.shape, arrived.tobytes()) == (sent.dtype, sent.shape, sent.tobytes())
        assert arrived.flags.aligned
        assert arrived.flags.writeable
        assert sent.ndim < 2 or arrived.flags.f_contiguous == sent.flags.f_contiguous


@settings(max_examples=100)
@given(st.data())
def test_altered_messages_of_arrays_are_refused_or_read_but_never_anything_else(data):
    blob = bytearray(pack_arrays({"a": np.arange(6.0).reshape(2, 3), "b": np.array(["x", "yy"])}))
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    with pytest.raises(MessageError):
        unpack_arrays(data.draw(st.binary(max_size=200)))  # noise holds no arrays
    try:
        found = unpack_arrays(bytes(blob))
    except MessageError:
        return
    assert all(array.nbytes <= len(blob) for array in found.values())


def archive(member, *, compression=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as packed:
        packed.writestr("shared.npy", member)
    return stream.getvalue()


def header(shape):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": "<f8"})
    return stream.getvalue()


def test_what_would_unpack_to_more_than_was_sent_or_run_is_refused(tmp_path):
    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    pickled, calling = io.BytesIO(), header((2,)).replace(b"(2,)", b"[2] ")
    np.save(pickled, np.array([Payload()], dtype=object), allow_pickle=True)
    for member in (pickled.getvalue(), calling + bytes(16), b""):
        with pytest.raises(MessageError):
            unpack_arrays(archive(member))
    assert not (tmp_path / "executed").exists()
    with pytest.raises(MessageError, match="compressed"):
        unpack_arrays(archive(header((1000,)) + bytes(8000), compression=zipfile.ZIP_DEFLATED))
    for shape in ((10**14,), (2**40, 2**40), (3,), (0,)):  # none of them is allocated
        with pytest.raises(MessageError, match="announces"):
            unpack_arrays(archive(header(shape) + bytes(16)))
    once = pack_arrays({"a": np.zeros(100)})
    with zipfile.ZipFile(io.BytesIO(once)) as packed:
        entry = once[packed.start_dir : -22]
    many = once[: packed.start_dir] + entry * 3  # the same bytes, three times
    end = zipfile.structEndArchive, zipfile.stringEndArchive
    with pytest.raises(MessageError, match="more than"):
        unpack_arrays(many + struct.pack(end[0], end[1], 0, 0, 3, 3, 3 * len(entry), packed.start_dir, 0))


def test_cache_folder_can_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("BLINDSIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "blindsight"


def test_what_a_folder_holds_is_named(tmp_path):
    assert folder_content(tmp_path) == "nothing"
    (tmp_path / "notes.txt").touch()
    assert "other" in folder_content(tmp_path)
    (tmp_path / "gallery.npz").touch()
    assert "search" in folder_content(tmp_path)
    (tmp_path / "sift.npz").touch()
    assert "sift" in folder_content(tmp_path / "sift.npz")
    with pytest.raises(StorageError, match="nowhere"):
        folder_content(tmp_path / "nowhere")


def test_files_are_written_together_or_not_at_all(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("old")

    def write(folder):
        for name in ("a", "b"):
            with atomic_writer(folder / name) as stream:
                stream.write(b"new")

    def full(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_relative_to(tmp_path / "out") and next(written):
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    written = iter([False, False, True])  # the first file, its folder, and the second
    with monkeypatch.context() as changed:
        changed.setattr("blindsight.files.os.fsync", full)
        with pytest.raises(StorageError, match="disk is full") as caught:
            write_together(tmp_path / "out", write, last="a")
    assert {file.name: file.read_text() for file in (tmp_path / "out").iterdir()} == {"a": "old"}
    (rescued,) = tmp_path.glob("out-*")
    assert str(rescued) in str(caught.value)
    assert {file.name: file.read_text() for file in rescued.iterdir()} == {"a": "new", "b": "new"}
    write_together(tmp_path / "out", write, last="a")
    assert {file.name: file.read_text() for file in (tmp_path / "out").iterdir()} == {"a": "new", "b": "new"}


def test_what_fits_nowhere_leaves_nothing(tmp_path, monkeypatch):
    def write(folder):
        (folder / "a").touch()
        raise StorageError("the disk is full.")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(StorageError, match="the disk is full"):
        write_together(tmp_path / "out", write, last="a")
    assert [path.name for path in tmp_path.rglob("*")] == ["out"]
