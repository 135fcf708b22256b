"""Published collections in the layouts their authors use, made small: right rows, right meaning, damage named."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from blindsight.data.published import read_caltech101, read_celeba, read_cub, read_utkface
from blindsight.errors import CorruptFileError, DataError, InputError, StorageError


def picture(seed):
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(stream, "JPEG")
    return stream.getvalue()


def save(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture(seed))


def test_utkface_names_tell_age_gender_and_race(tmp_path):
    names = {
        "100_0_0_20170112213500903.jpg.chip.jpg": ("90+", ["over_59", "white"]),
        "26_1_1_20170116184024662.jpg": ("20-29", ["female", "under_30", "black"]),
        "30_1_2_20170116184024663.jpg": ("30-39", ["female", "asian"]),
        "part2/59_0_3_20170116184024664.jpg": ("50-59", ["indian"]),
        "part2/9_0_4_20170116184024665 .jpg.chip.jpg": ("0-9", ["under_30"]),
    }
    for seed, name in enumerate(names):
        save(tmp_path / name, seed)
    malformed = ("39_1_20170116174525125.jpg", "readme.txt", "5_2_0_20170116174525125.jpg")
    for name in malformed:
        save(tmp_path / name, 99)
    dataset = read_utkface(tmp_path)
    assert dataset.names == tuple(sorted(names))
    assert sorted(text.split(": ")[0] for text in dataset.skipped) == sorted(malformed)
    for row, name in enumerate(dataset.names):
        label, true = names[name]
        assert dataset.label_names[dataset.labels[row]] == label
        assert [column for column in dataset.attribute_names if dataset.attribute(column)[row]] == true
    assert "non-commercial" in dataset.licence


def test_utkface_copies_with_contradicting_labels_are_dropped(tmp_path):
    for name, seed in {"20_0_0_1": 1, "20_0_0_2": 1, "30_0_0_3": 2, "30_1_0_4": 2, "40_1_2_5": 3}.items():
        save(tmp_path / f"{name}.jpg", seed)
    dataset = read_utkface(tmp_path)
    assert dataset.names == ("20_0_0_1.jpg", "40_1_2_5.jpg")
    assert dataset.duplicates == 3


def packed_faces(path, **changed):
    files = [picture(seed) for seed in range(4)]
    files[2] = b"damaged"
    parts = {
        "jpeg": np.frombuffer(b"".join(files), dtype=np.uint8),
        "offset": np.cumsum([0, *map(len, files)]),
        "age": np.array([5, 35, 50, 70], dtype=np.int16),
        "female": np.array([0, 1, 1, 0], dtype=np.int8),
        "race": np.array([0, 1, 2, 4], dtype=np.int8),
    }
    np.savez(path, **(parts | changed))
    return path


def test_packed_utkface(tmp_path):
    dataset = read_utkface(packed_faces(tmp_path / "faces.npz"), size=8)
    assert dataset.names == ("000000.jpg", "000001.jpg", "000003.jpg")
    assert len(dataset.skipped) == 1
    assert dataset.attribute("female").tolist() == [0, 1, 0]
    assert dataset.attribute("over_59").tolist() == [0, 0, 1]
    assert np.array_equal(dataset.images[1], np.asarray(Image.open(io.BytesIO(picture(1)))))


@pytest.mark.parametrize(
    "changed",
    [
        {"offset": np.array([0, 5, 3, 9, 10])},
        {"offset": np.array([0])},
        {"offset": np.array([0, 1, 2, 3, 10**12])},
        {"age": np.array([1, 2, 3])},
        {"age": np.array([1, 2, 3, -4])},
        {"female": np.array([0, 1, 2, 0])},
        {"race": np.array([0.5, 1.0, 2.0, 3.0])},
        {"race": np.array([{}, {}, {}, {}], dtype=object)},
    ],
)
def test_damaged_packed_utkface(changed, tmp_path):
    with pytest.raises(CorruptFileError, match="faces"):
        read_utkface(packed_faces(tmp_path / "faces.npz", **changed))


def test_missing_and_truncated_packed_files(tmp_path):
    with pytest.raises(StorageError, match="not exist"):
        read_utkface(tmp_path / "faces.npz")
    np.savez(tmp_path / "other.npz", jpeg=np.zeros(3), offset=np.zeros(2))
    with pytest.raises(DataError, match="age, female, race"):
        read_utkface(tmp_path / "other.npz")
    whole = packed_faces(tmp_path / "faces.npz").read_bytes()
    for length in (0, len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(CorruptFileError, match="cut"):
            read_utkface(tmp_path / "cut.npz")


# CelebA

CELEBA = """3
5_o_Clock_Shadow Wearing_Hat
000001.jpg -1  1
000002.jpg  1 -1
000003.jpg -1 -1
"""


def celeba(root, pictures="img_align_celeba"):
    for seed in range(3):
        save(root / pictures / f"{seed + 1:06d}.jpg", seed)
    (root / "list_attr_celeba.txt").write_text(CELEBA)
    return root


@pytest.mark.parametrize(
    "pictures", ["img_align_celeba", "Img/img_align_celeba", "img_align_celeba/img_align_celeba", ""]
)
def test_celeba(pictures, tmp_path):
    root = celeba(tmp_path, pictures)
    (root / "identity_CelebA.txt").write_text("000003.jpg 7\n000001.jpg 2880\n000002.jpg 7\n")
    dataset = read_celeba(root)
    assert dataset.names == ("000001.jpg", "000002.jpg", "000003.jpg")
    assert dataset.attribute_names == ("5_o_clock_shadow", "wearing_hat")
    assert dataset.attributes.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert dataset.persons.tolist() == [2880, 7, 7]
    assert (dataset.skipped, dataset.notes) == ((), ())


def test_celeba_as_a_comma_separated_table_without_identities(tmp_path):
    root = celeba(tmp_path)
    (root / "list_attr_celeba.txt").unlink()
    (root / "Anno").mkdir()
    (root / "Anno" / "list_attr_celeba.csv").write_text("image_id,Male\n000002.jpg,1\n000009.jpg,-1\n")
    dataset = read_celeba(root)
    assert dataset.names == ("000002.jpg",)
    assert dataset.skipped == ("000009.jpg: no such file or directory",)
    assert dataset.persons is None
    assert "identity_CelebA.txt" in dataset.notes[0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (CELEBA.replace("3\n", "4\n", 1), "another number"),
        ("", "another number"),
        (CELEBA.replace("1 -1", "1"), "2 attributes"),
        (CELEBA.replace("1 -1", "1 2"), "neither 1 nor -1"),
        (CELEBA.replace("000002.jpg", "../../2.jpg"), "a file outside"),
        (CELEBA.replace("Wearing_Hat", "5_o_clock_shadow"), "twice"),
    ],
)
def test_damaged_celeba(text, sentence, tmp_path):
    (celeba(tmp_path) / "list_attr_celeba.txt").write_text(text)
    with pytest.raises(CorruptFileError, match=sentence):
        read_celeba(tmp_path)


def test_celeba_without_its_tables(tmp_path):
    with pytest.raises(DataError, match="list_attr_celeba"):
        read_celeba(tmp_path)
    (celeba(tmp_path) / "identity_CelebA.txt").write_text("000001.jpg 1\n")
    with pytest.raises(CorruptFileError, match="identity_CelebA"):
        read_celeba(tmp_path)


# CUB-200-2011


def cub(root):
    files = ["002.Laysan_Albatross/L_1.jpg", "001.Black_footed_Albatross/B_1.jpg", "002.Laysan_Albatross/L_2.jpg"]
    for seed, name in enumerate(files):
        save(root / "images" / name, seed)
    (root / "images.txt").write_text("".join(f"{10 * row + 10} {name}\n" for row, name in enumerate(files)))
    (root / "classes.txt").write_text("1 001.Black_footed_Albatross\n2 002.Laysan_Albatross\n")
    (root / "image_class_labels.txt").write_text("10 2\n20 1\n30 2\n")
    (root / "attributes").mkdir()
    (root / "attributes" / "attributes.txt").write_text("1 has_bill_shape::curved_(up_or_down)\n2 has_size::small\n")
    answers = ["10 1 1 4 2.0", "10 2 0 3 1.5", "20 1 0 1 1.0", "20 2 1 2 1 0 9.0", "30 1 1 2 1", "30 2 0 4 1"]
    (root / "attributes" / "image_attribute_labels.txt").write_text("\n".join(answers) + "\n")
    return root


def test_cub(tmp_path):
    cub(tmp_path / "CUB_200_2011")
    dataset = read_cub(tmp_path)
    assert dataset.label_names == ("Black_footed_Albatross", "Laysan_Albatross")
    assert dataset.labels.tolist() == [1, 0, 1]
    assert dataset.names[1] == "001.Black_footed_Albatross/B_1.jpg"
    assert dataset.attribute_names == ("has_bill_shape_curved_up_or_down", "has_size_small")
    assert dataset.attributes.tolist() == [[1, 0], [-1, 1], [1, 0]]
    certain = read_cub(tmp_path / "CUB_200_2011", certainty=4).attributes
    assert certain.tolist() == [[1, -1], [-1, -1], [-1, 0]]


def test_cub_finds_attributes_beside_its_folder_or_does_without(tmp_path):
    root = cub(tmp_path / "CUB_200_2011")
    shutil.move(root / "attributes" / "attributes.txt", tmp_path / "attributes.txt")
    assert len(read_cub(root).attribute_names) == 2
    shutil.rmtree(root / "attributes")
    assert read_cub(root).attributes is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("images.txt", "ten a.jpg\n"),
        ("images.txt", "10\n"),
        ("images.txt", "10 ../../../a.jpg\n20 b.jpg\n30 c.jpg\n"),
        ("image_class_labels.txt", "10 2\n20 1\n"),
        ("image_class_labels.txt", "10 2\n20 1\n30 3\n"),
        ("attributes/image_attribute_labels.txt", "10 1 1\n"),
        ("attributes/image_attribute_labels.txt", "15 1 1 4 1\n"),
        ("attributes/image_attribute_labels.txt", "40 1 1 4 1\n"),
        ("attributes/image_attribute_labels.txt", "10 3 1 4 1\n"),
        ("attributes/image_attribute_labels.txt", "10 1 yes 4 1\n"),
    ],
)
def test_damaged_cub(file, text, tmp_path):
    (cub(tmp_path / "cub") / file).write_text(text)
    with pytest.raises(CorruptFileError, match=Path(file).name):
        read_cub(tmp_path / "cub")


def test_cub_mistakes(tmp_path):
    with pytest.raises(DataError, match="images"):
        read_cub(tmp_path)
    with pytest.raises(InputError, match="certainty"):
        read_cub(tmp_path, certainty=5)
    (cub(tmp_path / "cub") / "classes.txt").unlink()
    with pytest.raises(StorageError, match="classes"):
        read_cub(tmp_path / "cub")


# Caltech-101

CLASSES = ("BACKGROUND_Google", "Faces", "Faces_easy", "yin_yang")


def test_caltech101_pictures(tmp_path):
    root = tmp_path / "101_ObjectCategories"
    for seed, name in enumerate(CLASSES):
        save(root / name / "image_0001.jpg", seed)
    dataset = read_caltech101(tmp_path)
    assert dataset.label_names == CLASSES
    assert dataset.names[3] == "yin_yang/image_0001.jpg"
    assert (dataset.name, dataset.licence) == ("caltech101", "CC BY 4.0")
    assert "Fei-Fei" in dataset.source
    assert read_caltech101(root, background=False).label_names == CLASSES[1:]


def caltech_features(path, **changed):
    names = np.repeat(CLASSES, 3)
    parts = {
        "X": np.arange(12 * 5, dtype=np.float16).reshape(12, 5),
        "label": names,
        "name": np.array([f"{name}/image_{row:04d}.jpg" for row, name in enumerate(names)]),
    }
    np.savez(path, **(parts | changed))
    return path


@pytest.mark.parametrize("label", [np.repeat(CLASSES, 3), np.repeat([7, 3, 1, 0], 3)], ids=["names", "numbers"])
def test_caltech101_features(label, tmp_path):
    path = caltech_features(tmp_path / "features.npz", label=label)
    dataset = read_caltech101(path)
    assert dataset.images is None
    assert dataset.features.dtype == np.float32
    assert np.array_equal(dataset.features, np.arange(60).reshape(12, 5))
    assert dataset.label_names == CLASSES
    assert dataset.labels.tolist() == np.repeat(range(4), 3).tolist()
    foreground = read_caltech101(path, background=False)
    assert foreground.label_names == CLASSES[1:]
    assert foreground.names == dataset.names[3:]
    few = read_caltech101(path, limit=4)
    assert [dataset.names[int(row[0]) // 5] for row in few.features] == list(few.names)


@pytest.mark.parametrize(
    "changed",
    [
        {"X": np.zeros((11, 5), dtype=np.float16)},
        {"X": np.zeros((12, 5), dtype=np.int64)},
        {"X": np.zeros(12)},
        {"label": np.repeat(["a", "b", "c", "c"], 3)},
        {"label": np.arange(12)},
    ],
)
def test_damaged_caltech101_features(changed, tmp_path):
    with pytest.raises(CorruptFileError, match="damaged"):
        read_caltech101(caltech_features(tmp_path / "f.npz", **changed))


def test_features_that_are_not_numbers_are_counted(tmp_path):
    features = np.zeros((12, 5), dtype=np.float16)
    features[2, 1] = features[2, 3] = np.nan
    features[7, 0] = np.inf
    with pytest.raises(DataError, match="2 of the 12 rows"):
        read_caltech101(caltech_features(tmp_path / "f.npz", X=features))


def test_features_of_the_background_alone(tmp_path):
    names = np.array(["BACKGROUND_Google/a.jpg"])
    path = caltech_features(tmp_path / "f.npz", X=np.zeros((1, 5), dtype=np.float16), label=names, name=names)
    with pytest.raises(DataError, match="holds no features"):
        read_caltech101(path, background=False)
