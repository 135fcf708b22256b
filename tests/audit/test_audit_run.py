"""The audit of a run finds what it gives away, and nothing in what an aggregator of a sound scheme holds."""

import json
from dataclasses import replace

import numpy as np
import pytest

from blindsight.audit.artefacts import audit_artefact
from blindsight.audit.recordedview import attack_view, view_finding
from blindsight.data import load, pipeline
from blindsight.errors import CorruptFileError, InputError
from blindsight.learn.aggregation import open_session
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.recording import RecordedRound
from blindsight.learn.study import Study, divide
from blindsight.rng import seeded_bytes

ABOUT = {
    "schema": "blindsight/run",
    "version": 1,
    "data": "digits",
    "path": None,
    "count": 500,
    "seed": 0,
    "features": "pixels",
    "components": 15,
    "attributes": "",
    "owners": 3,
    "sharing": None,
}


@pytest.fixture(scope="module")
def study():
    digits = load("digits", count=500, random_state=0)
    made_by = pipeline("pixels", components=15, random_state=0)
    return Study.prepare(digits, divide(digits, owners=3, random_state=0), made_by)


@pytest.fixture(scope="module")
def learn(study, tmp_path_factory):
    def folder(scheme, **options):
        path = tmp_path_factory.mktemp("run") / scheme
        learner = FederatedClassifier(
            scheme, rounds=1, key_bits=1024, insecure=True, classes=study.classes, record=True, **options
        )
        learner.fit(study.owners, public=study.public)
        learner.model_.save(path / "model.npz")
        learner.recorded_.save(path / "recorded-round.npz")
        (path / "run.json").write_text(json.dumps(ABOUT))
        return path

    return folder


def audited(folder, **options):
    return audit_artefact(folder, minutes=0.3, random_state=0, **options)


def by_attack(audit, attack):
    rows = [row for row in audit.findings if attack in row.attack]
    assert rows, [row.attack for row in audit.findings]
    return rows


def test_plain_run_leaks(learn):
    audit = audited(learn("plain", sparsity=0.5))
    (view,) = by_attack(audit, "recorded view")
    assert (view.verdict, view.measured.value > 0.999) == ("leaks", True)
    assert view.details["owners at chance"] == 0
    singles = by_attack(audit, "reading the sum")[0]
    assert (singles.verdict, singles.measured.value) == ("leaks", 1.0)
    assert by_attack(audit, "all users but one")[0].verdict == "as stated"
    assert any("pictures" in note and "11x11" in note for note in audit.notes)  # too small to be drawn


@pytest.mark.parametrize("scheme", ["masks", "block-dphe"])
def test_sound_run_tells_no_more_than_its_statement(learn, scheme):
    audit = audited(learn(scheme, sparsity=0.5))
    # Of 160 weights a guess independent of them has a cosine beyond .75 less than once in 10^15; some 2,000 are tried.
    views = [row for row in audit.findings if "view" in row.attack]
    assert len(views) == (2 if scheme == "block-dphe" else 1)  # with the set-up, which is played again
    assert all(row.measured.value < 0.75 for row in views)
    others = [row for row in audit.findings if row not in views]
    assert {row.verdict for row in others} <= {"as stated", "not refuted", "at chance", "leaks"}
    read = {row.attack: row.measured.value for row in others if "knows its update" in row.claim}
    assert read["all users but one"] == 1.0
    if scheme == "masks":
        assert read["aggregator and one user fewer than the threshold"] == 0.0


def test_minimum_of_contributors_is_seen(learn):
    audit = audited(learn("dphe", sparsity=0.5, minimum_per_position=3))
    for row in (*by_attack(audit, "reading the sum"), *by_attack(audit, "subtracts its own")):
        assert (row.verdict, row.measured.value) == ("not refuted", 0.0)


def test_run_without_a_recording_says_how_to_record(learn):
    folder = learn("plain")
    (folder / "recorded-round.npz").unlink()
    audit = audited(folder)
    assert any("--record" in note for note in audit.notes)
    assert {row.attack for row in audit.findings} == {"loss threshold", "likelihood ratio, online, 8 shadows"}


