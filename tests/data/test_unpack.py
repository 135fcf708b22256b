"""Archives that mean harm are refused; of all others exactly the wanted files come out."""

import errno
import io
import stat
import tarfile
import zipfile
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blindsight.data import fetching as unpack
from blindsight.data.fetching import copy, damaged_archives, tar_members, zip_members
from blindsight.errors import FetchError

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


@pytest.mark.parametrize("name", ["../escaped", "/etc/escaped", "a/../../escaped", "..", "a\\..\\..\\escaped"])
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
    with pytest.raises(FetchError, match="a link or device where the file picture should be"):
        list(tar_members(tar_with(member), ANY))
    assert list(tar_members(tar_with(member), "(?P<path>other)")) == []


def test_links_in_a_zip_archive_are_refused(tmp_path):
    member = zipfile.ZipInfo("picture")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(FetchError, match="a link or folder where the file picture should be"):
        list(zip_members(zip_with(tmp_path, member), ANY))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "LARGEST", 10)
    assert len(list(tar_members(tar_with("1", "2"), ANY))) == 2
    with pytest.raises(FetchError, match="more than 10 bytes"):
        list(tar_members(tar_with("1", "2", "3"), ANY))
    with pytest.raises(FetchError, match="more than 10 bytes"):
        list(zip_members(zip_with(tmp_path, "1", "2", "3"), ANY))
    with pytest.raises(FetchError, match="more than 10 bytes"):
        copy(io.BytesIO(b"x" * 11), tmp_path / "copied")


def test_a_full_disk_is_not_blamed_on_the_archive():
    with pytest.raises(OSError, match="No space left"), damaged_archives("toy"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_is_never_written_twice(tmp_path):
    copy(io.BytesIO(b"first"), tmp_path / "file")
    with pytest.raises(FileExistsError):
        copy(io.BytesIO(b"second"), tmp_path / "file")


@settings(deadline=None, max_examples=50)
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
