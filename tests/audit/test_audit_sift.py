"""The audit of a sift: leaks and hiding places are found, noise is not refuted. All seeds are fixed: nothing varies."""

import json
from dataclasses import replace

import numpy as np
import pytest

from blindsight.audit.artefacts import audit_artefact
from blindsight.audit.ofsift import SiftAudit
from blindsight.audit.smuggling import DIGITS, search_hiding_places
from blindsight.data.dataset import Dataset
from blindsight.data.features import pipeline
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.progress import silent
from blindsight.sift.cheats import collinear_pair, low_digits
from blindsight.sift.fitted import EVIDENCE, VERIFIED, FittedSift, fingerprint, picture_digests
from blindsight.sift.lossbench import QUICK
from blindsight.sift.policy import Policy
from blindsight.sift.quantiser import Quantiser
from blindsight.sift.sift import LinearSift
from blindsight.sift.siftfile import save_sift
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


def audited(folder, data, minutes=0.1):
    return audit_artefact(folder, minutes=minutes, random_state=0, data=data)


def by_attack(audit, words):
    rows = [row for row in audit.findings if words in row.attack]
    assert rows, ([row.attack for row in audit.findings], audit.notes)
    return rows


def test_sift_that_leaks_is_found(tmp_path):
    data = collection()
    audit = audited(written(tmp_path, linear({0: 1, 1: 1}), data), data)
    (row,) = by_attack(audit, "1,400 rows it was not made from")
    assert (row.verdict, row.measured.low > 0.1) == ("leaks", True)
    assert "reject" in row.details["verdict of the verifier"]
    assert "not verified" in audit.subject
    (together,) = by_attack(audit, "side by side")
    assert together.verdict == "leaks"  # the sift was not accepted by itself
    assert any("several pictures of each person" in note for note in audit.notes)


def test_sift_that_hides_is_not_refuted(tmp_path):
    data = collection()
    audit = audited(written(tmp_path, linear({0: 1}), data), data)
    assert {row.verdict for row in audit.findings} == {"not refuted"}
    assert max(abs(row.measured.value) for row in audit.findings) < 0.1


def test_accepted_sift_is_held_to_its_threshold(tmp_path):
    data = collection()
    folder = written(tmp_path, linear({0: 1, 1: 1}), data)
    save_sift(FittedSift.load(folder).sift, folder / VERIFIED)
    (folder / EVIDENCE).write_text(json.dumps({"setting": {"threshold": 0.05}}))
    audit = audited(folder, data)
    assert by_attack(audit, "rows it was not made from")[0].verdict == "refuted"
    assert "(allowed: 0.05)" in audit.findings[0].measure
    assert "(accepted)" in audit.subject
    assert by_attack(audited(folder / "sift.npz", data), "rows it was not made from")[0].verdict == "leaks"
    (folder / EVIDENCE).write_text("{}")
    with pytest.raises(CorruptFileError, match="does not say by which threshold"):
        audited(folder, data)


def test_symbols_are_certified(tmp_path):
    data = collection()
    sift = linear({0: 1}, Quantiser(np.array([[1.0]], dtype=np.float32)))
    (row,) = by_attack(audited(written(tmp_path, sift, data), data), "every attacker")
    assert row.verdict == "not refuted"
    assert 0 <= row.measured.value < row.measured.high < 0.1
    assert "present or future" in row.proven


def test_frames_add_up(tmp_path):
    data = collection(rows=3500, per_person=10)
    audit = audited(written(tmp_path, linear({0: 1, 1: 0.25}), data), data, minutes=0.2)
    rows = by_attack(audit, "frames of a person")
    assert {row.attack.split(" frames")[0] for row in rows} == {"an app with 2", "an app with 5", "an app with 10"}
    single = by_attack(audit, "rows it was not made from")[0]
    assert max(row.measured.value for row in rows) > single.measured.value + 0.05


def test_decoders_learn_from_other_persons_than_those_they_draw(tmp_path):
    data = collection(rows=1500, per_person=5)
    audit = SiftAudit(FittedSift.load(written(tmp_path, linear({0: 1}), data)), data, False, 0.1, 0, silent)
    shown, others = audit._apart()
    assert len(shown) == 24
    assert not np.intersect1d(audit.unseen.persons[shown], audit.unseen.persons[others]).size
    few = replace(audit, data=data.take(range(100, 150)))
    with pytest.raises(InputError, match="24 pictures are drawn, and 24 or more of other people"):
        few._apart()


@pytest.mark.parametrize(("cheat", "place"), [(collinear_pair, "whitened"), (low_digits, DIGITS)])
def test_cheats_are_found_where_they_hide(cheat, place):
    rng = np.random.default_rng(1)
    shown, hidden = rng.integers(0, 2, (2, 2000))
    X = np.rint(20 * rng.normal(size=(2000, WIDTH)))
    X[:, 0] += 60 * shown
    X[:, 1] += 60 * hidden
    made, judged = slice(0, 800), slice(800, None)
    released = cheat(X[made], shown[made], hidden[made]).release(X[judged])
    found = search_hiding_places(released, {"male": hidden[judged]}, Verifier(QUICK), QUICK[0]).found
    assert found[place].verdict == "reject"
    assert found["standardised"].priv_loss < found[place].priv_loss - 0.1


def test_without_a_collection_or_labels_nothing_can_be_said(tmp_path):
    data = collection()
    folder = written(tmp_path, linear({0: 1}), data)
    with pytest.raises(InputError, match="name a collection with labels of what it hides"):
        audited(folder, None)
    unlabelled = replace(data, attribute_names=("smiling", "glasses"))
    with pytest.raises(UnknownNameError, match="unknown attribute 'male'"):
        audited(folder, unlabelled)


def test_features_of_another_collection_are_refused(tmp_path):
    data = collection()
    audit = audited(written(tmp_path, linear({0: 1}), data), replace(data, name="other"))
    assert not audit.findings
    assert all("ready-made features of drawn" in note for note in audit.notes[:3])
