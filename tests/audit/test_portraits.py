"""Four pictures of one face: drawn from a plain update it is like the original, from an aggregator's view it is not."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.audit import portraits as drawn
from blindsight.audit.portraits import SHOWN, portraits
from blindsight.data import load
from blindsight.data.catalogue import CatalogueEntry
from blindsight.errors import InputError, UnknownNameError

QUESTION = {"public": "smiling", "private": "male"}


@pytest.fixture(scope="module")
def faces():
    return load("faces", count=600, random_state=0, pictures_per_person=5)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(drawn, "_PROBES", 12)
    monkeypatch.setattr(drawn, "_COMPONENTS", 60)


def verdicts(evidence):
    """By view: the verdict on likeness, and the measured SSIM with that of the average picture."""
    likeness = [found for found in evidence.findings if "SSIM" in found.measure]
    return {found.details["view"]: (found.verdict, found.measured, found.details["blind"]) for found in likeness}


@pytest.mark.parametrize("scheme", ["block-dphe", "masks"])
def test_a_plain_update_shows_the_face_and_the_aggregator_does_not(faces, scheme):
    """The aggregator's pictures are less like the originals than the average face is.

    Keys come from the operating system. The mean SSIM of pictures that are decoded from noise lies more than eight of
    its deviations below that of the average face. It is called a leak with probability 0.005 at most, so that must
    come three times in a row: either false alarm is rarer than 1e-6.
    """
    for attempt in range(3):
        found = verdicts(portraits(faces, **QUESTION, scheme=scheme, random_state=attempt))
        if found["aggregator"][0] == "at chance":
            break
    verdict, measured, blind = found["plain"]
    assert verdict == "as stated"
    assert measured.low > blind + 0.1
    verdict, measured, blind = found["aggregator"]
    assert verdict == "at chance"
    assert measured.value < blind
    assert measured.value < found["sift"][1].value < found["plain"][1].value


def test_an_aggregator_of_plain_rounds_is_caught(faces):
    found = verdicts(portraits(faces, **QUESTION, scheme="plain"))
    assert found["aggregator"][0] == "refuted"
    # Nobody tells the aggregator which reading is right: it may be wrong about one of the twelve pictures.
    assert found["aggregator"][1].value == pytest.approx(found["plain"][1].value, abs=0.1)


def test_rows_are_pictures_with_their_likeness_and_other_seeds_show_others(faces):
    one, other = (portraits(faces, **QUESTION, scheme="masks", random_state=seed) for seed in (0, 1))
    assert len(one.pictures) == SHOWN
    for row in one.pictures:
        assert row.pictures.shape == (4, *faces.images.shape[1:])
        assert any((row.original == image).all() for image in faces.images)
        assert row.similarity[0] > row.blind
    assert (one.pictures[0].original != other.pictures[0].original).any()
    assert {found.details["view"] for found in one.findings} == {"plain", "aggregator", "sift"}


def test_every_person_has_one_probe_and_is_in_the_gallery(faces, monkeypatch):
    seen, whole = [], drawn.four_pictures

    def watched(probes, public, **named):
        seen.append((probes, named))
        return whole(probes, public, **named)

    monkeypatch.setattr(drawn, "four_pictures", watched)
    portraits(faces, **QUESTION, scheme="masks")
    ((probes, named),) = seen
    assert len(np.unique(probes.persons)) == len(probes) == 12
    assert set(named["gallery"].persons) == set(probes.persons)


def marked(faces):
    """Return pictures of persons that anybody recognises: each has a shade of its own; nobody labelled them."""
    number = np.unique(faces.persons, return_inverse=True)[1]
    images = faces.images.copy()
    codes = np.random.default_rng(0).integers(0, 2, (number.max() + 1, 8, 8)) * 255
    images[:, :32, :32] = np.kron(codes, np.ones((4, 4)))[number][..., None]
    return replace(faces, name="photographs", images=images, attributes=None, attribute_names=None)


def test_identity_is_judged_on_photographs_where_there_are_some(faces):
    evidence = portraits(faces, **QUESTION, scheme="masks", photographs=marked(faces))
    identity = [row for row in evidence.findings if "right names" in row.measure]
    assert [row.details["view"] for row in identity] == ["plain", "aggregator"]  # no labels: no sift
    assert all(row.attack.endswith("on photographs") for row in identity)
    assert identity[0].details["originals"] == 12
    assert not evidence.notes
    assert len(evidence.pictures) == SHOWN


def test_where_the_originals_are_not_recognised_nothing_is_said_of_identity(faces):
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, faces.images.shape, dtype=np.uint8)
    evidence = portraits(faces, **QUESTION, scheme="masks", photographs=replace(marked(faces), images=noise))
    assert not [row for row in evidence.findings if "right names" in row.measure]
    (note,) = evidence.notes
    assert "does not recognise the originals either" in note


def test_photographs_are_used_only_if_they_lie_in_the_cache(monkeypatch):
    monkeypatch.setattr(drawn, "load", lambda name: pytest.fail("nothing may be fetched"))
    assert drawn.cached_photographs() is None
    monkeypatch.setattr(CatalogueEntry, "is_here", lambda entry: entry.name == "orl")
    monkeypatch.setattr(drawn, "load", lambda name: name)
    assert drawn.cached_photographs() == "orl"


def test_who_is_on_the_pictures_must_be_known(faces):
    with pytest.raises(UnknownNameError, match="unknown attribute 'malle'"):
        portraits(faces, public="smiling", private="malle")
    with pytest.raises(InputError, match="3 persons with 2 pictures"):
        portraits(faces.take(np.unique(faces.persons, return_index=True)[1]), **QUESTION)
