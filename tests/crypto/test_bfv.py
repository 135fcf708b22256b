"""Lattice sums are exact up to the bound, agree with raw TenSEAL, and hostile bytes give a sentence."""

import pickle
import random
import sys

import numpy as np
import pytest
import tenseal
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto import bfv
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, MissingExtraError, PrivacyError
from tests.keys import bfv_key

SMALL, LARGE = bfv_key(), bfv_key(max_sum=2**58)
both = pytest.mark.parametrize("key", [SMALL, LARGE], ids=["33 bits", "60 bits"])


@pytest.mark.parametrize(("max_sum", "degree"), [(1, 4096), (2**31, 4096), (2**31 + 2**16, 8192), (2**58, 8192)])
def test_parameters_follow_the_largest_sum(max_sum, degree):
    parameters = bfv.parameters_for(max_sum)
    assert parameters.degree == degree
    assert parameters.plain_modulus % (2 * degree) == 1
    with pytest.raises(InputError, match=str(2**60)):
        bfv.parameters_for(2**60)


@settings(max_examples=8)
@given(st.lists(st.lists(st.integers(-(2**27), 2**27), min_size=5, max_size=5), min_size=1, max_size=6))
def test_sum_is_exact(vectors):
    encrypted = [SMALL.public.encrypt(np.array(vector), terms=len(vectors)) for vector in vectors]
    total = bfv.add_all(encrypted)
    assert SMALL.decrypt(total).tolist() == np.sum(vectors, axis=0).tolist()
    assert total.terms == len(vectors)


@both
@pytest.mark.parametrize("sign", [1, -1])
def test_full_slots_at_the_bound_with_the_most_terms(key, sign):
    limit = key.public.max_value(bfv.MAX_TERMS)
    vector = key.public.encrypt(np.full(key.public.parameters.degree, sign * limit), terms=bfv.MAX_TERMS)
    total = bfv.add_all([vector] * bfv.MAX_TERMS)
    assert set(key.decrypt(total).tolist()) == {sign * limit * bfv.MAX_TERMS}
    (ciphertext,) = total.parts[0].ciphertext()
    assert key._context.decryptor().data.invariant_noise_budget(ciphertext) >= 10  # the proof is far from tight
    with pytest.raises(InputError, match="at most 1024 terms"):
        total + vector


@both
def test_one_above_the_bound_is_refused_by_place(key):
    limit = key.public.max_value(5)
    assert 2 * 5 * limit < key.public.parameters.plain_modulus
    for value in (limit + 1, -limit - 1):
        with pytest.raises(InputError, match="value 1 is beyond"):
            key.public.encrypt(np.array([0, value]), terms=5)
    for terms in (0, 1025):
        with pytest.raises(InputError, match="1 to 1024 terms"):
            key.public.encrypt(np.array([0]), terms=terms)
    for values in (np.array([0.5]), np.zeros((2, 2), dtype=np.int64)):
        with pytest.raises(InputError, match="whole numbers"):
            key.public.encrypt(values, terms=1)


@both
@pytest.mark.parametrize("count", [0, 1, 8193])
def test_round_trip_through_bytes_of_all_parties(key, count):
    values = np.random.default_rng(count).integers(-(2**29), 2**29, size=count)
    owner = bfv.PublicKey.from_bytes(key.public.to_bytes())
    aggregator = bfv.PublicKey.from_bytes(owner.to_bytes())
    received = [aggregator.read_vector(owner.encrypt(values, terms=3).to_bytes()) for _ in range(3)]
    total = key.public.read_vector(bfv.add_all(received).to_bytes())
    restored = bfv.SecretKey.from_secret_bytes(key.secret_bytes())
    assert restored.decrypt(total).tolist() == (3 * values).tolist()
    assert len(total) == count


def test_raw_tenseal_reads_our_ciphertexts():
    values = [5, -6, 7]
    part = SMALL.public.encrypt(np.array(values), terms=1).parts[0]
    context = tenseal.context_from(SMALL._context.serialize(save_secret_key=True))
    assert tenseal.bfv_vector_from(context, part.serialize()).decrypt() == values


def test_adding_leaves_the_addends_alone():
    first, second = SMALL.public.encrypt(np.array([1]), terms=3), SMALL.public.encrypt(np.array([2]), terms=3)
    assert SMALL.decrypt(bfv.add_all([first, second, second])).tolist() == [5]
    assert SMALL.decrypt(first).tolist() == [1]
    assert SMALL.decrypt(second).tolist() == [2]


