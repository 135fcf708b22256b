"""The demos: whole, right by an independent count, kept as files, and never half written."""

import json
import threading
from io import BytesIO

import numpy as np
import pytest
from pageservice import NAMES, SIZE, tiny_demos
from PIL import Image

from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.learn.classifier import FederatedClassifier
from blindsight.service import demo
from blindsight.service.demo import Demo, DemoData, Demos, Size, seen_rounds, sift_name


@pytest.fixture
def made(demo_folder):
    """The finished demos, which no test may add to."""
    opened = Demos(demo_folder, SIZE)
    yield opened
    opened.close()


def named_pictures(data):
    """Every file name in nested data."""
    if isinstance(data, dict):
        data = data.values()
    elif isinstance(data, str):
        return {data} if data.endswith(".png") else set()
    elif not isinstance(data, list):
        return set()
    return set().union(*(named_pictures(one) for one in data))


@pytest.mark.parametrize("name", NAMES)
def test_an_exhibit_has_exactly_the_pictures_it_names(made, name):
    data = made.get(name)
    there = {path.name for path in (made.folder / name).glob("*.png")}
    assert named_pictures(data) == there != set()
    for file in there:
        assert Image.open(BytesIO(made.picture(name, file))).format == "PNG"


def test_sifting_hides_what_raw_features_tell(made):
    data = made.get("sift-smiling-male")
    raw, *sifted = [max(guess["accuracy"] for guess in group["guesses"]) for group in data["attackers"]]
    assert raw == data["raw"]["private"] > 0.7
    assert all(guess < raw - 0.05 for guess in sifted)
    assert [len(row) for row in data["sifts"][0]["received"]] == [5] * 4
    assert {value for row in data["sifts"][1]["received"] for value in row} <= {0, 1}
    for group in data["attackers"]:
        assert all(guess["low"] <= guess["accuracy"] <= guess["high"] for guess in group["guesses"])


def test_search_answers_stand_in_order_of_distance_and_are_marked_rightly(made):
    source = DemoData(SIZE)
    features, faces = source.features, source.faces
    kinds = np.stack([faces.attribute("male"), faces.attribute("outdoors")], axis=1)

    def row(file):
        return int(file.removeprefix("photo-").removesuffix(".png"))

    for query in made.get("search")["queries"]:
        asked = row(query["picture"])
        for answer in query["answers"]:
            shown = [bool((kinds[row(item["picture"])] == kinds[asked]).all()) for item in answer["found"]]
            assert [item["right"] for item in answer["found"]] == shown
        (exact,) = [one["found"] for one in query["answers"] if one["method"] == "features"]
        found = features[[row(item["picture"]) for item in exact]]
        cosines = found @ features[asked] / np.linalg.norm(found, axis=1) / np.linalg.norm(features[asked])
        assert (np.diff(cosines) <= 1e-5).all()


def test_rounds_played_one_by_one_are_those_of_one_run():
    source = DemoData(SIZE)
    seen = list(seen_rounds(source, "masks", 2, lambda *_: None))
    whole = FederatedClassifier("masks", rounds=2, multilabel=True, random_state=SIZE.seed)
    whole.fit(source.study.owners, public=source.study.public, validation=source.study.test)
    assert [one.report.score for one in seen] == pytest.approx([report.score for report in whole.history_])
    assert [one.first_score for one in seen] == [whole.public_score_] * 2
    roles = [[view.role for view in one.views] for one in seen]
    assert roles == [["owner 1", "aggregator", "everybody"]] * 2


def test_exhibits_outlive_the_process_but_not_another_size_or_damage(made, tmp_path):
    assert {made.ask(name).stage for name in NAMES} == {"ready"}
    assert Demos(made.folder, Size(pictures=501)).state("search").stage == "missing"
    copy = tiny_demos(made.folder, tmp_path / "demos")
    for content in (b"", b'{"made": ', b"{}", b"[]", b"\xff\xfe"):
        (copy.folder / "search" / "demo.json").write_bytes(content)
        assert copy.get("search") is None
        assert copy.state("search").stage == "missing"


