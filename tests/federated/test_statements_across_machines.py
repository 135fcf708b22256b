"""What the statement of a run across machines adds to its scheme's: who else sees what, and whom one has to trust."""

import pytest

from blindsight.federated.statements import statement_of
from blindsight.federated.sums.runterms import RunTerms
from blindsight.learn.aggregation import SCHEMES
from blindsight.learn.schemes import masks, plain

HIDING = tuple(scheme for scheme in SCHEMES if scheme != "plain")


def said(scheme):
    terms = RunTerms(
        scheme=scheme, run="r1", users=("ann", "bob", "cem"), dimension=64, fraction_bits=16, capacity=16, key_bits=2048
    )
    return statement_of(terms, rounds=7)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_whatever_the_scheme_the_way_the_model_took_and_the_apps_code_are_named(scheme):
    statement = said(scheme)
    assert "all 7 rounds" in statement.not_protected[-1]
    assert "app's code" in statement.assumptions[-1]
    assert "addresses and times" in statement.who_sees["operator of the SuperLink"]


@pytest.mark.parametrize("scheme", HIDING)
def test_what_is_added_up_in_secret_can_be_subtracted(scheme):
    text = said(scheme).to_text(10_000)
    for words in ("repeat rounds", "subtract sums", "fingerprints were compared", "letters between users and key"):
        assert words in text
    assert said(scheme).status == "proven"


def test_masks_trust_the_registrar_not_to_join_the_aggregator():
    statement = said("masks")
    (registrar,) = [line for line in statement.assumptions if "registrar" in line]
    assert "no collusion of key generator and aggregator" in registrar
    assert "read every update" in registrar
    assert statement.who_sees["key generator"].endswith("it is the registrar")
    assert statement.assumptions[: len(masks.statement(3).assumptions)] == masks.statement(3).assumptions


@pytest.mark.parametrize("scheme", ["block-dphe", "dphe", "bfv"])
def test_where_a_key_generator_decrypts_the_scheme_itself_warns_of_it(scheme):
    statement = said(scheme)
    assert any("the key generator with anyone" in line for line in statement.assumptions)
    assert not any("registrar" in line for line in statement.assumptions)


def test_a_run_in_the_clear_has_no_key_generator_and_no_letters():
    statement = said("plain")
    assert set(statement.who_sees) == {*plain.statement().who_sees, "operator of the SuperLink"}
    text = statement.to_text(10_000)
    for word in ("key generator", "letters", "fingerprints", "registrar", "subtract"):
        assert word not in text
    assert statement.status == "unproven"
