"""An audit is a list of checks with a time budget; every path that is no artefact gets one sentence."""

import json
from itertools import pairwise

import numpy as np
import pytest

from blindsight.audit import checks
from blindsight.audit.artefacts import audit_artefact, recognise
from blindsight.audit.checks import Audit, Check, Evidence, Target, check_minutes, run_checks, worst_of_each
from blindsight.audit.finding import Finding, Interval
from blindsight.audit.inversion import PictureRow
from blindsight.errors import BlindsightError, CorruptFileError, InputError, MissingExtraError, PrivacyError
from blindsight.files import write_arrays
from blindsight.search.building import BuildOptions, build_gallery
from blindsight.search.gallery import Source


def finding(claim="it is safe", verdict="not refuted", value=0.5, **others):
    return Finding(
        claim=claim,
        source="somebody",
        proven="nothing",
        measure="something",
        measured=Interval(value, value, None, 0.95),
        verdict=verdict,
        attack="a knock",
        **others,
    )


def noting(name, seconds, heard, **options):
    def run(effort):
        heard.append((name, effort))
        return Evidence((finding(name),))

    return Check(name, seconds, run, **options)


def failing(name, error, **options):
    def run(effort):
        raise error

    return Check(name, 1, run, **options)


def audited(tried, minutes=1.0, **options):
    return run_checks("a thing", tried, minutes=minutes, seed=3, **options)


def verdicts(audit):
    return {name: evidence.findings[0].verdict for name, evidence in audit.sections.items() if evidence.findings}


@pytest.mark.parametrize(
    ("minutes", "effort"),
    [
        (2.0, 2.0),  # twice the minute that all checks take at effort 1
        (1.0, 1.0),
        (0.25, 0.25),  # the least
        (16.0, 16.0),  # the most
        (500.0, 16.0),
    ],
)
def test_effort_is_the_time_there_is_over_the_time_it_takes(minutes, effort):
    heard = []
    audit = audited([noting("a", 20, heard), noting("b", 40, heard)], minutes)
    assert heard == [("a", effort), ("b", effort)]
    assert audit.effort == effort
    assert audit.notes == ()


@pytest.fixture
def estimated(monkeypatch):
    """Checks take as long as they say, by a clock that nothing else moves; `pace` times as long."""
    clock = {"now": 0.0, "pace": 1.0}
    monkeypatch.setattr(checks, "perf_counter", lambda: clock["now"])

    def timed(name, seconds, heard, **options):
        def run(effort):
            clock["now"] += clock["pace"] * check.takes(effort)
            heard.append((name, effort))
            return Evidence((finding(name),))

        check = Check(name, seconds, run, **options)
        return check

    return clock, timed


def test_the_last_checks_are_left_out_if_even_the_least_effort_takes_too_long(estimated):
    heard = []
    three = [estimated[1]("a", 20, heard), estimated[1]("b", 40, heard), estimated[1]("c", 2, heard)]
    audit = audited(three, 0.2)  # 12 s: a quarter of a and b takes 15
    assert heard == [("a", 0.6)]
    assert verdicts(audit) == {"a": "not refuted", "b": "not run", "c": "not run"}
    assert [note.partition(" ")[0] for note in audit.notes] == ["b", "c"]


def test_on_a_fast_machine_they_are_made_after_all_as_long_as_there_is_time(estimated):
    heard = []
    clock, timed = estimated
    clock["pace"] = 0.1
    four = [timed("a", 20, heard), timed("b", 40, heard), timed("c", 0, heard, fixed=11), timed("d", 2, heard)]
    audit = audited(four, 0.2)
    assert heard == [("a", 0.6), ("b", 0.25), ("d", 0.25)]  # after 1.2 and 1.0 of 12 s, c with its 11 does not fit
    assert verdicts(audit) == {"a": "not refuted", "b": "not refuted", "c": "not run", "d": "not refuted"}


def test_one_check_is_made_in_any_time_and_fixed_seconds_are_taken_off_before_the_rest_is_shared(estimated):
    heard, noting = [], estimated[1]
    assert len(audited([noting("a", 1e6, heard)], 1e-9).findings) == 1
    assert heard == [("a", 0.25)]
    assert audited([]).findings == ()
    assert audited([noting("free", 0, heard)]).effort == 1.0
    heard.clear()
    audited([noting("a", 10, heard, fixed=20), noting("b", 10, heard)], 1.0)
    assert heard == [("a", 2.0), ("b", 2.0)]  # 20 + 2 * (10 + 10) = 60
    heard.clear()
    audit = audited([noting("a", 4, heard), noting("b", 0, heard, fixed=60)], 0.5)
    assert heard == [("a", 7.5)]
    assert [note.partition(" ")[0] for note in audit.notes] == ["b"]


