"""Four pictures: a plain update shows the face, the aggregator a ghost, a sift a type; and the figures say so."""

import json

import numpy as np
import pytest

from blindsight.audit.inversion import aggregator_samples, four_pictures, picture_strip, split_persons, ssim, study
from blindsight.audit.inversion.convolutional import ConvolutionalInversion
from blindsight.audit.inversion.ridge import RidgeInversion
from blindsight.data import Dataset, OnnxEmbedding, PixelFeatures, faces, pipeline
from blindsight.errors import InputError
from blindsight.sift import PPLS


@pytest.fixture(scope="module")
def scene():
    """Drawn faces split by person, pixel features of the public ones, and a sift that tells hats."""
    public, gallery, probes = split_persons(faces(600, pictures_per_person=12, random_state=5), random_state=0)
    pixels = PixelFeatures(max_components=120).fit(public.images)
    labels = public.attribute("hat"), public.attribute("male")
    sift = PPLS(2, scale=False).fit(pixels.transform(public.images), *labels).sift_
    return public, gallery, probes, pixels, sift


@pytest.fixture(scope="module")
def result(scene):
    public, gallery, probes, pixels, sift = scene
    features = (pixels.transform(part.images) for part in (probes, public))
    held = aggregator_samples(*features, scheme="masks")
    return four_pictures(probes, public, pipeline=pixels, sift=sift, aggregator=held, gallery=gallery)


def verdicts(result, view, confidence=0.99):
    return [finding.verdict for finding in result.findings(confidence=confidence) if finding.details["view"] == view]


def test_a_plain_update_shows_the_face_a_sift_its_type_and_the_aggregator_less_than_nothing(result):
    means = result.to_dict()["ssim"]
    assert means["plain"] > 0.6
    assert means["plain"] > means["sift"] + 0.1
    assert means["sift"] > means["blind"] > means["aggregator"]
    assert result.matches["plain"].hits > result.matches["sift"].hits


def test_the_verdicts_follow(result):
    assert verdicts(result, "plain") == ["as stated", "as stated"]
    # The masks come from the operating system: either line is a false alarm with probability at most 5e-8.
    assert verdicts(result, "aggregator", confidence=1 - 1e-7) == ["at chance", "at chance"]
    assert verdicts(result, "sift")[0] == "leaks"
    identity = result.findings()[3]
    assert identity.measured.low <= identity.measured.value <= identity.measured.high
    assert identity.details["chance"] == pytest.approx(1 / 25)


def test_an_aggregator_that_does_know_the_features_is_found_out(scene):
    public, gallery, probes, pixels, sift = scene
    leaky = pixels.transform(probes.images) + 0.01
    found = four_pictures(probes, public, pipeline=pixels, sift=sift, aggregator=leaky, gallery=gallery)
    assert verdicts(found, "aggregator") == ["refuted", "refuted"]


def test_noise_vectors_are_at_chance_however_they_were_made(scene):
    public, gallery, probes, pixels, sift = scene
    known = pixels.transform(public.images)
    noise = np.random.default_rng(0).normal(known.mean(axis=0), known.std(axis=0), size=(len(probes), known.shape[1]))
    swapped = pixels.transform(probes.images)[::-1]  # features indeed, but of others: each person's go to another
    for held in (noise, swapped, np.zeros_like(noise)):
        found = four_pictures(probes, public, pipeline=pixels, sift=sift, aggregator=held, plain=held, gallery=gallery)
        # Each line is wrong with probability at most .005; the seeds are fixed.
        assert verdicts(found, "aggregator") == verdicts(found, "plain") == ["at chance", "at chance"]


def test_a_row_holds_the_pictures_and_their_likeness(scene, result):
    row = result.row(7)
    assert np.array_equal(row.pictures[0], scene[2].images[7])
    expected = ssim(np.repeat(row.pictures[:1], 3, axis=0), row.pictures[1:])
    assert row.similarity == pytest.approx(tuple(expected))
    figures = json.loads(json.dumps([row.to_dict(), result.to_dict()]))
    assert figures[0]["ssim"]["plain"] == row.similarity[0]


def test_a_strip_shows_four_pictures_a_row(result):
    strip = result.strip([0, 50, 100], scale=1)
    assert strip.width > 4 * 64
    assert strip.height > 3 * 64
    assert np.array_equal(np.asarray(strip)[24:88, 24:88], result.originals[0])
    with pytest.raises(InputError, match="one row"):
        picture_strip([])


def test_without_a_gallery_only_likeness_is_measured(scene):
    public, _, probes, pixels, sift = scene
    some = probes.take(np.arange(3))
    found = four_pictures(some, public, pipeline=pixels, sift=sift, aggregator=np.zeros((3, 120)))
    assert not found.matches
    assert len(found.findings()) == 3
    alone = four_pictures(some.take([0]), public, pipeline=pixels, sift=sift, aggregator=np.zeros((1, 120)))
    assert alone.findings() == ()
    assert alone.row(0).similarity[0] > alone.row(0).blind


def test_a_split_shares_no_person_with_the_public_and_leaves_everybody_a_probe_and_a_picture_in_the_gallery():
    dataset = faces(61, pictures_per_person=6)
    public, gallery, probes = split_persons(dataset, random_state=3)
    assert not set(public.persons) & set(gallery.persons)
    assert set(gallery.persons) == set(probes.persons)
    assert len(public) + len(gallery) + len(probes) == 61
    assert not set(gallery.names) & set(probes.names)


def test_bad_input_is_refused_in_one_sentence(scene):
    public, gallery, probes, pixels, sift = scene
    held = np.zeros((len(probes), 120))
    nameless = Dataset(name="nameless", licence="", source="", images=gallery.images)
    table = Dataset(name="table", licence="", source="", features=np.zeros((5, 120), dtype=np.float32))
    for change, message in [
        ({"aggregator": held[:-1]}, "one vector"),
        ({"aggregator": held[:, :-1]}, "120 .* got 119"),
        ({"gallery": nameless}, "needs the persons"),
    ]:
        with pytest.raises(InputError, match=message):
            four_pictures(probes, public, **({"pipeline": pixels, "sift": sift, "aggregator": held} | change))
    with pytest.raises(InputError, match="has no pictures"):
        four_pictures(probes, table, pipeline=pixels, sift=sift, aggregator=held)
    with pytest.raises(InputError, match="who is on"):
        split_persons(nameless)
    with pytest.raises(InputError, match="3 persons"):
        split_persons(faces(24, pictures_per_person=12))


def test_embeddings_get_a_network_where_torch_is_there(monkeypatch):
    embedding, thumbnails = object.__new__(OnnxEmbedding), pipeline("thumbnail")
    monkeypatch.setattr(study, "find_spec", lambda name: name)
    assert isinstance(study.inversion_for(embedding), ConvolutionalInversion)
    assert isinstance(study.inversion_for(thumbnails), RidgeInversion)
    assert study.seconds_to_learn(embedding) > study.seconds_to_learn(thumbnails)
    monkeypatch.setattr(study, "find_spec", lambda name: None)
    assert isinstance(study.inversion_for(embedding), RidgeInversion)
