"""Owners bring pictures of their own: classes are matched by name, and the model answers for pictures."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from blindsight.audit.run_audit import RebuiltRun
from blindsight.data import Dataset, load
from blindsight.data.sites import Study, gather
from blindsight.errors import CorruptFileError, DataError, InputError
from blindsight.learn import FederatedClassifier, load_model
from blindsight.learn.classifier import classifier_task
from blindsight.learn.linear import LinearTraining
from blindsight.learn.model import Classes
from blindsight.rounds import Privacy, Task

NAMES = ("anchor", "boat", "cloud")
LACKS = {"north": 0, "east": 1, "west": 2}


def drawn(n, lacks=None, seed=0):
    """Stripes of three directions; the classes are numbered as a site finds them, without the one that it lacks."""
    rng = np.random.default_rng(seed)
    kinds = np.array([kind for kind in range(3) if kind != lacks])
    which = kinds[rng.integers(0, len(kinds), n)]
    x, y = np.meshgrid(np.arange(16), np.arange(16))
    waves = np.stack([np.sin(a * x + b * y) for a, b in ((1.2, 0), (0, 1.2), (0.9, 0.9))])[which]
    grey = np.clip(127 + 90 * waves + rng.normal(0, 25, (n, 16, 16)), 0, 255).astype(np.uint8)
    images = np.repeat(grey[..., None], 3, axis=3)
    labels, names = np.searchsorted(kinds, which), tuple(NAMES[kind] for kind in kinds)
    return Dataset("stripes", "CC0", "drawn", images=images, labels=labels, label_names=names)


@pytest.fixture(scope="module")
def sites():
    return {name: drawn(60, lacks, seed) for seed, (name, lacks) in enumerate(LACKS.items(), start=1)}


@pytest.fixture(scope="module")
def fitted(sites):
    return FederatedClassifier(rounds=4).fit(sites, public=drawn(30), validation=drawn(90, seed=9))


def test_sites_that_lack_a_class_each_learn_all_of_them(fitted):
    assert fitted.classes_.tolist() == list(NAMES)
    assert fitted.score(drawn(90, seed=8)) > 0.95
    assert set(fitted.predict(drawn(60, seed=7).images)) == set(NAMES)


def test_owners_may_be_numbered_and_have_noise_inside_their_sums(sites):
    learner = FederatedClassifier(rounds=2, privacy=Privacy(epsilon=8, delta=1e-5, unit="record"))
    learner.fit(list(sites.values()), public=drawn(30))
    assert learner.classes_.tolist() == list(NAMES)
    assert learner.statement_.epsilon <= 8


def test_a_class_that_the_public_pictures_lack_is_refused_with_both_lists(sites):
    strange = replace(sites["east"], label_names=("anchor", "clown"))
    with pytest.raises(DataError, match=r"east: .*clown.*anchor, boat, cloud"):
        FederatedClassifier().fit(sites | {"east": strange}, public=drawn(30))


def test_rows_are_the_owners_and_some_public_ones_are_held_out(sites):
    dataset, division = gather(sites, drawn(30))
    assert division.names == tuple(LACKS)
    sides = [division.public, *division.owners, division.held_out]
    assert sorted(np.concatenate(sides).tolist()) == list(range(len(dataset)))
    assert len(division.public) + len(division.held_out) == 30
    study = Study.of(dataset, np.zeros((len(dataset), 1), np.float32), division)
    assert {name: sorted(set(y)) for name, (_, y) in study.owners.items()} == {
        name: [kind for kind in range(3) if kind != lacks] for name, lacks in LACKS.items()
    }


def test_attributes_are_matched_by_name():
    faces = load("faces", count=120)
    turned = replace(faces, attributes=faces.attributes[:, ::-1], attribute_names=faces.attribute_names[::-1])
    dataset, division = gather({"a": faces, "b": turned, "c": faces}, faces, attributes=["hat", "male"])
    X = np.arange(len(dataset), dtype=np.float32)[:, None]
    owners = Study.of(dataset, X, division).owners
    np.testing.assert_array_equal(owners["a"][1], owners["b"][1])


def test_pictures_of_two_sizes_and_features_alone_are_refused(sites):
    wide = replace(sites["east"], images=sites["east"].images[:, :, :8])
    with pytest.raises(InputError, match="one size"):
        gather(sites | {"east": wide}, drawn(30))
    with pytest.raises(InputError, match="dataset"):
        FederatedClassifier().fit([(np.zeros((2, 2)), [0, 1])] * 3, public=drawn(30))
    with pytest.raises(InputError, match="features, not on pictures"):
        FederatedClassifier().fit(np.eye(4), [0, 1, 0, 1]).predict(drawn(3))


def test_a_saved_model_answers_for_pictures(fitted, tmp_path):
    fitted.save(tmp_path)
    fresh = drawn(40, seed=5)
    model = load_model(tmp_path)
    assert model.predict(fresh.images).tolist() == fitted.predict(fresh).tolist()
    np.testing.assert_array_equal(model.decision_function(fresh), fitted.decision_function(fresh))
    assert model.answers == NAMES
    FederatedClassifier(rounds=1).fit([drawn(20, 0, seed=i) for i in range(3)], public=drawn(9, 0)).model_.save(
        tmp_path / "model.npz"
    )
    with pytest.raises(DataError, match="two runs"):
        load_model(tmp_path)
    (tmp_path / "pictures.npz").write_bytes(b"PK\3\4")
    with pytest.raises(CorruptFileError):
        load_model(tmp_path)
    (tmp_path / "pictures.npz").unlink()
    with pytest.raises(InputError, match="ready-made features"):
        load_model(tmp_path)


@pytest.fixture(scope="module")
def folders(sites, tmp_path_factory):
    root = tmp_path_factory.mktemp("sites")
    for site, dataset in (sites | {"public": drawn(45)}).items():
        for number, (image, label) in enumerate(zip(dataset.images, dataset.labels, strict=True)):
            place = root / site / dataset.label_names[label]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{number}.png")
    return root


def owners(folders):
    return [part for name in LACKS for part in ("--owner", f"{name}={folders / name}")]


def test_three_folders_become_one_classifier_that_answers_and_is_audited(folders, tmp_path, blindsight):
    run = tmp_path / "my [first] run"
    asked = ["learn", "classifier", *owners(folders), "--public", folders / "public", "--rounds", 3, "--components", 12]
    (words,) = blindsight(*asked, "--out", run).hints
    assert words == ["learn", "predict", str(run), str(folders / "public")]
    assert blindsight(*asked, "--out", run, "--json").document["score"] > 0.9
    table = tmp_path / "answers.csv"
    found = blindsight("learn", "predict", run, folders / "public", "--out", table, "--json").document["answers"]
    right = [name.split("/")[0] == answer for name, answer in found.items()]
    assert (len(right), np.mean(right) > 0.9) == (45, True)
    assert len(table.read_text().splitlines()) == 46
    rebuilt = RebuiltRun.load(run)
    assert rebuilt.division.names == tuple(LACKS)
    assert len(rebuilt.study.test[0]) < 45
    about = json.loads((run / "run.json").read_text())
    assert about["sites"]["owners"]["north"] == str(folders / "north")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--owner", "north"], "NAME=PATH"),
        (["--owner", "a=x", "--owner", "a=y"], "NAME=PATH"),
        (["--owner", "a=x"], "--public"),
        (["--public", "x"], "--owner"),
        (["--owner", "a=x", "--public", "x", "--data", "faces"], "Leave --data"),
    ],
)
def test_owners_are_named_with_their_pictures(tmp_path, blindsight, options, said):
    assert said in blindsight("learn", "classifier", *options, "--out", tmp_path / "run", code=2).err


def test_all_folders_are_looked_for_before_a_picture_is_read(folders, tmp_path, blindsight):
    asked = ["learn", "classifier", *owners(folders), "--public", tmp_path / "nowhere", "--out", tmp_path / "run"]
    said = blindsight(*asked, code=1).err
    assert "nowhere" in said
    assert "decoding" not in said


def test_a_picture_that_cannot_be_read_is_named(folders, tmp_path, blindsight):
    run = tmp_path / "run"
    (tmp_path / "new" / "boat").mkdir(parents=True)
    (tmp_path / "new" / "boat" / "torn.png").write_bytes(b"PNG")
    Image.fromarray(drawn(1).images[0]).save(tmp_path / "new" / "boat" / "whole.png")
    asked = ["learn", "classifier", *owners(folders), "--public", folders / "public", "--test", tmp_path / "new"]
    said = blindsight(*asked, "--rounds", 1, "--out", run).err
    assert "torn.png: " in said


def test_sites_agree_on_columns_and_classes(folders, tmp_path, blindsight):
    agreed, made = tmp_path / "agreed.npz", {}
    for site in ("public", *LACKS):
        out = tmp_path / f"{site}.npz"
        first = ["--public", "--components", 12] if site == "public" else []
        said = blindsight("federation", "data", folders / site, "--agreed", agreed, "--out", out, *first)
        (words,) = said.hints
        assert words[:2] == (["federation", "run"] if first else ["federation", "join"])
        assert str(out) in words
        made[site] = np.load(out, allow_pickle=False)
    assert {site: data["features"].shape[1] for site, data in made.items()} == dict.fromkeys(made, 12)
    assert set(made["north"]["labels"]) == {"boat", "cloud"}
    public = made["public"]["features"], made["public"]["labels"]
    task = classifier_task(public, Classes(np.unique(public[1])), LinearTraining())
    labels = Task.from_bytes(task.to_bytes()).learner().labels
    assert labels.names.tolist() == list(NAMES)
    assert labels.signs(made["north"]["labels"]).shape == (60, 3)
    strange = tmp_path / "strange"
    (strange / "clown").mkdir(parents=True)
    Image.fromarray(drawn(1).images[0]).save(strange / "clown" / "1.png")
    said = blindsight("federation", "data", strange, "--agreed", agreed, "--out", tmp_path / "no.npz", code=1).err
    assert "clown" in said
    assert "anchor, boat, cloud" in said
