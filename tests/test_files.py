"""Files appear whole or not at all, and failures read like sentences."""

import errno
import os
import stat
from pathlib import Path
from subprocess import run
from sys import executable

import pytest

from blindsight.errors import StorageError
from blindsight.files import as_path, atomic_writer, cache_folder, exclusive_lock, sha256_of


@pytest.mark.parametrize("kind", [str, Path])
def test_path_begins_at_home(kind: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert as_path(kind("~/x")) == tmp_path / "x"
    assert as_path(kind("x~")) == Path("x~")


def test_file_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "result.bin"
    with atomic_writer(target) as stream:
        stream.write(b"whole")
        assert not target.exists()
    assert target.read_bytes() == b"whole"
    assert [entry.name for entry in target.parent.iterdir()] == ["result.bin"]


def test_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "result.bin"
    target.write_bytes(b"old")

    def fail_half_way() -> None:
        with atomic_writer(target) as stream:
            stream.write(b"half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.bin"]


def test_private_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with atomic_writer(tmp_path / "key", private=True) as stream:
        stream.write(b"secret")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_ordinary_file_follows_the_umask(tmp_path: Path) -> None:
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
def test_failing_disk_gets_a_sentence(tmp_path: Path, number: int, reason: str) -> None:
    with pytest.raises(StorageError, match=f"cannot write .*result: {reason}"), atomic_writer(tmp_path / "result"):
        raise OSError(number, os.strerror(number))


def test_folder_below_a_file_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a part of the path is a file"), atomic_writer(tmp_path / "file" / "x"):
        pass


def test_lock_keeps_other_processes_out(tmp_path: Path) -> None:
    attempt = f"import fcntl; fcntl.flock(open({str(tmp_path / 'lock')!r}), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with exclusive_lock(tmp_path / "lock"):
        assert b"BlockingIOError" in run([executable, "-c", attempt], capture_output=True, check=False).stderr
    assert run([executable, "-c", attempt], check=False).returncode == 0


def test_checksum_agrees_with_the_standard_example(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")  # FIPS 180-2, appendix B.1
    assert sha256_of(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_checksum_of_a_missing_file_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="it does not exist"):
        sha256_of(tmp_path / "none")


def test_cache_folder_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("BLINDSIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "blindsight"