def test_no_check_is_begun_when_the_time_is_spent(monkeypatch):
    heard, clock = [], [0.0]
    monkeypatch.setattr(checks, "perf_counter", lambda: clock[0])

    def slow(effort):
        clock[0] += 61.0
        return Evidence((finding("slow"),))

    audit = audited([Check("slow", 10, slow), noting("b", 10, heard), noting("c", 10, heard)], 1.0)
    assert heard == []
    assert [note.partition(" ")[0] for note in audit.notes] == ["b", "c"]
    assert audit.seconds == 61.0
    assert verdicts(audit) == {"slow": "not refuted", "b": "not run", "c": "not run"}
    assert (audit.tested, audit.remarks) == (True, ())  # the rows tell why
    left_out = audit.sections["b"].findings[0]
    assert left_out.claim == "b"
    assert left_out.measure.startswith("Was left out")  # and do not say their name twice


@pytest.mark.parametrize("minutes", [0, -1.0, float("nan"), float("inf")])
def test_no_time_is_no_budget(minutes):
    heard = []
    with pytest.raises(InputError, match="budget"):
        audited([noting("a", 1, heard)], minutes)
    with pytest.raises(InputError, match="positive"):
        check_minutes(minutes)
    assert heard == []


@pytest.mark.parametrize("error", [MissingExtraError("install it."), InputError("too few rows."), PrivacyError("no.")])
def test_a_check_that_cannot_be_done_leaves_a_note_and_the_others_go_on(error):
    heard = []
    half = Check("c", 1, lambda effort: Evidence((), notes=("half of it.",)))
    told = []
    tried = [noting("a", 1, heard), failing("b", error), half]
    audit = audited(tried, notes=["seen before"], progress=lambda *step: told.append(step))
    assert verdicts(audit) == {"a": "not refuted", "b": "not run"}
    assert audit.remarks == ("seen before", "half of it.")
    assert not audited([failing("b", error)]).tested
    assert (audit.notes[0], audit.notes[2]) == ("seen before", "half of it.")
    assert str(error) in audit.notes[1]
    assert told == [("a", 0, 3), ("b", 1, 3), ("c", 2, 3)]
    with pytest.raises(ZeroDivisionError):  # a bug is no note
        audited([failing("b", ZeroDivisionError())])


def test_without_a_vital_check_there_is_no_audit():
    heard = []
    with pytest.raises(BlindsightError, match="broken"):
        audited([failing("a", PrivacyError("the instrument is broken."), vital=True), noting("b", 1, heard)])
    assert heard == []
    assert audited([noting("a", 1, heard, vital=True)]).notes == ()


def row(*similarity):
    return PictureRow(np.zeros((4, 4, 4, 3), dtype=np.uint8), similarity, 0.1)


def test_an_audit_counts_and_is_plain_data():
    first = Evidence((finding("x", "refuted"), finding("y", details={"runs": 7})), (row(0.9, 0.1, 0.2),))
    audit = Audit(
        subject="a thing", sections={"one": first, "two": Evidence((finding("z", "refuted"),))}, notes=("left out",),
        effort=2.0, seed=3, seconds=4.5,
    )  # fmt: skip
    assert [found.claim for found in audit.findings] == ["x", "y", "z"]
    assert [audit.count(verdict) for verdict in ("refuted", "not refuted", "leaks")] == [2, 1, 0]
    data = json.loads(json.dumps(audit.to_dict(), allow_nan=False))
    assert [found["check"] + found["claim"] for found in data["findings"]] == ["onex", "oney", "twoz"]
    assert data["findings"][1]["details"] == {"runs": 7}
    assert data["pictures"] == [{"ssim": {"plain": 0.9, "aggregator": 0.1, "sift": 0.2}, "blind": 0.1}]
    assert (data["subject"], data["notes"], data["effort"], data["seed"]) == ("a thing", ["left out"], 2.0, 3)
    assert "pictures" not in repr(audit)


def test_of_findings_about_one_claim_the_worst_stands_for_all():
    findings = [
        finding("a", "at chance", 0.9),
        finding("b", "leaks", 0.2),
        finding("a", "refuted", 0.1, details={"case": "hinge"}),
        finding("b", "leaks", 0.4),
        finding("b", "as stated", 1.0),
        finding("a", "not refuted", 0.7),
    ]
    worst = worst_of_each(iter(findings))
    assert [(found.claim, found.verdict, found.measured.value) for found in worst] == [
        ("a", "refuted", 0.1),
        ("b", "leaks", 0.4),
    ]
    assert worst[0].details == {"case": "hinge", "worst of": 3}
    assert [found.measure for found in worst] == ["something; worst of 3"] * 2
    assert findings[2].details == {"case": "hinge"}