def test_vectors_that_do_not_fit_are_not_added():
    vector = SMALL.public.encrypt(np.array([1]), terms=2)
    other = bfv_key(1)
    with pytest.raises(InputError, match="cannot add"):
        vector + SMALL.public.encrypt(np.array([1, 2]), terms=2)
    with pytest.raises(InputError, match="cannot add"):
        vector + other.public.encrypt(np.array([1]), terms=2)
    with pytest.raises(InputError, match="is under"):
        other.decrypt(vector)
    with pytest.raises(InputError, match="at least one"):
        bfv.add_all([])


def test_vector_made_to_cancel_another_is_found():
    vector = SMALL.public.encrypt(np.arange(4096), terms=2)
    negated = bfv.EncryptedVector(SMALL.public, 4096, 1, (vector.parts[0] * ([-1] * 4096),))
    with pytest.raises(MessageError, match="hides nothing"):
        vector + negated


def test_keys_with_other_parameters_or_parts_are_refused():
    weak = tenseal.context(
        tenseal.SCHEME_TYPE.BFV, poly_modulus_degree=4096, plain_modulus=1032193, coeff_mod_bit_sizes=[36, 36, 37]
    )
    with pytest.raises(MessageError, match="other BFV parameters"):
        bfv.PublicKey.from_bytes(encode(bfv._PublicKeyMessage(weak.serialize(save_secret_key=False))))
    real = decode(SMALL.secret_bytes(), bfv._SecretKeyMessage)
    with pytest.raises(MessageError, match="lacks a part"):  # a secret key posing as a public one
        bfv.PublicKey.from_bytes(encode(bfv._PublicKeyMessage(real.context)))
    context = decode(real.public, bfv._PublicKeyMessage).context
    with pytest.raises(MessageError, match="lacks a part"):
        bfv.SecretKey.from_secret_bytes(encode(bfv._SecretKeyMessage(context, real.public)))


def test_vectors_with_the_wrong_frame_are_refused():
    part = SMALL.public.encrypt(np.array([1, 2]), terms=1).parts[0].serialize()
    for count, terms, parts in [(3, 1, (part,)), (2, 0, (part,)), (2, 1025, (part,)), (2, 1, ()), (-5, 1, ())]:
        with pytest.raises(MessageError):
            SMALL.public.read_vector(encode(bfv._VectorMessage(count, terms, parts)))
    with pytest.raises(MessageError, match="at most"):
        SMALL.public.read_vector(encode(bfv._VectorMessage(2, 1, (part + bytes(200_000),))))
    other = SMALL.public.encrypt(np.array([1, 2]), terms=1).parts[0].serialize()
    with pytest.raises(MessageError, match="not a BFV ciphertext"):  # a ciphertext of the other parameters
        LARGE.public.read_vector(encode(bfv._VectorMessage(2, 1, (other,))))


def _bend(data, rng):
    bent = bytearray(data)
    match rng.randrange(4):
        case 0:
            del bent[rng.randrange(len(bent)) :]
        case 1:
            bent[rng.randrange(100)] = rng.randrange(256)
        case 2:
            place = rng.randrange(80)
            bent[place : place + 8] = rng.choice([b"\xff" * 8, bytes(8), (2**40).to_bytes(8, "little")])
        case 3:
            bent = bytearray(rng.randbytes(rng.randrange(200)))
    return bytes(bent)


def test_hostile_bytes_never_reach_beyond_a_sentence():
    rng = random.Random(3)
    part = SMALL.public.encrypt(np.arange(50), terms=1).parts[0].serialize()
    context = decode(SMALL.public.to_bytes(), bfv._PublicKeyMessage).context
    refused = 0
    for _ in range(300):
        try:
            SMALL.public.read_vector(encode(bfv._VectorMessage(50, 1, (_bend(part, rng),)))).to_bytes()
        except MessageError:
            refused += 1
        try:
            bfv.PublicKey.from_bytes(encode(bfv._PublicKeyMessage(_bend(context, rng))))
        except MessageError:
            refused += 1
    assert refused > 450  # a change inside the numbers themselves is another ciphertext: signatures find that


def test_secrets_stay_where_they_are():
    public = bfv.PublicKey.from_bytes(SMALL.public.to_bytes())
    assert not public._context.has_secret_key()
    assert repr(SMALL) == "<SecretKey, hidden>"
    assert len(repr(SMALL.public)) < 60
    with pytest.raises(PrivacyError):
        pickle.dumps(SMALL)


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tenseal", None)
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    with pytest.raises(MissingExtraError, match="he"):
        bfv.generate_keys(max_sum=1)
