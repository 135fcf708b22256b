"""The audit of a sift: leaks and hiding places are found, noise is not refuted.

All seeds are fixed: nothing varies.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from blindsight.audit.artefacts import audit_artefact, recognise
from blindsight.audit.sift_audit import (
    DIGITS,
    SiftAudit,
    _certificate_finding,
    average_frames,
    loss_finding,
    plan_sift,
    pool_sifts,
    search_hiding_places,
)
from blindsight.data import load, pipeline
from blindsight.data.dataset import Dataset
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.papers.sensorsift.cheats import collinear_pair, low_digits
from blindsight.progress import silent
from blindsight.sift.attackers import VIEWS, Attacker
from blindsight.sift.fitted import EVIDENCE, VERIFIED, FittedSift, fingerprint, picture_digests
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import LinearSift, Quantiser, save_sift
from blindsight.sift.trial import QUICK
from blindsight.sift.verdict import AttackResult
from blindsight.sift.verdict import Interval as Ends
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

WIDTH = 6


def collection(rows=1500, per_person=1):
    """Feature 0 shows the public attribute, feature 1 the private one, the others are noise."""
    rng = np.random.default_rng(0)
    people = rows // per_person
    shown, hidden = (np.repeat(rng.integers(0, 2, people), per_person) for _ in range(2))
    X = rng.normal(size=(rows, WIDTH))
    X[:, 0] += 2 * shown
    X[:, 1] += 2 * hidden
    return Dataset(
        "drawn",
        "none",
        "here",
        features=X.astype(np.float32),
        attributes=np.stack([shown, hidden], axis=1).astype(np.int8),
        attribute_names=("smiling", "male"),
        persons=np.repeat(np.arange(people), per_person),
    )


@pytest.fixture(scope="module")
def data():
    return collection()


def linear(weights, quantiser=None):
    matrix = np.zeros((WIDTH, 1), dtype=np.float32)
    for feature, weight in weights.items():
        matrix[feature] = weight
    zero, one = np.zeros(WIDTH, dtype=np.float32), np.ones(WIDTH, dtype=np.float32)
    return LinearSift(zero, one, matrix, quantiser)


def written(folder, sift, data):
    made_by = pipeline("thumbnail")
    named = replace(sift, pipeline=fingerprint(data, made_by))
    seen = picture_digests(data)[:100]
    FittedSift(named, Policy(("smiling",), ("male",)), "thumbnail", made_by, seen).save(folder)
    return folder


def audited(folder, data, minutes=0.065):
    """In so short a time, with the quick attackers."""
    return audit_artefact(folder, minutes=minutes, random_state=0, data=data)


def checked(path, data, check):
    """Make one check alone."""
    checks = {each.name: each for each in plan_sift(recognise(path), random_state=0, data=data).checks}
    return checks[check].run(0.25).findings


def by_attack(audit, words):
    rows = [row for row in audit.findings if words in row.attack]
    assert rows, ([row.attack for row in audit.findings], audit.notes)
    return rows


def test_sift_that_leaks_is_found(tmp_path, data):
    audit = audited(written(tmp_path, linear({0: 1, 1: 1}), data), data)
    (row,) = by_attack(audit, "1,400 rows")
    assert (row.verdict, row.measured.low > 0.1) == ("leaks", True)
    assert "reject" in row.details["verdict of the verifier"]
    assert "not verified" in audit.subject
    (together,) = by_attack(audit, "side by side")
    assert together.verdict == "leaks"  # the sift was not accepted by itself
    assert any("several pictures" in note for note in audit.notes)


def test_sift_that_hides_is_not_refuted_by_the_strongest_attackers(tmp_path, data):
    plan = plan_sift(recognise(written(tmp_path, linear({0: 1}), data)), random_state=0, data=data)
    possible = [check for check in plan.checks if check.name != "several frames of a person"]
    findings = [row for check in possible for row in check.run(0.6).findings]  # with all attackers
    assert {row.verdict for row in findings} == {"not refuted"}
    assert max(abs(row.measured.value) for row in findings) < 0.1


def test_accepted_sift_is_held_to_its_threshold(tmp_path, data):
    folder = written(tmp_path, linear({0: 1, 1: 1}), data)
    save_sift(FittedSift.load(folder).sift, folder / VERIFIED)
    (folder / EVIDENCE).write_text(json.dumps({"setting": {"threshold": 0.05}}))
    assert "(accepted)" in plan_sift(recognise(folder), random_state=0, data=data).subject
    row = checked(folder, data, "verification")[0]
    assert (row.verdict, "0.05" in row.measure) == ("refuted", True)
    assert checked(folder / "sift.npz", data, "verification")[0].verdict == "leaks"
    for damaged in ("{}", "[1]"):
        (folder / EVIDENCE).write_text(damaged)
        with pytest.raises(CorruptFileError, match="threshold"):
            audited(folder, data)


def test_symbols_are_certified(tmp_path, data):
    sift = linear({0: 1}, Quantiser(np.array([[1.0]], dtype=np.float32)))
    (row,) = [
        row for row in checked(written(tmp_path, sift, data), data, "verification") if "every attacker" in row.attack
    ]
    assert row.verdict == "not refuted"
    assert 0 <= row.measured.value < row.measured.high < 0.1


def test_a_row_says_why_nothing_is_decided_though_its_interval_is_below_the_limit(data):
    numbers = np.random.default_rng(0).normal(size=(len(data), 8))  # noise, but eight of them
    labels = {"male": data.attribute("male")}
    row = search_hiding_places(numbers, labels, Verifier(QUICK[:1]), QUICK[0], policy="x")
    assert (row.verdict, row.measured.high < 0.1) == ("undecided", True)
    assert "8 numbers are too many for attackers who learn from 750 rows" in row.measure


def test_only_the_sift_is_judged_by_what_is_drawn_of_it(tmp_path):
    faces = load("faces", count=300, random_state=0)
    made_by = pipeline("pixels", components=10, random_state=0).fit(faces.images)
    features = made_by.transform(faces.images)
    sift = PPLS(2).fit(features, faces.attribute("smiling"), faces.attribute("male")).sift_
    named = replace(sift, pipeline=fingerprint(faces, made_by))
    given = FittedSift(named, Policy(("smiling",), ("male",)), "pixels", made_by, picture_digests(faces)[:100])
    evidence = SiftAudit(given, faces, False, 0.1, 0, silent).drawings(1.0)
    assert [row.details["view"] for row in evidence.findings] == ["sift"]  # nobody learned anything by a scheme
    assert len(evidence.pictures) == 3  # the others are there to compare


def test_frames_add_up(tmp_path):
    data = collection(rows=3000, per_person=10)
    folder = written(tmp_path, linear({0: 1, 1: 0.25}), data)
    rows = checked(folder, data, "several frames of a person")
    assert {row.attack.split(" frames")[0] for row in rows} == {"an app with 2", "an app with 5", "an app with 10"}
    single = checked(folder, data, "verification")[0]
    assert max(row.measured.value for row in rows) > single.measured.value + 0.05


def test_decoders_learn_from_other_persons_than_those_they_draw(tmp_path):
    data = collection(rows=1500, per_person=5)
    audit = SiftAudit(FittedSift.load(written(tmp_path, linear({0: 1}), data)), data, False, 0.1, 0, silent)
    shown, others = audit._apart()
    assert len(shown) == 24
    assert not np.intersect1d(audit.unseen.persons[shown], audit.unseen.persons[others]).size
    with pytest.raises(InputError, match="24"):
        replace(audit, data=data.take(range(100, 150)))._apart()


@pytest.mark.parametrize(("cheat", "place"), [(collinear_pair, "whitened"), (low_digits, DIGITS)])
def test_cheats_are_found_where_they_hide(cheat, place):
    rng = np.random.default_rng(1)
    shown, hidden = rng.integers(0, 2, (2, 2000))
    X = np.rint(20 * rng.normal(size=(2000, WIDTH)))
    X[:, 0] += 60 * shown
    X[:, 1] += 60 * hidden
    made, judged = slice(0, 800), slice(800, None)
    released = cheat(X[made], shown[made], hidden[made]).release(X[judged])
    found = search_hiding_places(released, {"male": hidden[judged]}, Verifier(QUICK), QUICK[0], policy="it")
    assert (found.verdict, found.attack.rpartition(": ")[2]) == ("leaks", place)
    assert found.details["standardised"] < found.details[place] - 0.1


def test_a_row_shows_the_attack_that_bears_its_verdict(monkeypatch):
    """One attribute is read better by an estimate on few rows, another one surely; so are two hiding places."""
    found = LIGHT.verify(*noisy(0), certified=False)
    words = {"view": "as is", "tuned": False, "limit": 1.0, "mean_precision": 0.5, "positives": 9, "negatives": 9}
    sure = AttackResult(attribute="sure", attacker="a", balanced_accuracy=0.65, interval=Ends(0.62, 0.68), **words)
    vague = AttackResult(attribute="vague", attacker="b", balanced_accuracy=0.7, interval=Ends(0.5, 0.9), **words)
    row = loss_finding(
        replace(found, results=(vague, sure)), claim="it", source="nobody", proven="nothing", attack="looking"
    )
    assert (row.verdict, row.measured.low) == ("leaks", pytest.approx(0.12))
    assert "of sure" in row.measure

    def by_view(verifier, *given, **named):
        return replace(found, results=(sure if verifier.attackers[0].view == VIEWS[0] else vague,))

    monkeypatch.setattr(Verifier, "verify", by_view)
    row = search_hiding_places(*noisy(0), LIGHT, LIGHT.attackers[0], policy="it")
    assert (row.verdict, row.attack) == ("leaks", f"a: {VIEWS[0]}")


def test_without_a_collection_its_labels_or_its_features_nothing_can_be_said(tmp_path, data):
    folder = written(tmp_path, linear({0: 1}), data)
    with pytest.raises(InputError, match="--data"):
        audited(folder, None)
    with pytest.raises(UnknownNameError, match="'male'"):
        audited(folder, replace(data, attribute_names=("smiling", "glasses")))
    audit = audited(folder, replace(data, name="other"))
    assert {row.verdict for row in audit.findings} == {"not run"}
    assert all("features of drawn" in note for note in audit.notes[:3])


LIGHT = Verifier([Attacker("logistic", lambda seed: LogisticRegression(class_weight="balanced"))])


def noisy(seed, rows=1000):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 1)), {"male": rng.integers(0, 2, rows).astype(np.int8)}


def app(*weights):
    return linear(dict(enumerate(weights)))


@pytest.fixture(scope="module")
def pool():
    """Feature 0 is noise, feature 1 shows the attribute, the others are noise."""
    rng = np.random.default_rng(1)
    hidden = rng.integers(0, 2, 4000).astype(np.int8)
    X = rng.normal(size=(4000, WIDTH))
    X[:, 1] = 2 * hidden - 1 + 0.5 * X[:, 1]
    return VerificationSet(X.astype(np.float32), {"hidden": hidden})


def test_two_accepted_sifts_give_the_attribute_away_together(pool):
    row = pool_sifts([app(1, 0.1), app(1, -0.1)], ["hidden"], pool, LIGHT)  # the difference shows it
    assert row.details["PrivLoss of each alone"].count("accept") == 2
    assert row.measured.low > 0.4
    assert row.verdict == "as stated"


def test_a_sift_that_leaks_by_itself_has_no_statement_that_admits_more(pool):
    assert pool_sifts([app(0, 1), app(1)], ["hidden"], pool, LIGHT).verdict == "leaks"


def test_too_few_rows_decide_nothing(pool):
    few = VerificationSet(pool.features[:300], {"hidden": pool.labels["hidden"][:300]})
    assert pool_sifts([app(0, 0, 1), app(0, 0, 0, 1)], ["hidden"], few, LIGHT).verdict == "undecided"
    with pytest.raises(InputError, match="got 1"):
        pool_sifts([app(1)], ["hidden"], pool, LIGHT)
    with pytest.raises(UnknownNameError, match="hiden"):
        pool_sifts([app(1), app(0, 1)], ["hiden"], pool, LIGHT)


def test_sifts_of_noise_tell_nothing_together(pool):
    # 2,000 rows deviate by .011: PrivLoss beyond .06 less than once in 10^7; the limit stays below .1.
    row = pool_sifts([app(0, 0, 1), app(0, 0, 0, 1)], ["hidden"], pool, LIGHT)
    assert row.verdict == "not refuted"
    assert abs(row.measured.value) < 0.06


def test_an_app_that_averages_frames_reads_what_one_does_not_show():
    rng = np.random.default_rng(0)
    hidden = np.repeat(rng.integers(0, 2, 1500), 10).astype(np.int8)
    released = rng.normal(size=(15000, 1))
    released[:, 0] += 0.3 * hidden  # one frame: balanced accuracy .56; the mean of ten: .68
    given = released, {"hidden": hidden}, np.repeat(np.arange(1500), 10), LIGHT
    rows = average_frames(*given, frames=(1, 10))
    assert [row.attack for row in rows] == [
        "an app with 10 frames of a person, concatenated",
        "an app with 10 frames of a person, mean",
    ]
    # .18 is true of ten; 750 test windows deviate by .017: below .1 less than once in 10^6.
    assert min(row.measured.value for row in rows) > 0.1
    assert {row.verdict for row in rows} == {"as stated"}
    assert "(accept)" in rows[0].details["PrivLoss of one frame"]
    alone = average_frames(*given, frames=(10,))  # nobody knows whether one frame is accepted
    assert {row.verdict for row in alone} == {"leaks"}


# ---- the published verifier


@pytest.fixture(scope="module")
def faces():
    return load("faces", count=1000, random_state=0, pictures_per_person=5)


def test_a_certificate_beyond_the_threshold_acquits_nobody():
    symbols = np.random.default_rng(0).integers(0, 2, (1000, 1))
    for threshold, verdict in ((0.3, "not refuted"), (0.01, "undecided")):
        found = Verifier(LIGHT.attackers, threshold).verify(symbols, noisy(1)[1], certified=True)
        assert _certificate_finding(found, 0).verdict == verdict
