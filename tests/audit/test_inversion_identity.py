"""Match rates: right names for faces that are there, chance for everything else."""

import numpy as np
import pytest

from blindsight.audit.inversion.identity import match_rate
from blindsight.errors import InputError


def people(persons=20, each=4, seed=0, spread=0.5):
    """Faces as points around one point per person, far from the origin as pictures are."""
    rng = np.random.default_rng(seed)
    names = np.repeat(np.arange(persons), each)
    return 50 + rng.normal(size=(persons, 30))[names] + spread * rng.normal(size=(persons * each, 30)), names


def test_it_names_the_nearest_face_as_a_loop_over_all_pairs_would():
    faces, names = people(spread=1.5)
    probes, gallery, asked, known = faces[::2], faces[1::2], names[::2], names[1::2]
    mean = gallery.mean(axis=0)
    hits = 0
    for probe, person in zip(probes - mean, asked, strict=True):
        cosines = [probe @ other / np.linalg.norm(probe) / np.linalg.norm(other) for other in gallery - mean]
        hits += known[int(np.argmax(cosines))] == person
    found = match_rate(probes, gallery, probe_persons=asked, gallery_persons=known)
    assert (found.hits, found.probes, found.persons, found.chance) == (hits, 40, 20, 0.05)
    assert 4 < hits < 40
    assert found.beats_chance()


def test_pictures_are_matched_as_well_as_features():
    pictures = np.random.default_rng(0).integers(0, 256, size=(5, 8, 8, 3), dtype=np.uint8)
    found = match_rate(pictures, pictures, probe_persons=np.arange(5), gallery_persons=np.arange(5))
    assert str(found) == "5 of 5 (100%; blind 20.0%)"


@pytest.mark.parametrize("kind", ["noise", "one picture for all", "the gallery's mean"])
def test_what_says_nothing_of_persons_matches_at_chance(kind):
    gallery, known = people()
    asked = np.repeat(np.arange(20), 100)
    probes = {
        "noise": np.random.default_rng(1).normal(size=(2000, 30)),
        "one picture for all": np.tile(gallery[:1] + 1, (2000, 1)),
        "the gallery's mean": np.tile(gallery.mean(axis=0), (2000, 1)),
    }[kind]
    found = match_rate(probes, gallery, probe_persons=asked, gallery_persons=known)
    # P(Binomial(2000, .05) is outside [55, 151]) < 1e-6; one picture for all gets one person's 100 probes.
    assert 55 <= found.hits <= 151
    assert found.interval(0.999).low < found.chance < found.interval(0.999).high


def test_chance_is_the_best_blind_guess():
    gallery, known = people(persons=4)
    found = match_rate(gallery[:5], gallery, probe_persons=[0, 0, 0, 1, 2], gallery_persons=known)
    assert found.chance == 0.6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probes": np.ones((4, 29))}, "29 and 30 numbers"),
        ({"probe_persons": [0, 1]}, "needs its person"),
        ({"probe_persons": [0, 1, 2, 99]}, "must be in the gallery"),
        ({"gallery_persons": np.zeros(80)}, "2 persons or more"),
        ({"gallery": np.array(["face"])}, "must be numbers"),
    ],
)
def test_what_cannot_be_matched_is_refused(change, message):
    gallery, known = people()
    given = {"probes": gallery[:4], "gallery": gallery, "probe_persons": known[:4], "gallery_persons": known} | change
    with pytest.raises(InputError, match=message):
        match_rate(given.pop("probes"), given.pop("gallery"), **given)
