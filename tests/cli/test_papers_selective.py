"""`blindsight papers selective days` as a stranger meets it: a live table, one document, a report, and sentences."""

from pathlib import Path

import pytest

from blindsight.papers.selective.days import Timeline
from blindsight.statement import PrivacyStatement

PROVEN = ["--delta", "1e-5", "--upload-clip", "0.5"]


@pytest.fixture
def selective(blindsight, tmp_path):
    """`papers selective days` on few photos, into a folder of the test; options may take the place of these."""

    def call(*options, code=0):
        quick = {"-n": 500, "--components": 15, "--participants": 3, "--days": 3, "--out": tmp_path / "run"}
        given = [item for pair in quick.items() if pair[0] not in options for item in pair]
        return blindsight("papers", "selective", "days", *given, *options, code=code)

    return call


def test_study_writes_document_statement_and_report(tmp_path, selective):
    noise = ["--noise", "participant", "--epsilon", "8", *PROVEN, "--epsilons", "2, 8", "--clip", "1"]
    said = selective(*noise, "--json")
    document = said.document
    assert "never updated" in said.err  # the live table leaves standard output to the document
    timeline = Timeline.from_dict(document)
    assert len(timeline.photos) == 3
    assert len(timeline.methods) == 7 + 2 * 4
    ours = timeline.method("selective sharing")
    assert ours.epsilon is not None
    assert 7.9 < ours.epsilon <= 8
    upload, whole = document["composition"][:2]
    assert upload["what"] == "one upload"
    assert whole["what"].startswith("a participant, over")
    assert (whole["composed"], whole["delta"], whole["accountant"]) == (ours.epsilon, 1e-5, "pld")
    assert "per participant" in document["sentence"]
    assert PrivacyStatement.from_json((tmp_path / "run" / "statement.json").read_text()) == ours.statement
    page = Path(document["report"]).read_text()
    assert page.count('role="img"') == 3  # by day, by bytes, by epsilon
    for part in ("Sharing a little of what was learned", "what is counted", "epsilon at delta = 1e-05", "DP-FedAvg"):
        assert part in page


def test_live_table_is_for_people(selective):
    lines = selective("--noise", "published", "--epsilon", "1", "--bound", "0.1").out.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("day  "))
    assert [line.split()[0] for line in lines[heading + 1 : heading + 4]] == ["1", "2", "3"]
    whole = " ".join(" ".join(lines).split())
    for part in (
        "one parameter in one upload, as the papers count 1.00",
        "at delta = 1e-05",
        "against whom",
        "0 0.000 0.00 everybody",  # of methods in which nothing leaves
        "not even that is proven",
    ):
        assert part in whole


def test_the_same_seed_learns_the_same_and_what_is_not_proven_is_null(selective):
    found = [selective("--seed", seed, "--residual", "--json").document for seed in (1, 1, 2)]
    accuracies = [[line["accuracy"] for line in document["lines"]] for document in found]
    assert accuracies[0] == accuracies[1] != accuracies[2]
    composed = {(row["basic"], row["composed"], row["accountant"]) for row in found[0]["composition"]}
    assert composed == {(None, None, "none")}


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--classes", "3, 5,8", "--components", "6"], 3 * 7),
        (["--data", "faces", "--attribute", "smiling", "-n", 300], 2 * 16),
        (["--share", "0.5", "--half"], 10 * 16),
        (["--order", "asynchronous", "--select", "threshold", "--threshold", "0.001", "--download", "0.5"], 10 * 16),
    ],
)
def test_questions_and_ways_to_share(options, parameters, selective):
    assert f"{parameters} parameters" in selective(*options).out


def test_a_head_learns_above_ones_own_vgg16(tmp_path, selective, monkeypatch):
    torch = pytest.importorskip("torch")
    from blindsight.papers.selective import vgg16 as vgg

    monkeypatch.setattr(vgg, "_VGG_WIDTHS", ((2,),))  # narrow, and for small photos
    monkeypatch.setattr(vgg, "_HIDDEN", 5)
    monkeypatch.setattr(vgg, "_SIZE", 16)
    with torch.random.fork_rng(devices=[]):
        torch.save(vgg.vgg16(3).state_dict(), tmp_path / "weights.pt")
    said = selective("--features", f"vgg16:{tmp_path / 'weights.pt'}", "--classes", "0,1,2").out
    assert f"{3 * (5 + 1)} parameters" in said


def test_a_network_from_scratch_learns_too(selective):
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        said = selective("--model", "cnn", "--optimiser", "adam", "-n", 600, "--classes", "0,1", "--json")
    finally:
        torch.set_num_threads(threads)
    assert len(Timeline.from_dict(said.document).methods) == 7


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--share", "0"], "(0, 1]; got 0.0"),
        (["--noise", "participant", "--epsilon", "1"], "delta and upload_clip"),
        (["--noise", "gauss", "--epsilon", "1"], "'gauss'"),
        (["--epsilons", "1,two"], "'1,two'"),
        (["--learning-rate", "0"], "the learning rate"),
        (["--features", "pixel"], "Did you mean 'pixels'"),
        (["--features", "vgg16:nowhere.pt"], "vgg16 takes a file"),
        (["--participants", "0"], "0 is not in the range"),
    ],
)
def test_wrong_options_get_a_sentence_before_a_photo_is_read(options, sentence, tmp_path, selective, monkeypatch):
    monkeypatch.setattr("blindsight.data.load", lambda *_, **__: pytest.fail("photos were read"))
    assert sentence in selective(*options, code=2).err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--classes", "4,5", "--skew", "0.01"], 2, "it could learn nothing but to say so"),
        (["--classes", "4,four"], 2, "unknown class 'four'"),
        (["--data", "digit"], 2, "Did you mean 'digits'"),
        (["--data", "faces", "-n", "60"], 1, "faces has no classes"),
        (["--days", "400"], 2, "Plan fewer days."),
    ],
)
def test_what_photos_do_not_allow_gets_a_sentence(options, code, sentence, tmp_path, selective):
    said = selective(*options, code=code).err
    assert sentence in said
    assert "unexpected" not in said
    assert not (tmp_path / "run" / "report.html").exists()
