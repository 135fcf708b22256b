"""Sifts for one policy by every method: what each costs and leaks, with verdicts that hold together."""

import json
import math

import numpy as np
import pytest
from scipy.stats import norm

from blindsight.errors import InputError, MissingExtraError
from blindsight.papers.sensorsift.compare import compare_sifts, standard_methods
from blindsight.sift.attackers import MODERN
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.trial import RAW, Sifted, best, by_learner
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

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
