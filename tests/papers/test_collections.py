"""The papers' collections: read strictly, unpacked from their publishers' archives, known to `load` when imported."""

import gzip
import io
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from blindsight.data import catalogue, load
from blindsight.errors import CorruptFileError, DataError, FetchError, InputError, StorageError, UnknownNameError
from blindsight.papers.collections import (
    CIFAR10_BATCHES,
    FETCHABLE,
    ORL_HEADER,
    caltech101,
    caltech101_from_zip,
    cifar10,
    cifar10_from_binary,
    fashion_mnist,
    fetch,
    idx_from_gzip,
    lfw,
    lfw_from_tar,
    orl,
)
from blindsight.papers.fetching import Collection, Source, fetch_collection
from blindsight.progress import silent
from blindsight.rng import science


def test_load_of_a_moved_name_says_what_to_import_and_to_run():
    names = sorted(FETCHABLE)
    code = f"""
from blindsight import load
from blindsight.errors import InputError
for name in {names}:
    try:
        load(name)
    except InputError as error:
        assert "import blindsight.papers.collections" in str(error), name
        assert f"blindsight papers fetch {{name}}" in str(error), name
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", FETCHABLE)
def test_what_was_not_fetched_names_the_command(name, tmp_path):
    (entry,) = (entry for entry in catalogue() if entry.name == name)
    assert entry.comes == "fetched"
    with pytest.raises(DataError, match=f"blindsight papers fetch {name}"):
        load(name, cache=tmp_path)


def test_a_collection_in_the_cache_is_loaded(tmp_path):
    write_faces(tmp_path / "orl")
    given = load("orl", path=tmp_path / "orl")

    def unpack(archives, into):
        write_faces(into)

    fake = Collection("orl", "", 400, 0, "", "", (Source("here", (), unpack),))
    fetch_collection(fake, cache=tmp_path / "cache", progress=silent)
    cached = load("orl", cache=tmp_path / "cache", count=7)
    assert len(cached) == 7
    assert set(cached.names) < set(given.names)


def test_what_no_publisher_offers_with_a_checksum_is_not_downloaded(tmp_path):
    with pytest.raises(FetchError, match=FETCHABLE["orl"].homepage):
        fetch("orl", cache=tmp_path)
    assert not list(tmp_path.iterdir())


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


def write_cifar10(folder):
    """Write six batches of two pictures and return all pictures, (12, 32, 32, 3)."""
    pictures = science(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    for batch, name in enumerate(CIFAR10_BATCHES):
        records = b""
        for number in (2 * batch, 2 * batch + 1):
            planes = [pictures[number, row, :, colour].tobytes() for colour in range(3) for row in range(32)]
            records += bytes([number % 10]) + b"".join(planes)
        (folder / f"{name}.bin").write_bytes(records)
    return pictures


def write_idx(path, values):
    lengths = b"".join(length.to_bytes(4, "big") for length in values.shape)
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + lengths + values.tobytes())


def write_fashion_mnist(folder):
    """Write three training and two test pictures and return them all, grey."""
    pictures = science(1).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    write_idx(folder / "train-images-idx3-ubyte", pictures[:3])
    write_idx(folder / "train-labels-idx1-ubyte", np.array([9, 0, 3], dtype=np.uint8))
    write_idx(folder / "t10k-images-idx3-ubyte", pictures[3:])
    write_idx(folder / "t10k-labels-idx1-ubyte", np.array([7, 1], dtype=np.uint8))
    return pictures


def test_cifar10_pixels_labels_and_parts(tmp_path):
    pictures = write_cifar10(tmp_path)
    everything = cifar10(tmp_path)
    np.testing.assert_array_equal(everything.images, pictures)
    assert list(everything.labels) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert everything.label_names[3] == "cat"
    assert everything.names[9:11] == ("train/00009", "test/00000")
    np.testing.assert_array_equal(cifar10(tmp_path, split="train").images, pictures[:10])
    np.testing.assert_array_equal(cifar10(tmp_path, split="test").images, pictures[10:])


def test_fashion_mnist_is_grey_in_three_channels(tmp_path):
    pictures = write_fashion_mnist(tmp_path)
    everything = fashion_mnist(tmp_path)
    assert everything.images.shape == (5, 28, 28, 3)
    for colour in range(3):
        np.testing.assert_array_equal(everything.images[..., colour], pictures)
    test = fashion_mnist(tmp_path, split="test")
    assert [test.label_names[label] for label in test.labels] == ["Sneaker", "Trouser"]
    assert test.names == ("test/00000", "test/00001")


def write_faces(folder):
    for person in range(1, 41):
        (folder / f"s{person}").mkdir(parents=True)
        for picture in range(1, 11):
            face = np.full((112, 92), person, dtype=np.uint8)
            face[picture] = 255
            (folder / f"s{person}" / f"{picture}.pgm").write_bytes(ORL_HEADER + face.tobytes())


def test_orl_people_are_labels_and_persons(tmp_path):
    write_faces(tmp_path)
    faces = orl(tmp_path)
    assert faces.images.shape == (400, 112, 92, 3)
    np.testing.assert_array_equal(faces.persons, faces.labels)
    row = faces.names.index("s12/10.pgm")
    assert faces.label_names[faces.persons[row]] == "s12"
    assert faces.images[row, 0, 0].tolist() == [12, 12, 12]
    assert faces.images[row, 10].min() == 255
    (tmp_path / "s7" / "3.pgm").write_bytes(ORL_HEADER.replace(b"\n", b"\r\n") + bytes(112 * 92))
    with pytest.raises(CorruptFileError, match="s7"):
        orl(tmp_path)


def write_jpegs(folder, names):
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 20), (40 * number, 0, 0)).save(path)


def test_lfw_people_are_labels_and_persons(tmp_path):
    names = ["First_Person/1.jpg", "First_Person/2.jpg", "Second_Person/1.jpg"]
    write_jpegs(tmp_path / "lfw_funneled", names)
    faces = lfw(tmp_path, size=16)
    assert faces.images.shape == (3, 16, 16, 3)
    assert faces.persons.tolist() == [0, 0, 1]
    assert faces.label_names == ("First_Person", "Second_Person")
    assert faces.names == tuple(names)
    assert (faces.name, faces.licence) == ("lfw", FETCHABLE["lfw"].licence)


def test_caltech101_passes_its_options_on(tmp_path):
    names = ["BACKGROUND_Google/image_0001.jpg", "ant/image_0001.jpg", "yin_yang/image_0001.jpg"]
    write_jpegs(tmp_path / "101_ObjectCategories", names)
    assert len(caltech101(tmp_path, size=8)) == 3
    assert caltech101(tmp_path, background=False, size=8).label_names == ("ant", "yin_yang")


def test_only_collections_with_a_split_of_their_makers_can_be_split(tmp_path):
    for reader in (orl, lfw, caltech101):
        with pytest.raises(InputError, match="'train'"):
            reader(tmp_path, split="train")
    with pytest.raises(UnknownNameError, match="'validation'"):
        cifar10(tmp_path, split="validation")


def test_files_that_are_missing_or_damaged_are_one_sentence(tmp_path):
    with pytest.raises(StorageError, match="Fetch"):
        cifar10(tmp_path)
    write_cifar10(tmp_path)
    write_fashion_mnist(tmp_path)
    batch, labels, images = (
        tmp_path / name for name in ("data_batch_2.bin", "t10k-labels-idx1-ubyte", "train-images-idx3-ubyte")
    )
    whole = batch.read_bytes()
    batch.write_bytes(whole[:-1])
    with pytest.raises(CorruptFileError, match="data_batch_2"):
        cifar10(tmp_path)
    batch.write_bytes(bytes([10]) + whole[1:])
    with pytest.raises(CorruptFileError, match="below 10"):
        cifar10(tmp_path)
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match="train-images"):
        fashion_mnist(tmp_path)
    labels.write_bytes(b"\x1f\x8b" + labels.read_bytes())
    with pytest.raises(CorruptFileError, match="t10k-labels"):
        fashion_mnist(tmp_path, split="test")


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


def test_cifar10_comes_out_of_its_archive(tmp_path):
    batches = {f"cifar-10-batches-bin/{batch}.bin": batch.encode() for batch in CIFAR10_BATCHES}
    archive = write_tar(tmp_path / "cifar.tar.gz", batches | {"cifar-10-batches-bin/readme.html": b""})
    cifar10_from_binary([archive], tmp_path / "out")
    assert files_in(tmp_path / "out") == {f"{batch}.bin": batch.encode() for batch in CIFAR10_BATCHES}


def test_fashion_mnist_is_uncompressed(tmp_path):
    archive = tmp_path / "train-images-idx3-ubyte.gz"
    archive.write_bytes(gzip.compress(b"pixels" * 1000))
    idx_from_gzip([archive], tmp_path / "out")
    assert files_in(tmp_path / "out") == {"train-images-idx3-ubyte": b"pixels" * 1000}
