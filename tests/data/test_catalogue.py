"""Every collection opens by name, options reach its reader, others can be registered."""

import sys

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from blindsight.data import catalogue, load
from blindsight.data.catalogue import digits, register_collection
from blindsight.errors import DataError, InputError, UnknownNameError


def test_every_collection_of_the_catalogue_is_known_to_load(tmp_path):
    for entry in catalogue():
        if entry.comes == "bundled":
            assert len(load(entry.name, count=5)) == 5
        elif entry.comes == "fetched":
            with pytest.raises(DataError, match=str(tmp_path)):
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


def test_digits_keep_all_seventeen_grey_levels():
    ours, theirs = digits(), load_digits()
    np.testing.assert_array_equal(np.round(ours.images[..., 1] / 255 * 16), theirs.images)
    np.testing.assert_array_equal(ours.labels, theirs.target)


@pytest.fixture
def registry(monkeypatch):
    """Forget what a test registers."""
    module = sys.modules["blindsight.data.catalogue"]
    monkeypatch.setattr(module, "_ENTRIES", dict(module._ENTRIES))


def read_some(*, limit=None, random_state=0):
    return digits().take(range(3))


@pytest.mark.usefixtures("registry")
def test_a_registered_collection_is_loaded_listed_and_given_its_options(tmp_path):
    seen = []

    def read(folder, *, side=8, random_state=0):
        seen.append((folder, side, random_state))
        return read_some()

    def find(cache):
        if cache is None:
            raise DataError("fetch it first.")
        return cache / "mine"

    register_collection("mine", read, title="three digits", comes="fetched", find=find)
    register_collection("mine", read, comes="from a path")
    (entry,) = (entry for entry in catalogue() if entry.name == "mine")
    assert (entry.title, entry.comes, entry.is_here()) == ("three digits", "fetched", False)
    assert len(load("mine", cache=tmp_path, side=9, random_state=4, count=2)) == 2
    load("mine", path=tmp_path / "other")
    assert seen == [(tmp_path / "mine", 9, 4), (tmp_path / "other", 8, 0)]
    with pytest.raises(DataError, match="fetch it first"):
        load("mine")
    with pytest.raises(InputError, match="'edge'"):
        load("mine", cache=tmp_path, edge=9)


@pytest.mark.usefixtures("registry")
def test_a_name_is_not_taken_from_another_module():
    with pytest.raises(InputError, match=r"blindsight\.data\.faces.*'faces'"):
        register_collection("faces", read_some)
    assert len(load("faces", count=4)) == 4
    for _ in range(2):  # a module that is imported again
        register_collection("mine", read_some)
    assert len(load("mine")) == 3


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("how", [{"comes": "fetched"}, {"find": lambda cache: cache}])
def test_only_a_fetched_collection_is_found_in_a_cache(how):
    with pytest.raises(InputError, match="find="):
        register_collection("mine", read_some, **how)
    with pytest.raises(UnknownNameError):
        load("mine")
