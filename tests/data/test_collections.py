"""The readers of the public collections, on small collections in the published formats."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from blindsight.data.catalogue import caltech101, cifar10, digits, fashion_mnist, lfw, orl
from blindsight.data.sources import CIFAR10_BATCHES, FETCHABLE, ORL_HEADER
from blindsight.errors import CorruptFileError, InputError, StorageError, UnknownNameError
from blindsight.rng import science


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


def test_orl_people_are_labels_and_persons(tmp_path):
    for person in range(1, 41):
        (tmp_path / f"s{person}").mkdir()
        for picture in range(1, 11):
            face = np.full((112, 92), person, dtype=np.uint8)
            face[picture] = 255
            (tmp_path / f"s{person}" / f"{picture}.pgm").write_bytes(ORL_HEADER + face.tobytes())
    faces = orl(tmp_path)
    assert faces.images.shape == (400, 112, 92, 3)
    np.testing.assert_array_equal(faces.persons, faces.labels)
    row = faces.names.index("s12/10.pgm")
    assert faces.label_names[faces.persons[row]] == "s12"
    assert faces.images[row, 0, 0].tolist() == [12, 12, 12]
    assert faces.images[row, 10].min() == 255
    (tmp_path / "s7" / "3.pgm").write_bytes(ORL_HEADER.replace(b"\n", b"\r\n") + bytes(112 * 92))
    with pytest.raises(CorruptFileError, match=r"3\.pgm is not a grey PGM"):
        orl(tmp_path)


def write_jpegs(folder, names):
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 20), (40 * number, 0, 0)).save(path)


def test_lfw_people_are_labels_and_persons(tmp_path):
    names = [
        "First_Person/First_Person_0001.jpg",
        "First_Person/First_Person_0002.jpg",
        "Second_Person/Second_Person_0001.jpg",
    ]
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


def test_digits_keep_all_seventeen_grey_levels():
    ours, theirs = digits(), load_digits()
    np.testing.assert_array_equal(np.round(ours.images[..., 1] / 255 * 16), theirs.images)
    np.testing.assert_array_equal(ours.labels, theirs.target)


def test_only_collections_with_a_split_of_their_makers_can_be_split(tmp_path):
    for reader in (orl, lfw, caltech101):
        with pytest.raises(InputError, match="has no split of its makers; got split='train'"):
            reader(tmp_path, split="train")
    with pytest.raises(UnknownNameError, match="unknown split 'validation'"):
        cifar10(tmp_path, split="validation")


def test_files_that_are_missing_or_damaged_are_one_sentence(tmp_path):
    with pytest.raises(StorageError, match=r"it does not exist\. Fetch the collection again"):
        cifar10(tmp_path)
    write_cifar10(tmp_path)
    write_fashion_mnist(tmp_path)
    batch, labels, images = (
        tmp_path / name for name in ("data_batch_2.bin", "t10k-labels-idx1-ubyte", "train-images-idx3-ubyte")
    )
    whole = batch.read_bytes()
    batch.write_bytes(whole[:-1])
    with pytest.raises(CorruptFileError, match=r"data_batch_2\.bin is not a CIFAR-10 batch"):
        cifar10(tmp_path)
    batch.write_bytes(bytes([10]) + whole[1:])
    with pytest.raises(CorruptFileError, match="labels of cifar10 must be below 10"):
        cifar10(tmp_path)
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match="is not complete"):
        fashion_mnist(tmp_path)
    labels.write_bytes(b"\x1f\x8b" + labels.read_bytes())
    with pytest.raises(CorruptFileError, match="is not an IDX file"):
        fashion_mnist(tmp_path, split="test")