def test_only_known_names_become_folders(made):
    for name in ("..", "../learn", "", "sift", "sift-smiling", "sift-smiling-smiling", "sift-a/b-male"):
        with pytest.raises(InputError):
            made.ask(name)
        with pytest.raises(InputError):
            made.picture(name, "face-0.png")


def test_only_pictures_of_the_exhibit_are_read(made):
    for file in ("demo.json", "../learn/round-1-0.png", "..", "", "/etc/hostname"):
        assert made.picture("search", file) is None


def test_a_policy_needs_two_known_attributes():
    assert sift_name("hat", "pale_skin") == "sift-hat-pale_skin"
    with pytest.raises(UnknownNameError, match="smiling"):
        sift_name("smilin", "male")
    with pytest.raises(InputError):
        sift_name("hat", "hat")


def test_what_failed_says_why_and_is_tried_again(tmp_path, monkeypatch):
    def fails(source, progress):
        raise DataError("there are too few pictures.")

    def breaks(source, progress):
        raise RuntimeError("a secret of the inside")

    shown = Demos(tmp_path, SIZE)
    for make, told in ((fails, "too few pictures"), (breaks, "")):
        monkeypatch.setitem(demo._FIXED, "search", make)
        shown.ask("search")
        assert shown.wait("search").stage == "failed"
        assert told in shown.state("search").what
        assert "secret" not in shown.state("search").what
    monkeypatch.setitem(demo._FIXED, "search", lambda source, progress: Demo({"rows": []}))
    shown.ask("search")
    assert shown.wait("search").stage == "ready"
    assert shown.get("search") == {"rows": []}
    shown.close()


def test_closing_interrupts_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def endless(source, progress):
        begun.set()
        go_on.wait()
        while True:
            progress("for ever", 1, 2)

    monkeypatch.setitem(demo._FIXED, "search", endless)
    shown = Demos(tmp_path, SIZE)
    assert shown.ask("search").stage == "waiting"
    begun.wait()
    assert shown.state("search").stage == "running"
    assert shown.ask("learn").stage == "waiting"
    go_on.set()
    shown.close()
    assert [path.name for path in tmp_path.rglob("*")] == []
    assert shown.ask("sift-smiling-male").stage == "missing"  # nothing new is begun


def test_progress_is_told(tmp_path, monkeypatch):
    told, go_on = threading.Event(), threading.Event()

    def make(source, progress):
        progress("drawing", 3, 7)
        told.set()
        go_on.wait()
        return Demo({})

    monkeypatch.setitem(demo._FIXED, "search", make)
    shown = Demos(tmp_path, SIZE)
    shown.ask("search")
    told.wait()
    assert vars(shown.state("search")) == {"stage": "running", "what": "drawing", "done": 3, "total": 7}
    go_on.set()
    assert shown.wait("search").stage == "ready"
    shown.close()


def test_a_live_run_tells_everything_to_those_who_come_late(made):
    run = made.runs.start("plain", 2)
    made.runs._thread.join()
    kinds = [event.kind for event in run.since(0)]
    assert kinds.count("round") == 2
    assert kinds[-1] == "end"
    assert run.since(len(kinds) - 1)[0].data == {"what": "finished", "done": 2, "total": 2}
    assert run.since(10_000) == ()
    data = run.to_dict()
    json.dumps(data, allow_nan=False)
    assert data["ended"]
    shown = {view["picture"] for one in data["seen"] for view in one["views"]}
    assert shown == set(run.pictures)


def test_one_run_at_a_time_and_it_can_be_stopped(made, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow(source, scheme, rounds, progress):
        begun.set()
        go_on.wait()
        progress("round 1: training", 0, 5)
        yield from ()

    monkeypatch.setattr(demo, "seen_rounds", slow)
    first = made.runs.start("plain", 3)
    begun.wait()
    with pytest.raises(InputError):
        made.runs.start("plain", 1)
    made.runs.stop()
    go_on.set()
    made.runs._thread.join()
    assert first.since(0)[-1].data["what"] == "stopped"
    assert made.runs.start("plain", 1).number == 2


def test_a_run_that_cannot_be_is_refused(made):
    for scheme, rounds in (("none", 3), ("plain", 0), ("plain", 13)):
        with pytest.raises(InputError):
            made.runs.start(scheme, rounds)
    assert made.runs.latest is None