def test_a_claim_that_an_attack_works_is_shown_where_it_worked_least():
    (least,) = worst_of_each([finding(verdict="as stated", value=value) for value in (1.0, 0.7, 0.9)])
    assert (least.measured.value, least.measure) == (0.7, "something; worst of 3")
    failed = [finding(verdict="as stated", value=1.0), finding(verdict="undecided", value=0.1)]
    assert worst_of_each(failed)[0].verdict == "undecided"
    assert worst_of_each([finding()])[0].measure == "something"


def test_verdicts_grow_worse_from_chance_to_refuted():
    order = ["at chance", "not refuted", "as stated", "leaks", "refuted"]
    for better, worse in pairwise(order):
        (worst,) = worst_of_each([finding(verdict=worse, value=0.0), finding(verdict=better, value=1.0)])
        assert worst.verdict == worse


RUN = {
    "schema": "blindsight/run",
    "version": 1,
    "data": "digits",
    "path": None,
    "count": 300,
    "seed": 0,
    "features": "pixels",
    "components": 10,
    "attributes": "",
    "owners": 3,
    "sharing": None,
}


def written(folder, name, content):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    return folder


def audited_path(path):
    return audit_artefact(path, minutes=0.1, random_state=0)


def test_what_is_not_there_or_no_artefact(tmp_path):
    written(tmp_path / "both", "run.json", "{}")
    for path, word in [
        (tmp_path / "nowhere", "nowhere"),
        (written(tmp_path / "empty", "notes.txt", "hello"), "nothing"),
        (tmp_path / "empty" / "notes.txt", r"notes\.txt"),
        (written(tmp_path / "clusters", "model.npz", ""), r"run\.json"),
        (written(tmp_path / "both", "gallery.npz", ""), "run, index"),
    ]:
        with pytest.raises(InputError, match=word):
            audited_path(path)


def test_artefacts_are_recognised(tmp_path):
    for kind, name in (("run", "run.json"), ("index", "gallery.npz"), ("sift", "sift.npz")):
        folder = written(tmp_path / kind, name, "{}")
        assert recognise(folder) == Target(kind, folder)
    sift = tmp_path / "sift"
    with pytest.raises(InputError, match="is a file"):  # whose pictures are not known
        recognise(sift / "sift.npz")
    written(sift, "origin.npz", "")
    assert recognise(sift / "sift.npz") == Target("sift", sift, sift / "sift.npz")
    with pytest.raises(CorruptFileError, match=r"gallery\.json"):
        recognise(written(tmp_path / "older", "gallery.json", "{}"))
    with pytest.raises(InputError, match="learn network --record"):  # of a network it is not said how it was learned
        recognise(written(tmp_path / "network", "network.npz", ""))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (json.dumps(RUN | {"version": 2}), "version 2"),
        (json.dumps(RUN | {"schema": "other"}), "'other'"),
        (json.dumps({name: RUN[name] for name in RUN if name != "seed"}), "seed"),
        ("{", "damaged"),
        ("[]", "damaged"),
    ],
)
def test_runs_of_other_versions(tmp_path, content, sentence):
    with pytest.raises(CorruptFileError, match=sentence):
        audited_path(written(tmp_path / "run", "run.json", content))


def test_indexes_and_sifts_of_other_versions(tmp_path):
    folder = tmp_path / "index"
    build_gallery(Source("digits", count=60), BuildOptions("open", None, 1e-6, 8), folder)
    with pytest.raises(InputError, match="budget"):
        audit_artefact(folder, minutes=0, random_state=0)
    with pytest.raises(InputError, match="seed"):
        audit_artefact(folder, minutes=1, random_state=-1)
    write_arrays(folder / "gallery.npz", "blindsight/gallery.3", {}, {"ids": np.zeros(1)})
    with pytest.raises(CorruptFileError, match=r"gallery\.3"):
        audited_path(folder)
    sift = tmp_path / "sift"
    write_arrays(sift / "origin.npz", "blindsight/sift-origin.2", {}, {"seen": np.zeros((1, 16), np.uint8)})
    written(sift, "sift.npz", "")
    with pytest.raises(CorruptFileError, match=r"sift-origin\.2"):
        audited_path(sift)


def test_on_a_slow_machine_later_checks_make_less_effort_and_all_are_made(monkeypatch):
    heard, clock = [], [0.0]
    monkeypatch.setattr(checks, "perf_counter", lambda: clock[0])

    def slow(name):
        def run(effort):
            heard.append((name, effort))
            clock[0] += 2 * 10 * effort  # twice as long as expected
            return Evidence((finding(name),))

        return Check(name, 10, run)

    audit = audited([slow("a"), slow("b"), slow("c")], 1.0)
    assert heard == [("a", 2.0), ("b", 0.5), ("c", 0.5)]
    assert audit.efforts == dict(heard)
