"""A folder or a table of pictures becomes a Dataset; what cannot be understood is named, and nothing else is lost."""

import os

import numpy as np
import pytest
from PIL import Image

from blindsight.data.readers import read_csv, read_folder
from blindsight.errors import DataError, InputError, StorageError, UnknownNameError


def save(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)


def table(folder, *lines, pictures=("a.png", "b.png", "c.png")):
    for seed, name in enumerate(pictures):
        save(folder / name, seed)
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return folder / "table.csv"


def test_each_directory_is_a_class(tmp_path):
    for seed, name in enumerate(["dogs/rex.png", "cats/old/tom.png", "cats/felix.png"]):
        save(tmp_path / "pets" / name, seed)
    (tmp_path / "pets" / "empty").mkdir()
    dataset = read_folder(tmp_path / "pets", size=8)
    assert dataset.name == "pets"
    assert dataset.names == ("cats/felix.png", "cats/old/tom.png", "dogs/rex.png")
    assert dataset.label_names == ("cats", "dogs")
    assert dataset.labels.tolist() == [0, 0, 1]
    assert np.array_equal(dataset.images[2], np.asarray(Image.open(tmp_path / "pets" / "dogs" / "rex.png")))
    assert (dataset.licence, dataset.skipped, dataset.duplicates) == ("not stated", (), 0)


def test_pictures_without_classes_are_unlabelled(tmp_path):
    for seed in range(3):
        save(tmp_path / f"{seed}.png", seed)
    (tmp_path / "notes.jpg").write_text("a shopping list")
    dataset = read_folder(str(tmp_path), size=4)
    assert dataset.labels is None
    assert dataset.names == ("0.png", "1.png", "2.png")
    assert len(dataset.skipped) == 1
    assert dataset.skipped[0].startswith("notes.jpg: not a picture")


def test_hidden_files_are_ignored_and_loose_ones_reported(tmp_path):
    for seed, name in enumerate(["cats/a.png", "cats/.hidden.png", ".git/b.png", "cats/.old/c.png", "loose.png"]):
        save(tmp_path / name, seed)
    (tmp_path / ".DS_Store").write_bytes(b"x")
    dataset = read_folder(tmp_path)
    assert dataset.names == ("cats/a.png",)
    assert dataset.skipped == ("loose.png: lies next to the class folders",)


def test_copies_across_classes_contradict_and_within_one_do_not(tmp_path):
    for name, seed in {"cats/1": 1, "cats/2": 1, "cats/3": 2, "dogs/1": 2, "dogs/2": 3}.items():
        save(tmp_path / f"{name}.png", seed)
    dataset = read_folder(tmp_path)
    assert dataset.names == ("cats/1.png", "dogs/2.png")
    assert dataset.duplicates == 3
    assert dataset.notes == ("2 pictures dropped: identical to others that are described differently",)


def test_a_limit_reads_the_same_random_part_again(tmp_path):
    for seed in range(20):
        save(tmp_path / f"{seed % 2}" / f"{seed:02d}.png", seed)
    few = read_folder(tmp_path, size=4, limit=5)
    assert len(few) == 5
    assert few.names == read_folder(tmp_path, size=4, limit=5).names
    assert set(few.names) < set(read_folder(tmp_path, size=4, limit=9).names)
    assert few.names != read_folder(tmp_path, size=4, limit=5, random_state=1).names
    assert [name.split("/")[0] for name in few.names] == [few.label_names[label] for label in few.labels]
    assert len(read_folder(tmp_path, size=4, limit=100)) == 20
    with pytest.raises(InputError, match="limit"):
        read_folder(tmp_path, limit=0)


def test_a_collection_past_memory_is_mapped(tmp_path):
    for seed in range(6):
        save(tmp_path / "pictures" / f"{seed}.png", seed)
    held = read_folder(tmp_path / "pictures", size=4)
    mapped = read_folder(tmp_path / "pictures", size=4, limit_memory=100, cache=tmp_path / "cache")
    assert isinstance(mapped.images, np.memmap)
    (file,) = (tmp_path / "cache" / "pixels").iterdir()
    assert mapped.notes == (f"decoded pixels lie in the cache folder as pixels/{file.name}",)
    assert mapped.content_hash() == held.content_hash()
    assert mapped.take([3, 1]).content_hash() == held.take([3, 1]).content_hash()


