"""Pictures from what each party holds: a plain update shows the face, the aggregator a ghost, a sift a type."""

import json

import numpy as np
import pytest

from blindsight.audit import inversion as drawn
from blindsight.audit.decoders import ssim
from blindsight.audit.inversion import (
    aggregator_samples,
    four_pictures,
    picture_strip,
    plain_samples,
    sifted_rows,
)
from blindsight.data import Dataset, OnnxEmbedding, PixelFeatures, load, pipeline
from blindsight.data import faces as draw_faces
from blindsight.errors import InputError, UnknownNameError
from blindsight.papers.portraits import split_persons
from blindsight.sift import PPLS, LinearSift
from blindsight.sift.sift import Layers, Quantiser, SymbolSift


def samples(rows, seed=0, size=150):
    """Features as they are: some far larger than others."""
    sizes = 10 / np.sqrt(1 + np.arange(size))
    return (sizes * np.random.default_rng(seed).normal(1, 2, size=(rows, size))).astype(np.float32)


def cosines(left, right):
    return np.sum(left * right, axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)


def test_a_plain_update_gives_the_features_away_and_an_aggregator_needs_not_be_told_where_to_look():
    features = samples(20)
    assert plain_samples(features[:5]) == pytest.approx(features[:5], rel=1e-5, abs=1e-5)
    with pytest.raises(UnknownNameError, match="block-dphe"):
        aggregator_samples(samples(3), samples(3), scheme="block")
    found = aggregator_samples(features, samples(50, seed=1), scheme="plain")
    assert np.mean(cosines(found, features) > 0.99) >= 0.6


@pytest.mark.parametrize("scheme", ["masks", "block-dphe"])
def test_the_aggregator_of_a_hidden_round_reads_noise_that_looks_like_features(scheme):
    rng = np.random.default_rng(0)
    features, public = (rng.normal(size=(rows, 200)).astype(np.float32) for rows in (10, 50))
    found = aggregator_samples(features, public, scheme=scheme, key_bits=1024, insecure=True)
    # Features in uniformly random directions: a cosine with any other vector beyond .5 has P < 1e-11.
    assert np.abs(cosines(found, features)).max() < 0.5
    lengths = np.linalg.norm(public, axis=1)
    assert (np.linalg.norm(found, axis=1) >= 0.999 * lengths.min()).all()
    assert (np.linalg.norm(found, axis=1) <= 1.001 * lengths.max()).all()


def test_real_numbers_of_a_sift_stay_and_symbols_become_one_hot():
    features = samples(12, size=3)
    linear = LinearSift(np.zeros(3), np.ones(3), np.eye(3)[:, :2])
    assert np.array_equal(sifted_rows(linear, features), features[:, :2])
    layers = Layers(np.zeros(3), np.ones(3), (np.eye(3),), (np.zeros(3),))
    symbols = SymbolSift(layers, np.eye(3)[:, [0, 1, 2, 0]], np.zeros(4), (2, 2))
    rows = sifted_rows(symbols, features)
    assert np.array_equal(np.flatnonzero(rows), 4 * np.arange(12) + symbols.symbols(features))
    edges = np.tile(np.linspace(-5, 5, 255), (2, 1))
    rounded = LinearSift(np.zeros(3), np.ones(3), np.eye(3)[:, :2], Quantiser(edges))
    assert rounded.alphabet == 256**2
    assert np.array_equal(sifted_rows(rounded, features), rounded.apply(features))


@pytest.fixture(scope="module")
def scene():
    """Drawn faces split by person, pixel features of the public ones, and a sift that tells hats."""
    public, gallery, probes = split_persons(draw_faces(360, pictures_per_person=12, random_state=5), random_state=0)
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
    means = {view: scores.mean() for view, scores in result.similarity.items()}
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
    assert identity.details["chance"] == pytest.approx(1 / 15)


def test_an_aggregator_that_does_know_the_features_is_found_out(scene):
    public, gallery, probes, pixels, _ = scene
    leaky = pixels.transform(probes.images) + 0.01
    found = four_pictures(probes, public, pipeline=pixels, sift=None, aggregator=leaky, gallery=gallery)
    assert verdicts(found, "aggregator") == ["refuted", "refuted"]


def test_noise_vectors_are_at_chance_however_they_were_made(scene):
    public, gallery, probes, pixels, _ = scene
    known = pixels.transform(public.images)
    noise = np.random.default_rng(0).normal(known.mean(axis=0), known.std(axis=0), size=(len(probes), known.shape[1]))
    swapped = pixels.transform(probes.images)[::-1]  # features indeed, but of others: each person's go to another
    for held, other in ((noise, swapped), (swapped, np.zeros_like(noise))):
        found = four_pictures(probes, public, pipeline=pixels, sift=None, aggregator=held, plain=other, gallery=gallery)
        # Each line is wrong with probability at most .005; the seeds are fixed. Where plain updates show nothing
        # either, the attack has no power, and its failure is no evidence.
        assert verdicts(found, "aggregator") == verdicts(found, "plain") == ["undecided", "undecided"]
    shown = pixels.transform(probes.images)
    found = four_pictures(probes, public, pipeline=pixels, sift=None, aggregator=noise, plain=shown, gallery=gallery)
    assert verdicts(found, "plain") == ["as stated", "as stated"]
    assert verdicts(found, "aggregator") == ["at chance", "at chance"]
    assert [row.details["view"] for row in found.evidence(("aggregator",)).findings] == ["aggregator"] * 2
    assert found.evidence().pictures == ()  # without a sift there are no four to show


def test_a_row_holds_the_pictures_and_their_likeness(scene, result):
    row = result.row(7)
    assert np.array_equal(row.pictures[0], scene[2].images[7])
    expected = ssim(np.repeat(row.pictures[:1], 3, axis=0), row.pictures[1:])
    assert row.similarity == pytest.approx(tuple(expected))
    assert json.loads(json.dumps(row.to_dict()))["ssim"]["plain"] == row.similarity[0]


def test_a_strip_shows_four_pictures_a_row(result):
    strip = picture_strip([result.row(index) for index in (0, 20, 40)], scale=1)
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


def test_bad_input_is_refused_in_one_sentence(scene):
    public, gallery, probes, pixels, sift = scene
    probes, held = probes.take(range(4)), np.zeros((4, 120))
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
        split_persons(draw_faces(24, pictures_per_person=12))


def test_embeddings_get_a_network_where_torch_is_there(monkeypatch):
    embedding, thumbnails = object.__new__(OnnxEmbedding), pipeline("thumbnail")
    faces, generator = draw_faces(4), np.random.default_rng(0)
    monkeypatch.setattr(drawn, "fit_network", lambda *given, **named: "network")
    monkeypatch.setattr(drawn, "fit_linear", lambda *given, **named: ("linear", None))
    for there, expected in (("torch", ["network", "linear"]), (None, ["linear", "linear"])):
        monkeypatch.setattr(drawn, "find_spec", lambda name, there=there: there)
        assert [drawn.learn_decoder(one, [], faces, generator) for one in (embedding, thumbnails)] == expected
        assert (drawn.seconds_to_learn(embedding) > drawn.seconds_to_learn(thumbnails)) == (there is not None)


@pytest.fixture(scope="module")
def faces():
    return load("faces", count=300, random_state=0, pictures_per_person=5)
