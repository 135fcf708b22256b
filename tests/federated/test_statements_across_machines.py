"""What the statement of a run across machines adds to its scheme's: who else sees what, and whom one has to trust."""

import pytest

from blindsight.federated.server import statement_of
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums import make_terms, statement

HIDING = tuple(scheme for scheme in SCHEMES if scheme != "plain")


def said(scheme):
    return statement_of(terms_of(scheme))


def terms_of(scheme):
    members = ("ann", "bob", "cem")
    return make_terms(scheme, run="r1", members=members, dimension=64, fraction_bits=16, capacity=16, key_bits=2048)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_whatever_the_scheme_the_apps_code_and_the_carrier_are_named(scheme):
    told = said(scheme)
    assert "app's code" in told.assumptions[-1]
    assert "addresses and times" in told.who_sees["operator of the SuperLink"]


@pytest.mark.parametrize("scheme", HIDING)
def test_what_is_added_up_in_secret_can_be_subtracted(scheme):
    text = said(scheme).to_text(10_000)
    for words in (
        "further runs",
        "subtract sums",
        "fingerprints were compared",
        "sealed messages between members and key",
    ):
        assert words in text
    assert said(scheme).status == "proven"


def test_masks_trust_the_registrar_not_to_join_the_aggregator():
    told, alone = said("masks"), statement(terms_of("masks"))
    (registrar,) = [line for line in told.assumptions if "registrar" in line]
    assert "no collusion of key generator and aggregator" in registrar
    assert "read every update" in registrar
    assert told.who_sees["key generator"].endswith("it is the registrar")
    assert told.assumptions[: len(alone.assumptions)] == alone.assumptions


@pytest.mark.parametrize("scheme", ["block-dphe", "dphe", "bfv"])
def test_where_a_key_generator_decrypts_the_scheme_itself_warns_of_it(scheme):
    told = said(scheme)
    assert any("key generator follows the protocol and does not collude" in line for line in told.assumptions)
    assert not any("registrar" in line for line in told.assumptions)


def test_a_run_in_the_clear_has_no_key_generator_and_nothing_sealed():
    told = said("plain")
    assert set(told.who_sees) == {*statement(terms_of("plain")).who_sees, "operator of the SuperLink"}
    text = told.to_text(10_000)
    for word in ("key generator", "sealed", "fingerprints", "registrar", "subtract"):
        assert word not in text
    assert told.status == "unproven"
