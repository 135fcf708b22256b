"""A trial divides rows once and for all: sifts, features that learn and judges never meet the same person."""

import json
import math

import numpy as np
import pytest
from scipy.stats import norm

from blindsight.data import Dataset, PixelFeatures
from blindsight.errors import InputError, MissingExtraError
from blindsight.sift.attackers import MODERN, PAPER
from blindsight.sift.fitted import FittedSift, fingerprint, picture_digests
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.trial import (
    RAW,
    Sifted,
    Trial,
    best,
    by_learner,
    compare_sifts,
    divide_rows,
    prepare_data,
    standard_methods,
)
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


FAST = Verifier([attacker for attacker in MODERN if attacker.name == "kernel screen, tuned"])
SMILE = Policy(("smiling",), ("male",))


def faces(n=3000, seed=0, persons=None):
    """Return features in which smiling is seen in one place, male in another, and both in a third."""
    generator = np.random.default_rng(seed)
    shared = generator.normal(size=n)
    smiling, male = ((shared + generator.normal(size=n)) > 0 for _ in range(2))
    signal = np.stack([smiling, smiling, male, male, smiling ^ male, smiling], axis=1) * 2.0 - 1
    X = np.hstack([signal, np.zeros((n, 4))]) + generator.normal(size=(n, 10))
    labels = {"smiling": smiling.astype(np.int8), "male": male.astype(np.int8)}
    return VerificationSet(X.astype(np.float32), labels, persons, "drawn")


@pytest.fixture(scope="module")
def compared():
    methods = (
        "PLS 5",
        "PPLS 5, lambda inf",
        "PPLS 5, lambda inf, hardened",
        "LEACE + PLS 5",
        "label",
        "parity",
        "symbol",
    )
    return compare_sifts(faces(), SMILE, methods=methods, verifier=FAST)


def test_every_method_has_a_row_and_raw_features_come_first(compared):
    assert compared[0].name == RAW
    assert compared[0].pub_loss == 0
    assert compared[0].verdict == "reject"
    assert [row.name for row in compared[1:]][-3:] == ["label", "parity", "symbol"]
    assert not any(row.problem for row in compared)


def test_symbols_are_certified_and_numbers_are_attacked(compared):
    by_name = {row.name: row for row in compared}
    assert {name for name, row in by_name.items() if row.certified} == {"label", "parity", "symbol"}
    assert by_name["symbol"].alphabet == 2
    assert by_name["PLS 5"].alphabet is None
    hardened = by_name["PPLS 5, lambda inf, hardened"]
    assert hardened.sift.levels == (256,) * hardened.numbers


def test_hiding_more_leaks_less_and_tells_less(compared):
    by_name = {row.name: row for row in compared}
    assert by_name["PLS 5"].priv_loss > 0.3 > by_name["label"].priv_loss > by_name["symbol"].priv_loss
    assert by_name["label"].pub_loss < by_name["symbol"].pub_loss < by_name["parity"].pub_loss
    assert by_name["label"].verdict == "reject"
    assert by_name["symbol"].bound <= 0.1
    for row in compared:
        assert row.interval.low <= row.priv_loss <= row.interval.high


def test_the_best_is_accepted_and_can_be_used(compared):
    found = best(compared)
    assert found.name == "symbol"
    assert found.verdict == "accept"
    assert found.sift.pipeline == "drawn"
    assert found.sift.name == str(SMILE)
    assert all(row.pub_loss >= found.pub_loss for row in compared if row.verdict == "accept")


def test_verdicts_hold_together(compared):
    """Seven methods at 95% in all: each is verified at 1 - .05 / 7, the symbols' intervals included."""
    assert all(row.verification.setting.confidence == pytest.approx(1 - 0.05 / 7) for row in compared)
    row = next(row for row in compared if row.name == "symbol")
    (certificate,) = row.verification.certificates
    spread = math.sqrt(1 / certificate.n1 + 1 / certificate.n0) / 4
    assert certificate.bound - certificate.estimate == pytest.approx(norm.ppf(1 - 0.05 / 7) * spread, rel=0.1)


def test_rows_are_strict_json(compared):
    failed = Sifted("PPLS", problem="no direction")
    text = json.dumps([row.to_dict() for row in [*compared, failed]], allow_nan=False)
    back = json.loads(text)
    assert back[0]["accuracies"].keys() == {"smiling"}
    assert back[-1] | {"problem": ""} == Sifted("PPLS").to_dict()
    assert back[-1]["pub_loss"] is None
    assert back[-1]["interval"] is None


def test_a_method_that_fails_keeps_its_sentence_and_others_go_on():
    def without_torch(trial, policy):
        raise MissingExtraError("needs torch")

    methods = {"broken": without_torch, "mine": by_learner(PPLS(1, math.inf))}
    raw, broken, mine = compare_sifts(faces(1500, persons=np.arange(1500) // 3), SMILE, methods=methods, verifier=FAST)
    assert broken.problem == "needs torch"
    assert math.isnan(broken.pub_loss)
    assert broken.verdict is None
    assert mine.numbers == 1
    assert mine.verification.setting.persons == 300  # persons are on one side
    assert best([raw, broken]) is None
    names = set(standard_methods())
    assert {"adversarial 5", "adversarial 1", "PPLS 5, lambda 1", "PPLS 1, lambda inf"} <= names


def test_bad_input_is_named():
    data = faces(600)
    for policy, methods, named in [
        (SMILE, ["symbols"], "'symbol'"),
        (SMILE, [], "no method"),
        (Policy(("smiling",), ("female",)), None, "'female'"),
    ]:
        with pytest.raises(InputError, match=named):
            compare_sifts(data, policy, methods=methods, verifier=FAST)
