"""One door: every collection opens by name, options reach its reader, and wrong ones get a sentence."""

import numpy as np
import pytest
from PIL import Image

from blindsight.data import catalogue, load
from blindsight.errors import DataError, InputError, UnknownNameError


def test_every_collection_of_the_catalogue_is_known_to_load(tmp_path):
    for entry in catalogue():
        if entry.comes == "bundled":
            assert len(load(entry.name, count=5)) == 5
        elif entry.comes == "fetched":
            with pytest.raises(DataError, match=f"blindsight data fetch {entry.name}"):
                load(entry.name, cache=tmp_path)
        else:
            with pytest.raises(InputError, match="say where it lies"):
                load(entry.name)


def test_unknown_collection_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'digits'"):
        load("digit")


def test_count_takes_the_same_part_for_the_same_seed():
    first, again, other = (load("digits", count=50, random_state=seed).names for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_options_reach_the_reader():
    faces = load("faces", count=12, size=128, pictures_per_person=4, correlation=np.eye(12))
    assert faces.images.shape == (12, 128, 128, 3)
    assert len(np.unique(faces.persons)) == 3


def test_option_of_another_collection_is_refused_by_name():
    with pytest.raises(InputError, match=r"digits takes no option 'correlation'"):
        load("digits", correlation=np.eye(12))
    with pytest.raises(InputError, match=r"digits takes no option 'size'"):
        load("digits", size=64)


def test_bundled_collection_is_not_read_from_a_path(tmp_path):
    with pytest.raises(InputError, match="faces is not read from a path"):
        load("faces", path=tmp_path)


def test_folder_is_read_from_its_path(tmp_path):
    for kind, colour in (("cats", "red"), ("dogs", "blue")):
        (tmp_path / kind).mkdir()
        Image.new("RGB", (9, 9), colour).save(tmp_path / kind / "one.png")
    pets = load("folder", path=tmp_path, size=16)
    assert pets.images.shape == (2, 16, 16, 3)
    assert pets.label_names == ("cats", "dogs")


def test_no_pictures_at_all_is_not_an_answer():
    with pytest.raises(InputError, match="at least 1 picture; got 0"):
        load("digits", count=0)


@pytest.mark.parametrize("count", [True, "5", 5.0])
def test_count_is_a_whole_number(count):
    with pytest.raises(InputError, match="count must be a whole number"):
        load("digits", count=count)


def test_count_may_come_from_an_array():
    assert len(load("digits", count=np.int64(5))) == 5


@pytest.mark.parametrize("name", [5, None, ["faces"]])
def test_a_name_is_text(name):
    with pytest.raises(InputError, match="opened by its name"):
        load(name)


def test_cache_may_be_text(tmp_path):
    with pytest.raises(DataError, match="not in the cache"):
        load("orl", cache=str(tmp_path))


@pytest.mark.parametrize(("name", "option"), [("faces", "n"), ("folder", "limit")])
def test_what_load_sets_itself_is_neither_taken_nor_offered_as_an_option(tmp_path, name, option):
    with pytest.raises(InputError, match=f"{name} takes no option '{option}'") as refusal:
        load(name, path=tmp_path if name == "folder" else None, count=5, **{option: 5})
    offered = str(refusal.value).split("it takes: ")[1].rstrip(".").split(", ")
    assert offered
    assert not {"size", "random_state", "progress", "cache", "limit", "n", "count", "path"} & set(offered)


def test_an_option_of_the_wrong_type_gets_a_sentence_that_names_it(tmp_path):
    with pytest.raises(InputError, match="pictures_per_person"):
        load("faces", count=4, pictures_per_person="x")
    table = tmp_path / "table.csv"
    table.write_text("path,label\none.png,cat\n")
    with pytest.raises(InputError, match="label_column"):
        load("csv", path=table, label_column=5)