def test_changed_or_missing_data_are_a_note(learn):
    folder = learn("plain")
    audit = audited(folder, data=load("digits", count=500, random_state=1))
    assert any("is not what this run was learned from" in note for note in audit.notes)
    assert by_attack(audit, "recorded view")
    about = ABOUT | {"data": "csv", "path": str(folder / "gone.csv")}
    (folder / "run.json").write_text(json.dumps(about))
    assert any("gone.csv" in note for note in audited(folder).notes)


def test_damaged_recording_is_refused(learn):
    folder = learn("plain")
    (folder / "recorded-round.npz").write_bytes(b"PK")
    with pytest.raises(CorruptFileError, match="recorded-round.npz"):
        audited(folder)


def recorded(scheme, updates, seed=0):
    """Return what an aggregator receives, with all randomness fixed: these tests cannot fail by chance."""
    received = []
    session = open_session(
        scheme,
        users=tuple(updates),
        dimension=120,
        key_bits=1024,
        insecure=True,
        source=seeded_bytes(seed),
        record=lambda party, message: received.append(message) if party == "aggregator" else None,
    )
    session.round(updates, 0)
    return tuple(received)


@pytest.fixture(scope="module")
def updates():
    rng = np.random.default_rng(0)
    drawn = {f"owner {number}": rng.normal(0.5, 1.0, size=120) for number in (1, 2, 3)}
    return {owner: np.where(rng.random(120) < 0.3, update, 0.0) for owner, update in drawn.items()}


@pytest.mark.parametrize("scheme", ["masks", "bfv", "dphe", "block-dphe"])
def test_views_of_sound_schemes_are_at_chance(updates, scheme):
    leaks = attack_view(recorded(scheme, updates), updates, random_state=0)
    assert view_finding(leaks, scheme, "view").verdict == "at chance"
    assert [leak.owner for leak in leaks] == list(updates)


def test_update_in_the_clear_refutes_a_scheme(updates):
    leaks = attack_view(recorded("plain", updates), updates, random_state=0)  # masks that were forgotten
    row = view_finding(leaks, "masks", "view")
    assert (row.verdict, row.measured.value > 0.999) == ("refuted", True)


def test_faint_trace_of_an_update_is_found(updates):
    rng = np.random.default_rng(1)
    size = 1000
    sent = {owner: rng.normal(size=size) for owner in updates}
    blurred = {owner: 0.25 * update + rng.normal(size=size) for owner, update in sent.items()}
    leaks = attack_view(_plain(blurred, size), sent, random_state=0)
    assert all(leak.values.score < 0.5 and not leak.at_chance for leak in leaks)


def test_chance_is_called_a_leak_as_rarely_as_stated(updates):
    rng = np.random.default_rng(2)
    sent = {owner: np.abs(rng.normal(size=50)) for owner in updates}  # all signs alike, as formats have them
    smallest = []
    for seed in range(40):
        other = {owner: rng.normal(size=50) for owner in updates}
        leaks = attack_view(_plain(other, 50), sent, false_alarm=0.2, random_state=seed)
        smallest.append(min(leak.values.p_value for leak in leaks))
    # Each round has three tests at 1/30 each: 12 alarms or more of 40 at a rate of .1 happen with 6 in 10^4; seeds are
    # fixed.
    assert sum(p <= 1 / 30 for p in smallest) < 12


def _plain(updates, dimension):
    received = []
    session = open_session(
        "plain",
        users=tuple(updates),
        dimension=dimension,
        record=lambda party, message: received.append(message) if party == "aggregator" else None,
    )
    session.round(updates, 0)
    return tuple(received)


def test_round_of_zeros_has_nothing_to_find():
    nothing = RecordedRound(
        scheme="plain",
        minimum_per_position=1,
        messages={},
        sent={"a": np.zeros(3)},
        total=np.zeros(3),
        withheld=np.zeros(0, np.int64),
        before=np.zeros((1, 3)),
    )
    with pytest.raises(InputError, match="sent zeros"):
        attack_view((), nothing.sent)
    with pytest.raises(InputError, match="no message of 'a'"):
        attack_view((), replace(nothing, sent={"a": np.ones(3)}).sent)
