"""Faces are drawn from a plain update and not from what an aggregator holds; identity is judged on photographs."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.audit.inversion import SHOWN
from blindsight.data import faces as draw_faces
from blindsight.data import load
from blindsight.data.catalogue import CatalogueEntry
from blindsight.errors import InputError, UnknownNameError
from blindsight.papers import portraits as drawn
from blindsight.papers.portraits import portraits, split_persons


def test_a_split_shares_no_person_with_the_public_and_leaves_everybody_a_probe_and_a_picture_in_the_gallery():
    dataset = draw_faces(61, pictures_per_person=6)
    public, gallery, probes = split_persons(dataset, random_state=3)
    assert not set(public.persons) & set(gallery.persons)
    assert set(gallery.persons) == set(probes.persons)
    assert len(public) + len(gallery) + len(probes) == 61
    assert not set(gallery.names) & set(probes.names)


QUESTION = {"public": "smiling", "private": "male"}


@pytest.fixture(scope="module", autouse=True)
def _small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawn, "_PROBES", 12)
        patch.setattr(drawn, "_COMPONENTS", 60)
        yield


@pytest.fixture(scope="module")
def faces():
    return load("faces", count=300, random_state=0, pictures_per_person=5)


@pytest.fixture(scope="module")
def masked(faces, _small):
    """A round of masks, and what the pictures were drawn from."""
    seen, whole = [], drawn.four_pictures
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            drawn, "four_pictures", lambda *given, **named: seen.append((*given, named)) or whole(*given, **named)
        )
        evidence = portraits(faces, **QUESTION, scheme="masks", random_state=0)
    return evidence, seen


def likeness(evidence):
    """By view: the verdict on likeness, and the measured SSIM with that of the average picture."""
    rows = [found for found in evidence.findings if "SSIM" in found.measure]
    return {found.details["view"]: (found.verdict, found.measured, found.details["blind"]) for found in rows}


@pytest.mark.parametrize("scheme", ["block-dphe", "masks"])
def test_a_plain_update_shows_the_face_and_the_aggregator_does_not(faces, masked, scheme):
    """The aggregator's pictures are less like the originals than the average face is.

    Keys come from the operating system. The mean SSIM of pictures that are decoded from noise lies more than eight of
    its deviations below that of the average face. It is called a leak with probability 0.005 at most, so that must
    come three times in a row: either false alarm is rarer than 1e-6.
    """
    evidence = masked[0]
    for seed in range(1, 4):
        if scheme != "masks" or seed > 1:
            evidence = portraits(faces, **QUESTION, scheme=scheme, random_state=seed)
            assert (evidence.pictures[0].pictures[0] != masked[0].pictures[0].pictures[0]).any()  # other faces
        found = likeness(evidence)
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
    """Nobody tells the aggregator which reading is right, and it is wrong about some of the twelve pictures.

    Over orders of the members its mean SSIM is .486 +- .019, six deviations above that of the average face (.372).
    """
    verdict, measured, blind = likeness(portraits(faces, **QUESTION, scheme="plain"))["aggregator"]
    assert verdict == "refuted"
    assert measured.value > blind


def test_rows_are_pictures_of_persons_with_one_probe_each_that_are_in_the_gallery(faces, masked):
    evidence, ((probes, _, named),) = masked
    assert len(evidence.pictures) == SHOWN
    for row in evidence.pictures:
        assert row.pictures.shape == (4, *faces.images.shape[1:])
        assert any((row.pictures[0] == image).all() for image in faces.images)
        assert row.similarity[0] > row.blind
    assert {found.details["view"] for found in evidence.findings} == {"plain", "aggregator", "sift"}
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
    assert "originals" in note


def test_photographs_are_used_only_if_they_lie_in_the_cache(monkeypatch):
    monkeypatch.setattr(drawn, "load", lambda name: pytest.fail("nothing may be fetched"))
    assert drawn.cached_photographs() is None
    monkeypatch.setattr(CatalogueEntry, "is_here", lambda entry: entry.name == "orl")
    monkeypatch.setattr(drawn, "load", lambda name: name)
    assert drawn.cached_photographs() == "orl"


def test_who_is_on_the_pictures_must_be_known(faces):
    with pytest.raises(UnknownNameError, match="'malle'"):
        portraits(faces, public="smiling", private="malle")
    with pytest.raises(InputError, match="3 persons"):
        portraits(faces.take(np.unique(faces.persons, return_index=True)[1]), **QUESTION)
