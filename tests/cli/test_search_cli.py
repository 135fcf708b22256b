"""`blindsight search` as a stranger meets it: build, ask, measure, compare; and what a folder gives away."""

import numpy as np
import pytest
from PIL import Image

from blindsight.data import load


@pytest.fixture(scope="module")
def digits():
    return load("digits", count=300)


@pytest.mark.parametrize(
    ("options", "proven", "least"),
    [
        (("--mode", "local", "--epsilon", 8, "--public-share", 0.5), 8.0, 0.5),
        (("--mode", "central", "--epsilon", 8, "--bits", 32), 8.0, 0.35),
        (("--mode", "central", "--epsilon", 1, "--bits", 32, "--public-share", 0.3), 1.0, 0.35),
        (("--mode", "open", "--bits", 32), "infinity", 0.3),
        (("--mode", "open", "--bits", 32, "--public-share", 0.3), "infinity", 0.3),
    ],
)
def test_build_ask_and_measure(digits, tmp_path, blindsight, options, proven, least):
    index = tmp_path / "index"
    asked = ["search", "build", "digits", "-n", 600, "--hold-out", 50, "--out", index, "--json"]
    assert blindsight(*asked, *options).document["statement"]["epsilon"] == proven
    Image.fromarray(digits.images[0]).save(tmp_path / "query.png")
    sheet = ["--sheet", tmp_path / "sheet.png"]
    found = blindsight("search", "query", index, tmp_path / "query.png", "-k", 5, *sheet, "--json").document
    assert [answer["rank"] for answer in found["answers"]] == [1, 2, 3, 4, 5]
    near = [answer.get("score", answer.get("distance")) for answer in found["answers"]]
    assert [answer["place"] for answer in found["answers"]] == [near.index(one) + 1 for one in near]  # ties share one
    assert len({answer["number"] for answer in found["answers"]}) == 5
    assert found["tied"] >= near.count(near[-1])
    assert 5 / 600 < found["chance"] < 1  # so many pictures of all are as near as the last answer
    assert np.asarray(Image.open(tmp_path / "sheet.png")).std() > 10
    assert (tmp_path / "sheet.png").stat().st_mode & 0o077 == 0  # it shows private pictures
    measured = blindsight("search", "evaluate", index, "--json").document
    assert measured["queries"] == 50
    assert measured["mean_average_precision"] > least > measured["chance"]
    assert measured["precision_at_10"] > measured["chance"]
    mine = tmp_path / "mine"
    if "local" in options:
        pulled = blindsight("search", "pull", index, "--no-numbers", "--out", mine, "--json").document
        assert pulled["pictures"] == measured["pictures"]
        assert len(blindsight("search", "query", mine, tmp_path / "query.png", "--json").document["answers"]) == 10
    else:
        assert "carry no noise" in blindsight("search", "pull", index, "--out", mine, code=1).err
        allowed = ["search", "allow", index, "--queries", 3, "--json"]
        if options == ("--mode", "open", "--bits", 32):  # askers would have its function, learned from the pictures
            assert "public pictures" in blindsight(*allowed, code=1).document["error"]
            assert not (index / "private" / "queries.json").exists()
        else:
            given = blindsight(*allowed).document
            assert given["left"] == 3
            assert "hash function, learned from" in given["statement"]["who_sees"]["all who ask"]
        sent = ["http://example.org", "album", tmp_path / "query.png", "--token", tmp_path / "query.png"]
        assert "token" in blindsight("search", "ask", *sent, code=2).err
    assert "--token" in blindsight("search", "pull", "https://example.org", "album", code=2).err
    shown = blindsight("search", "show", index, "--json").document
    assert (shown["pictures"], shown["statement"]["epsilon"]) == (measured["pictures"], proven)


