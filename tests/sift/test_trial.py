"""A trial divides rows once and for all: sifts, features that learn and judges never meet the same person."""

import math

import numpy as np
import pytest

from blindsight.data import Dataset, PixelFeatures
from blindsight.errors import InputError
from blindsight.sift.attackers import PAPER
from blindsight.sift.fitted import FittedSift, fingerprint, picture_digests
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.trial import Trial, divide_rows, prepare_data
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

POLICY = Policy(("told",), ("hidden",))
LIGHT = Verifier(PAPER[:1], random_state=3, stop_early=False)


def rows(n: int = 1200) -> VerificationSet:
    """Feature 0 shows what is told, feature 1 what is hidden; two rows a person."""
    rng = np.random.default_rng(0)
    told, hidden = rng.integers(0, 2, (2, n)).astype(np.int8)
    X = rng.normal(size=(n, 6))
    X[:, 0] += 3 * told
    X[:, 1] += 3 * hidden
    return VerificationSet(X.astype(np.float32), {"told": told, "hidden": hidden}, np.arange(n) // 2, "test")


def pictures(n: int = 80) -> Dataset:
    """Small random pictures, two of each person, with two attributes."""
    rng = np.random.default_rng(1)
    return Dataset(
        name="noise",
        licence="none",
        source="a test",
        images=rng.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8),
        attributes=rng.integers(0, 2, (n, 2)).astype(np.int8),
        attribute_names=("told", "hidden"),
        persons=np.arange(n) // 2,
    )


def test_everybody_divides_alike() -> None:
    data = rows()
    develop, judge = divide_rows(1200, data.persons, 3)
    trial = Trial(data, verifier=LIGHT)
    np.testing.assert_array_equal(trial.developer.features, data.features[develop])
    np.testing.assert_array_equal(trial.judged.features, data.features[judge])
    assert not np.intersect1d(np.arange(1200)[develop] // 2, np.arange(1200)[judge] // 2).size


def test_attackers_read_raw_features_and_not_the_sift() -> None:
    trial = Trial(rows(), verifier=LIGHT)
    sift = trial.fit(PPLS(1, math.inf), POLICY)
    assert (sift.name, sift.pipeline) == ("told without hidden", "test")
    found = trial.measure("PPLS", sift, POLICY)
    assert trial.before(POLICY.private).priv_loss > 0.3 > 0.1 > found.priv_loss
    assert found.accuracies["told"] > 0.85
    assert trial.raw(["told"])["told"] - found.accuracies["told"] == pytest.approx(found.pub_loss)


def test_features_learn_from_the_developer_alone() -> None:
    dataset, pipeline = pictures(), PixelFeatures(max_components=3)
    data = prepare_data(dataset, pipeline, random_state=5)
    develop, judge = divide_rows(len(dataset), dataset.persons, 5)
    assert dataset.images is not None
    alone = PixelFeatures(max_components=3).fit(dataset.images[develop])
    assert data.pipeline == pipeline.fingerprint() == alone.fingerprint()
    assert pipeline.fingerprint() != PixelFeatures(max_components=3).fit(dataset.images[judge]).fingerprint()


def test_sift_that_saw_every_picture_cannot_be_verified() -> None:
    dataset, pipeline = pictures(), PixelFeatures(max_components=3)
    data = prepare_data(dataset, pipeline)
    sift = Trial(data, verifier=LIGHT).fit(PPLS(1, scale=False), POLICY)
    half = FittedSift(sift, POLICY, "pixels", pipeline, picture_digests(dataset)[::2])  # one picture of each person
    with pytest.raises(InputError, match="every picture"):
        half.unseen(dataset)
    few = FittedSift(sift, POLICY, "pixels", pipeline, picture_digests(dataset)[:1])
    np.testing.assert_array_equal(few.unseen(dataset), np.arange(2, 80))


def test_ready_made_features_are_named_by_their_collection() -> None:
    table = Dataset(name="table", licence="none", source="a test", features=np.ones((3, 2), dtype=np.float32))
    assert fingerprint(table, PixelFeatures()) == "ready-made features of table"
    assert picture_digests(table).shape == (3, 16)


# --- methods side by side ---
