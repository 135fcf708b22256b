"""Apps that cheat the published verifier read what it does not see; PPLS as published meets stronger attackers."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.data import load
from blindsight.papers.sensorsift import claims
from blindsight.papers.sensorsift.cheats import Cheat
from blindsight.papers.sensorsift.claims import cheat_findings, grey_pixels, parts_of, published_sift_findings
from blindsight.sift.trial import QUICK
from blindsight.sift.verify import Verifier

QUESTION = {"public": "smiling", "private": "male"}


@pytest.fixture(scope="module")
def faces():
    return load("faces", count=1000, random_state=0, pictures_per_person=5)


@pytest.fixture(scope="module")
def cheats(faces):
    """All is seeded: the same faces, splits and attackers every time."""
    return cheat_findings(faces, **QUESTION)


def test_every_cheat_gets_past_the_published_verifier_and_is_read(cheats):
    assert len(cheats) == 3
    for found, name in zip(cheats, ("collinear pair", "low digits", "XOR with a hash"), strict=True):
        assert found.claim.endswith(f"({name})")
        assert (found.verdict, found.source) == ("refuted", "Enev et al. 2012")
        assert found.details["verdict of the paper's verifier"] != "reject"
        assert found.details["PrivLoss the verifier finds"] < 0.1
        assert 0.1 < found.measured.low < found.measured.value < found.measured.high  # beyond the threshold


def harmless(X, public, private):
    """Release a number that has nothing to do with anybody, and guess."""
    return Cheat("nothing", lambda rows: np.arange(len(rows), dtype=np.float32)[:, None] % 7, lambda z: z[:, 0] > 3)


def blatant(X, public, private):
    """Release the very score of the private attribute: the verifier must see that."""
    made = claims.collinear_pair(X, public, private)
    reveal = lambda rows: (made.release(rows)[:, 1:].astype(float) - made.release(rows)[:, :1]) * 1e4  # noqa: E731
    return Cheat("blatant", reveal, lambda z: made.decode(np.hstack([np.zeros_like(z), z / 1e4])))


@pytest.mark.parametrize(("make", "verdict"), [(harmless, "accept"), (blatant, "reject")])
def test_the_verifier_is_not_refuted_by_what_leaks_nothing_nor_by_what_it_rejects(faces, monkeypatch, make, verdict):
    monkeypatch.setattr(claims, "CHEATS", (make,))
    (found,) = cheat_findings(faces, **QUESTION)
    assert found.details["verdict of the paper's verifier"] == verdict
    assert found.verdict == "not refuted"
    assert (found.measured.low > 0.1) == (make is blatant)


def test_who_made_a_sift_and_who_judges_it_share_no_person(faces):
    developer, judged = parts_of(faces, grey_pixels(faces), **QUESTION, random_state=1)
    assert not np.intersect1d(developer.persons, judged.persons).size
    assert len(developer.features) == pytest.approx(400, abs=10)
    assert len(developer.features) + len(judged.features) == 1000


def test_unknown_answers_are_nobodys_success(faces, cheats, monkeypatch):
    attributes = faces.attributes.copy()
    attributes[::9, faces.attribute_names.index("male")] = -1
    monkeypatch.setattr(claims, "CHEATS", claims.CHEATS[:1])
    (found,) = cheat_findings(replace(faces, attributes=attributes), **QUESTION)
    assert found.verdict == "refuted"
    assert found.measured.high - found.measured.low > cheats[0].measured.high - cheats[0].measured.low


def test_grey_pixels_are_means_of_blocks_in_whole_numbers(faces):
    few = faces.take(range(4))
    rows = grey_pixels(few)
    assert rows.shape == (4, 256)
    assert (rows == np.rint(rows)).all()
    block = few.images.shape[1] // 16
    first = few.images[2, 3 * block : 4 * block, 5 * block : 6 * block].mean()
    assert rows[2].reshape(16, 16)[3, 5] == pytest.approx(first, abs=0.51)


@pytest.mark.parametrize(
    ("rows", "shown", "verdict"), [(2000, 2.0, "leaks"), (4000, 0.0, "not refuted"), (300, 0.2, "undecided")]
)
def test_ppls_is_judged_by_what_was_measured(rows, shown, verdict):
    rng = np.random.default_rng(0)
    hidden = rng.integers(0, 2, rows)
    released = rng.normal(size=(rows, 1)) + shown * hidden[:, None]
    row = claims._ppls_finding(Verifier(QUICK[:1]).verify(released, {"male": hidden}, certified=False))
    assert (row.verdict, row.source) == (verdict, "after Enev et al. 2012")


@pytest.mark.slow
def test_ppls_as_published_meets_stronger_attackers_two_apps_together_and_many_frames():
    """A row for the attackers, one for the apps, and two for five frames: read side by side, and averaged."""
    faces = load("faces", count=3000, random_state=0, pictures_per_person=5)
    stronger, pooled, *frames = published_sift_findings(faces, **QUESTION)
    # Seeded, so the same every time: the best attacker reads .075, and 1,800 faces do not tell on which side of .1.
    assert stronger.verdict == "undecided"
    assert 0.02 < stronger.measured.value < 0.1 < stronger.measured.high
    assert "2 sifts" in pooled.claim
    assert len(frames) == 2
    assert all("5 frames" in each.claim for each in frames)
    assert frames[0].measured.value > stronger.measured.value - 0.05
    for each in (stronger, pooled, *frames):
        assert each.measured.low <= each.measured.value <= each.measured.high