def test_folder_of_pictures_is_known_by_name(digits, tmp_path, blindsight, monkeypatch):
    """A subfolder per class, pictures under names of their own; later they lie elsewhere."""
    pictures, index, sheet = tmp_path / "pictures", tmp_path / "index", tmp_path / "a.png"
    for row, (image, label) in enumerate(zip(digits.images[:120], digits.labels, strict=False)):
        (pictures / f"digit {label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.repeat(4, axis=0).repeat(4, axis=1)).save(pictures / f"digit {label}" / f"no {row}.png")
    monkeypatch.setenv("HOME", str(tmp_path))
    as_thumbnails = ["--features", "thumbnail"]
    made = blindsight("search", "build", "~/pictures", "--mode", "open", "--bits", 16, "--out", index, *as_thumbnails)
    monkeypatch.chdir(tmp_path)
    for words in made.hints:
        assert words[:2] == ["search", "query"]
        assert "place" in blindsight(*words).out
    assert "nowhere.png" in blindsight("search", "query", index, "nowhere.png", code=1).err
    query = next(pictures.rglob("*.png"))
    said = blindsight("search", "query", index, query, "--sheet", sheet).out
    assert query.name in said  # the picture itself is among the nearest
    assert "Nothing is proven" in said
    assert "mAP" in blindsight("search", "evaluate", index, pictures, "-n", 40).out
    sheet.unlink()
    query = query.rename(tmp_path / "query.png")
    pictures.rename(tmp_path / "elsewhere")
    assert "nothing is drawn" in blindsight("search", "query", index, query, "--sheet", sheet).out
    assert not sheet.exists()


def test_compare_names_claim_and_proof(tmp_path, blindsight):
    asked = ["papers", "hashing", "compare"]
    how = ["-n", 400, "--queries", 40, "--epsilons", "1,4", "--bits", 16, "--out", tmp_path]
    said = blindsight(*asked, *how, "--methods", "ITQ; PHashing (ITQ); codebook").out
    assert "epsilon = 4" in said  # claimed
    assert "nothing" in said  # proven of it
    assert (tmp_path / "report.html").stat().st_mode & 0o077 == 0
    page = (tmp_path / "report.html").read_text()
    assert "Searching without showing" in page
    assert "It fails:" in page
    assert "'1,two'" in blindsight(*asked, "--epsilons", "1,two", code=2).err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--mode", "local"], "needs --epsilon"),
        (["--mode", "local", "--epsilon", "4"], "--public"),
        (["--mode", "local", "--epsilon", "0", "--public-share", "0.5"], "--epsilon"),
        (["--mode", "open", "--epsilon", "4"], "no epsilon"),
        (["--mode", "open", "--features", "pixels"], "learned from pictures"),
        (["--mode", "central", "--epsilon", "1", "--kinds", "5"], "no codebook"),
        (["--mode", "local", "--epsilon", "1", "--public-share", "2"], "public share"),
        (["--mode", "central", "--epsilon", "1", "--hold-out", "1000"], "leave none to index"),
    ],
)
def test_options_that_cannot_be_met(tmp_path, blindsight, options, sentence):
    asked = ["search", "build", "digits", "-n", 200, "--out", tmp_path / "index"]
    assert sentence in blindsight(*asked, *options, code=2).err
    assert not (tmp_path / "index" / "gallery.npz").exists()


@pytest.mark.parametrize("words", [["nowhere"], ["digits", "--public", "nowhere"]])
def test_a_folder_that_is_not_there_is_named_before_any_work(words, tmp_path, blindsight):
    said = blindsight("search", "build", *words, "--epsilon", 4, "--out", tmp_path / "index", code=2).err
    assert said.startswith("error: nowhere is no folder")


def test_what_is_no_index(tmp_path, blindsight):
    assert "no finished gallery; it holds nothing" in blindsight("search", "evaluate", tmp_path, code=2).err
    blindsight("search", "build", "digits", "-n", 200, "--mode", "open", "--bits", 8, "--out", tmp_path)
    (tmp_path / "gallery.npz").write_bytes((tmp_path / "gallery.npz").read_bytes()[:-3])
    assert "truncated" in blindsight("search", "evaluate", tmp_path, code=1).err