def test_folders_with_nothing_to_read(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("gone", "file"):
        with pytest.raises(StorageError, match=name):
            read_folder(tmp_path / name)
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    with pytest.raises(DataError, match="empty holds no pictures"):
        read_folder(tmp_path / "empty")
    (tmp_path / "texts").mkdir()
    for name in "abcde":
        (tmp_path / "texts" / name).write_text("words")
    with pytest.raises(DataError, match=r"texts .* a: not a picture.*; and 2 more"):
        read_folder(tmp_path / "texts")


def test_names_that_are_no_text_are_still_printable(tmp_path):
    save(tmp_path / "a.png", 0)
    (tmp_path / "a.png").rename(tmp_path / os.fsdecode(b"\xff.png"))
    assert read_folder(tmp_path).names == ("\ufffd.png",)


def test_a_table_is_understood_by_its_usual_column_names(tmp_path):
    path = table(
        tmp_path,
        "Filename,class,subject,date,smiling,hat,age",
        "a.png,dog,Ann,2024-03-02,1,yes,20",
        "b.png,cat,Bob,2024-03-01T08:00:00,0,No,30",
        "c.png,dog,Ann,2024-03-31,,true,41",
    )
    dataset = read_csv(path, size=8)
    assert dataset.name == "table"
    assert dataset.names == ("a.png", "b.png", "c.png")
    assert dataset.label_names == ("cat", "dog")
    assert dataset.labels.tolist() == [1, 0, 1]
    assert dataset.persons.tolist() == [0, 1, 0]
    assert dataset.days.tolist() == [1, 0, 30]
    assert dataset.attribute_names == ("smiling", "hat")
    assert dataset.attributes.tolist() == [[1, 1], [0, 0], [-1, 1]]
    assert dataset.notes == ("unused columns: age", "day 0 is 2024-03-01")


def test_columns_can_be_chosen_and_left_out(tmp_path):
    path = table(
        tmp_path,
        "where;label;breed;when;male",
        "a.png;x;10;7;-1",
        "b.png;x;9;5;1",
        "c.png;x;10;5;1",
    )
    dataset = read_csv(
        path, path_column="where", label_column="breed", day_column="when", attribute_columns=["male"], person_column=""
    )
    assert dataset.label_names == ("9", "10")  # numbers in the order of numbers
    assert dataset.days.tolist() == [2, 0, 0]
    assert dataset.attributes.tolist() == [[0], [1], [1]]
    assert read_csv(path, path_column="where", label_column="").labels is None


def test_compact_dates_are_dates(tmp_path):
    dataset = read_csv(table(tmp_path, "path,day", "a.png,20240229", "b.png,20240301"))
    assert dataset.days.tolist() == [0, 1]


def test_pictures_may_lie_in_another_folder(tmp_path):
    save(tmp_path / "pictures" / "deep" / "a.png", 0)
    (tmp_path / "lists").mkdir()
    path = table(tmp_path / "lists", "path", "deep/a.png", str(tmp_path / "pictures" / "deep" / "a.png"), pictures=())
    dataset = read_csv(path, root=tmp_path / "pictures")
    assert dataset.names == ("deep/a.png",)
    assert dataset.duplicates == 1


def test_missing_files_are_skipped_by_name(tmp_path):
    dataset = read_csv(table(tmp_path, "path,label", "a.png,x", "gone.png,y", "c.png,z"))
    assert dataset.names == ("a.png", "c.png")
    assert dataset.skipped == ("gone.png: no such file or directory",)
    assert [dataset.label_names[label] for label in dataset.labels] == ["x", "z"]


@pytest.mark.parametrize("name", ["../secret.png", "/etc/hostname", "inner/../../secret.png", "link.png", "a\0.png"])
def test_a_table_cannot_reach_outside_its_folder(name, tmp_path):
    save(tmp_path / "secret.png", 9)
    path = table(tmp_path / "shared", "path,label", "a.png,x", f"{name},y")
    (tmp_path / "shared" / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(DataError, match="line 3, column 'path'"):
        read_csv(path)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["path,label", "a.png,x", "b.png,"], "line 3, column 'label'"),
        (["path,person", "a.png,", "b.png,Ann"], "line 2, column 'person'"),
        (["path,day", "a.png,3", "b.png,2024-01-01"], "line 3, column 'day'"),
        (["path,date", "a.png,2024-01-01", "b.png,1"], "line 3, column 'date'"),
        (["path,date", "a.png,2024-02-30"], "line 2, column 'date'"),
        (["path,day", "a.png,"], "line 2, column 'day'"),
        (["path,label", ",x"], "line 2, column 'path'"),
        (["path,label", "a.png,x", "b.png"], "line 3 .* 1 cells"),
        (["path,path", "a.png,b.png"], "same name"),
        (["path,label"], "holds no pictures"),
        (["path,label", '"a.png,x'], "not a table"),
    ],
)
def test_what_cannot_be_understood_is_named_by_line_and_column(lines, sentence, tmp_path):
    with pytest.raises(DataError, match=sentence):
        read_csv(table(tmp_path, *lines))


def test_chosen_attributes_must_be_yes_or_no(tmp_path):
    path = table(tmp_path, "path,age,odd", "a.png,1,0", "b.png,37,-1", "c.png,0,1")
    with pytest.raises(DataError, match="line 3, column 'age'") as caught:
        read_csv(path, attribute_columns=["age"])
    assert "37" not in str(caught.value)  # the cell may be private
    with pytest.raises(DataError, match="'odd'"):
        read_csv(path, attribute_columns=["odd"])
    assert read_csv(path).notes == ("unused columns: age, odd",)


def test_unknown_columns_get_a_suggestion(tmp_path):
    path = table(tmp_path, "path,label,smiling", "a.png,x,1")
    with pytest.raises(UnknownNameError, match="'label'"):
        read_csv(path, label_column="lable")
    with pytest.raises(UnknownNameError, match="'smiling'"):
        read_csv(path, attribute_columns=["smilin"])
    with pytest.raises(InputError, match="path_column"):
        read_csv(table(tmp_path, "x,y", "a.png,1"))


def test_tables_that_are_no_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"path\n\xff\xfe\xfa")
    with pytest.raises(DataError, match="not a table"):
        read_csv(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("")
    with pytest.raises(DataError, match="empty"):
        read_csv(tmp_path / "b.csv")
    with pytest.raises(StorageError, match="not exist"):
        read_csv(tmp_path / "c.csv")


def test_a_byte_order_mark_and_blank_lines_do_no_harm(tmp_path):
    path = table(tmp_path, "path\tlabel", "a.png\tx", "", "b.png\ty")
    path.write_text("\ufeff" + path.read_text())
    assert read_csv(path).names == ("a.png", "b.png")
