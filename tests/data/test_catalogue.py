"""Every collection opens by name, options reach its reader, fetched files are read strictly."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from blindsight.data import catalogue, load
from blindsight.data.catalogue import (
    CIFAR10_BATCHES,
    FETCHABLE,
    ORL_HEADER,
    caltech101,
    cifar10,
    digits,
    fashion_mnist,
    lfw,
    orl,
)
from blindsight.errors import CorruptFileError, DataError, InputError, StorageError, UnknownNameError
from blindsight.rng import science


def test_every_collection_of_the_catalogue_is_known_to_load(tmp_path):
    for entry in catalogue():
        if entry.comes == "bundled":
            assert len(load(entry.name, count=5)) == 5
        elif entry.comes == "fetched":
            with pytest.raises(DataError, match=f"blindsight data fetch {entry.name}"):
                load(entry.name, cache=tmp_path)
        else:
            with pytest.raises(InputError, match="path"):
                load(entry.name)


def test_unknown_collection_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="'digits'"):
        load("digit")


def test_count_takes_the_same_part_for_the_same_seed():
    first, again, other = (load("digits", count=50, random_state=seed).names for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_options_reach_the_reader():
    faces = load("faces", count=12, size=128, pictures_per_person=4, correlation=np.eye(12))
    assert faces.images.shape == (12, 128, 128, 3)
    assert len(np.unique(faces.persons)) == 3


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("digits", {"correlation": np.eye(12)}, "digits takes no option 'correlation'"),
        ("digits", {"size": 64}, "digits takes no option 'size'"),
        ("digits", {"count": 0}, "at least 1 picture"),
        ("digits", {"count": True}, "whole number"),
        ("digits", {"count": "5"}, "whole number"),
        ("digits", {"count": 5.0}, "whole number"),
        ("faces", {"path": "somewhere"}, "faces is not read from a path"),
        ("faces", {"count": 4, "pictures_per_person": "x"}, "pictures_per_person"),
        (5, {}, "name"),
        (["faces"], {}, "name"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(name, options, words):
    with pytest.raises(InputError, match=words):
        load(name, **options)


def test_folder_is_read_from_its_path(tmp_path):
    for kind, colour in (("cats", "red"), ("dogs", "blue")):
        (tmp_path / kind).mkdir()
        Image.new("RGB", (9, 9), colour).save(tmp_path / kind / "one.png")
    pets = load("folder", path=tmp_path, size=16)
    assert pets.images.shape == (2, 16, 16, 3)
    assert pets.label_names == ("cats", "dogs")


def test_count_may_come_from_an_array():
    assert len(load("digits", count=np.int64(5))) == 5


def test_paths_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "pets" / "cats").mkdir(parents=True)
    Image.new("RGB", (9, 9), "red").save(tmp_path / "pets" / "cats" / "one.png")
    (tmp_path / "pets" / "table.csv").write_text("path,label\ncats/one.png,cat\n")
    assert load("folder", path="~/pets").label_names == ("cats",)
    assert load("csv", path="~/pets/table.csv", root="~/pets").label_names == ("cat",)
    with pytest.raises(DataError, match=str(tmp_path / "kept")):
        load("orl", cache="~/kept")


@pytest.mark.parametrize(("name", "option"), [("faces", "n"), ("folder", "limit")])
def test_what_load_sets_itself_is_neither_taken_nor_offered_as_an_option(tmp_path, name, option):
    with pytest.raises(InputError, match=f"{name} takes no option '{option}'") as refusal:
        load(name, path=tmp_path if name == "folder" else None, count=5, **{option: 5})
    offered = str(refusal.value).split("it takes: ")[1].rstrip(".").split(", ")
    assert offered
    assert not {"size", "random_state", "progress", "cache", "limit", "n", "count", "path"} & set(offered)


def test_an_option_of_the_wrong_type_is_named(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("path,label\none.png,cat\n")
    with pytest.raises(InputError, match="label_column"):
        load("csv", path=table, label_column=5)


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


def test_digits_keep_all_seventeen_grey_levels():
    ours, theirs = digits(), load_digits()
    np.testing.assert_array_equal(np.round(ours.images[..., 1] / 255 * 16), theirs.images)
    np.testing.assert_array_equal(ours.labels, theirs.target)


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
