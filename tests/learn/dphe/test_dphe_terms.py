"""Terms that protect nobody, or cannot work, are refused before anything is encrypted; so are unfit updates."""

import numpy as np
import pytest

from blindsight.errors import InputError, MessageError
from blindsight.learn.dphe import Aggregator, KeyGenerator, Terms, User
from blindsight.learn.dphe.terms import AGGREGATOR

THREE = ("anna", "bert", "cleo")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"users": ("anna", "bert")}, "at least 3 users"),
        ({"users": ("anna", "bert"), "min_users": 2}, "at least 3 users"),
        ({"users": THREE, "min_users": 4}, "at least 3 users"),
        ({"users": (*THREE, "anna")}, "a name of its own"),
        ({"users": (*THREE, "aggregator")}, "is not 'aggregator'"),
        ({"users": (*THREE, "")}, "1 to 64 characters"),
        ({"run": ""}, "1 to 64 characters"),
        ({"insecure": False}, "insecure=True"),
        ({"key_bits": 512}, "2048, 3072 or 4096"),
        ({"dimension": 0}, "dimension must be"),
        ({"slots": 32}, "1 to 31 slots; got 32"),
        ({"slots": 31, "min_per_block": 2}, "1 to 30 slots with one slot for the number of contributors"),
        ({"slots": 0}, "slots; got 0"),
        ({"capacity": 25}, "capacity must be in 1 ... 24"),
        ({"capacity": 0}, "capacity must be in"),
        ({"dimension": 2**20, "capacity": 2**20}, "Lower the capacity"),
        ({"dimension": 2**20, "as_published": True, "decrypt": "all"}, "too long for one message"),
        ({"fraction_bits": 63}, "fraction_bits must be"),
        ({"slot_bits": 12}, "slot_bits must be"),
        ({"slot_bits": 8, "users": tuple(map(str, range(200)))}, "more than 8 bits"),
        ({"min_per_block": 5}, "min_per_block must be in 1 ... 4"),
        ({"permutations": "triple"}, '"double" or "single"'),
        ({"decrypt": "none"}, '"touched" or "all"'),
        ({"as_published": True}, "the published scheme has"),
        ({"as_published": True, "decrypt": "all", "slots": 2}, "the published scheme has"),
    ],
)
def test_bad_terms_get_a_sentence(make_terms, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        make_terms(**changes)


def test_terms_survive_the_wire_and_default_to_a_long_key():
    terms = Terms(run="r", users=THREE, dimension=10, capacity=2, fraction_bits=20, min_per_block=2)
    assert Terms.from_bytes(terms.to_bytes()) == terms
    assert terms.key_bits == 3072
    # 95 slots of 32 bits fit a 3072-bit plaintext: 47 pairs of a weight and its count.
    assert terms.blocks_per_request == 47


@pytest.mark.parametrize(
    ("update", "sentence"),
    [
        (np.zeros(23), "a vector of 24 weights; got shape"),
        (np.zeros((24, 1)), "a vector of 24 weights; got shape"),
        (np.full(24, np.nan), "not a finite number"),
        (np.full(24, -np.inf), "not a finite number"),
        (np.full(24, 2.0**22), r"weight 0 is beyond \+-2.09715e\+06"),
        (np.full(24, 1e300), "overflows 64 bits"),
    ],
)
def test_an_unfit_update_is_refused_and_the_round_is_still_free(new_run, update, sentence):
    user = new_run().users["anna"]
    with pytest.raises(InputError, match=sentence):
        user.contribute(update, 0)
    assert user.contribute(np.zeros(24), 0)


def test_encoded_updates_must_be_whole_numbers(new_run):
    with pytest.raises(InputError, match=r"whole numbers; got float64. Use `integers`"):
        new_run().users["anna"].contribute_integers(np.zeros(24), 0)


def test_nobody_accepts_a_set_up_on_other_terms(new_run, make_terms):
    messages, other = new_run().generator.setup(), make_terms(min_users=4)
    with pytest.raises(MessageError, match="other terms"):
        User("anna", other).accept(messages["anna"])
    with pytest.raises(MessageError, match="other terms"):
        Aggregator(other).accept(messages[AGGREGATOR])


def test_a_set_up_is_for_one_party_and_for_one_run(new_run):
    parties, again = new_run(), new_run()
    messages = parties.generator.setup()
    with pytest.raises(MessageError, match="not for 'bert' as it enrolled"):
        parties.users["bert"].accept(messages["anna"])
    with pytest.raises(MessageError, match="not for 'anna' as it enrolled"):
        parties.users["anna"].accept(again.generator.setup()["anna"])
    with pytest.raises(MessageError, match=r"expected a message dphe/user-setup[.]1"):
        parties.users["anna"].accept(messages[AGGREGATOR])
    with pytest.raises(MessageError, match="already set up, differently"):
        parties.aggregator.accept(again.generator.setup()[AGGREGATOR])
    parties.users["anna"].accept(messages["anna"])
    parties.aggregator.accept(messages[AGGREGATOR])


def test_only_users_enrol_and_only_once(make_terms, key):
    terms = make_terms()
    generator = KeyGenerator(terms, key=key)
    generator.enrol(User("anna", terms).enrolment())
    with pytest.raises(MessageError, match="'anna' has enrolled with another key"):
        generator.enrol(User("anna", terms).enrolment())
    stranger = make_terms(users=("mallory", *THREE))
    with pytest.raises(MessageError, match="does not take part"):
        generator.enrol(User("mallory", stranger).enrolment())
    with pytest.raises(InputError, match="not everyone has enrolled yet: bert, cleo, dora"):
        generator.setup()
    with pytest.raises(InputError, match="does not take part"):
        User("mallory", terms)


def test_nothing_happens_before_the_set_up(make_terms, key):
    terms = make_terms()
    with pytest.raises(InputError, match="not set up yet"):
        User("anna", terms).contribute(np.zeros(24), 0)
    with pytest.raises(InputError, match="not set up yet"):
        Aggregator(terms).open(0)
    with pytest.raises(InputError, match="2048 bits; got 1024"):
        KeyGenerator(make_terms(key_bits=2048), key=key)
