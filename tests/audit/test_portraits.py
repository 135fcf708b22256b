"""Four pictures of one face: drawn from a plain update it is like the original, from an aggregator's view it is not."""

import numpy as np
import pytest

from blindsight.audit import portraits as drawn
from blindsight.audit.portraits import SHOWN, portraits
from blindsight.data import load
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
    assert found["aggregator"][1].value == pytest.approx(found["plain"][1].value, abs=0.05)


def test_rows_are_pictures_with_their_likeness_and_other_seeds_show_others(faces):
    one, other = (portraits(faces, **QUESTION, scheme="masks", random_state=seed) for seed in (0, 1))
    assert len(one.pictures) == SHOWN
    for row in one.pictures:
        assert row.pictures.shape == (4, *faces.images.shape[1:])
        assert any((row.original == image).all() for image in faces.images)
        assert row.similarity[0] > row.blind
    assert (one.pictures[0].original != other.pictures[0].original).any()
    assert {found.details["view"] for found in one.findings} == {"plain", "aggregator", "sift"}
    assert len(one.findings) == 6  # likeness and identity


def test_who_is_on_the_pictures_must_be_known(faces):
    with pytest.raises(UnknownNameError, match="unknown attribute 'malle'"):
        portraits(faces, public="smiling", private="malle")
    with pytest.raises(InputError, match="3 persons with 2 pictures"):
        portraits(faces.take(np.unique(faces.persons, return_index=True)[1]), **QUESTION)
