"""Paillier agrees with an independent implementation, adds exactly, refuses what it must and shows no secret."""

import copy
import hashlib
import inspect
import pickle
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import count
from multiprocessing import get_context

import gmpy2
import numpy as np
import phe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto import paillier
from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.paillier import (
    Ciphertexts,
    EncryptedSum,
    PrivateKey,
    PublicKey,
    Randomiser,
    add_all,
    generate_keys,
    randomiser,
)
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, StorageError
from blindsight.rng import seeded_bytes
from tests.keys import paillier_key

CONSERVATIVE = paillier_key(keys="conservative")
KEY, OTHER = paillier_key(), paillier_key(number=1)  # subgroup keys; the first has the modulus of the conservative one
BOTH = pytest.mark.parametrize("key", [KEY, CONSERVATIVE], ids=lambda key: key.public.keys)
LIMIT = KEY.public.max_plaintext
plaintexts = st.one_of(st.sampled_from([0, 1, -1, LIMIT, -LIMIT]), st.integers(-LIMIT, LIMIT))


@pytest.fixture(autouse=True, scope="module")
def fixed_primes():
    """None: here primes are searched for."""


def _factors(key):
    return int(key._p), int(key._q)


@pytest.fixture(scope="module")
def oracle():
    public = phe.PaillierPublicKey(KEY.public.n)
    return public, phe.PaillierPrivateKey(public, *_factors(KEY))


# --- agreement with python-paillier ---------------------------------------------------------------------------------


def test_python_paillier_and_we_decrypt_each_others_ciphertexts(oracle):
    values = [0, 1, -1, 123456789, -(10**50), LIMIT, -LIMIT]
    for key in (KEY, CONSERVATIVE):
        ours = key.public.encrypt(values)
        assert [oracle[1].raw_decrypt(int(c)) for c in ours.values] == [v % key.public.n for v in values]
    theirs = tuple(gmpy2.mpz(oracle[0].raw_encrypt(v % KEY.public.n)) for v in values)
    assert CONSERVATIVE.decrypt(Ciphertexts(CONSERVATIVE.public, theirs)) == values
    for bound in (None, 2**200):  # masks of theirs are outside our subgroup: refused, never decrypted wrongly
        with pytest.raises(MessageError, match="base"):
            KEY.decrypt(Ciphertexts(KEY.public, theirs[:1]), bound=bound)


@BOTH
def test_python_paillier_decrypts_a_packed_sum_of_ours(oracle, key):
    packing = SlotPacking.for_key(1024)
    rng = np.random.default_rng(5)
    vectors = rng.integers(-1000, 1001, size=(4, 50))
    total = add_all(key.public.encrypt(packing.pack(vector, terms=4)) for vector in vectors)
    raw = [oracle[1].raw_decrypt(int(c)) for c in total.values]
    centred = [m if m <= LIMIT else m - KEY.public.n for m in raw]
    assert packing.unpack(centred, 50).tolist() == vectors.sum(axis=0).tolist()


# --- the scheme -----------------------------------------------------------------------------------------------------


def test_ciphertext_is_the_published_formula_whatever_the_window():
    n = KEY.public.n
    digest = hashlib.shake_256(b"blindsight paillier base 1\0" + n.to_bytes(128, "big")).digest(144)
    x = int.from_bytes(digest, "big") % n
    base = pow(-x * x % n, n, n * n)
    values = [5, -7, LIMIT]
    expected = [(1 + m % n * n) * pow(base, r, n * n) % (n * n) for m, r in zip(values, _exponents(3), strict=True)]
    maker = Randomiser(gmpy2.mpz(n))
    assert maker.base == base
    messages = [gmpy2.mpz(value) for value in values]
    for window in (0, 3, 7, 8, 9):  # each builds a wider table than the one before
        assert maker.mask(messages, maker.draw(3, seeded_bytes(7)), window=window) == expected, window
    assert list(CONSERVATIVE.public.encrypt(values, source=seeded_bytes(7)).values) == expected
    assert [Randomiser(gmpy2.mpz(1) << bits).plan(10**4) for bits in (1023, 4095)] == [10, 9]  # as memory allows


def test_ciphertext_of_a_subgroup_key_is_the_published_formula_whatever_the_window():
    n, h = KEY.public.n, KEY.public.h
    values = [5, -7, LIMIT]
    expected = [(1 + m % n * n) * pow(h, n * r, n * n) % (n * n) for m, r in zip(values, _exponents(3), strict=True)]
    messages = [gmpy2.mpz(value) for value in values]
    maker = Randomiser(gmpy2.mpz(n), gmpy2.mpz(h))
    for window in (0, 3, 8):
        assert maker.mask(messages, maker.draw(3, seeded_bytes(7)), window=window) == expected, window
    assert list(KEY.public.encrypt(values, source=seeded_bytes(7)).values) == expected


def test_base_of_a_subgroup_key_is_the_published_formula_and_has_the_order_of_the_subgroup():
    p, q = _factors(KEY)
    a, b = map(int, KEY._orders)
    n, h = KEY.public.n, KEY.public.h
    digest = hashlib.shake_256(b"blindsight paillier subgroup 1\0" + n.to_bytes(128, "big")).digest(144)
    assert h == pow(int.from_bytes(digest, "big") % n, (p - 1) * (q - 1) // (2 * a * b), n)
    assert pow(h, a * b, n) == 1
    assert gmpy2.gcd(pow(h, a, n) - 1, n) == p  # so a must stay as secret as p
    assert gmpy2.gcd(pow(h, b, n) - 1, n) == q
    # Textbook decryption (Paillier 1999, section 6): m = L(c^(a b) mod n^2) / (a b).
    (c,) = KEY.public.encrypt([-12345]).values
    assert (pow(int(c), a * b, n * n) - 1) // n * pow(a * b, -1, n) % n == n - 12345


@settings(max_examples=20)
@given(plaintexts, st.integers(2, KEY.public.n - 2))
def test_a_forged_mask_is_refused_or_decrypted_as_the_textbook_does(message, x):
    """x is a random unit (outside the subgroup but for one in 2^510), a power of h, or one times a non-member."""
    n, h, square = KEY.public.n, KEY.public.h, KEY.public.n**2
    for unit, inside in ((x, False), (-1 % n, False), (pow(h, x, n), True), (pow(h, x, n) * x % n, False)):
        c = (1 + message % n * n) * pow(unit, n, square) % square
        forged = Ciphertexts(KEY.public, (*KEY.public.encrypt([1]).values, gmpy2.mpz(c)))
        assert CONSERVATIVE.decrypt(Ciphertexts(CONSERVATIVE.public, forged.values))[1] == message
        if inside:
            assert KEY.decrypt(forged) == [1, message]
        else:
            with pytest.raises(MessageError, match="base"):
                KEY.decrypt(forged)


def test_a_forged_mask_hidden_in_a_sum_is_refused():
    forged = Ciphertexts(KEY.public, (gmpy2.powmod(7, KEY.public.n, KEY.public.n**2),))
    total = add_all([KEY.public.encrypt([5]), forged, KEY.public.encrypt([6])])
    for bound in (None, 100):
        with pytest.raises(MessageError, match="base"):
            KEY.decrypt(total, bound=bound)
    assert KEY.decrypt(total + forged * -1, bound=100) == [11]


def _exponents(number):
    data = seeded_bytes(7)(number * 64)
    return [int.from_bytes(data[i : i + 64], "little") for i in range(0, len(data), 64)]


@pytest.mark.parametrize(
    ("keys", "fingerprint", "digest"),
    [
        (
            "conservative",
            "5fc5-7f8b-3c03-4428",
            "841f5bbe21817f1f62f0b7f78d142b66bf1740d5f902a825f08d8b8e6fe7ffed",
        ),
        (
            "subgroup",
            "595b-be91-701c-9787",
            "03132a032d947db520b5bf3e6553a4f8ce12418c6b60995b6be86103c129f047",
        ),
    ],
)
def test_known_answer(keys, fingerprint, digest):
    """Key generation and encryption from a fixed stream of bytes give what they always gave."""
    key = generate_keys(1024, keys=keys, insecure=True, source=_stream(b"key"))
    values = [0, 1, -1, key.public.max_plaintext, -key.public.max_plaintext]
    matrix = key.public.encrypt(values, source=_stream(b"masks")).to_matrix()
    assert key.public.short_fingerprint == fingerprint
    assert hashlib.sha256(matrix.tobytes()).hexdigest() == digest


def _stream(label):
    calls = count()
    return lambda size: hashlib.shake_256(label + next(calls).to_bytes(8, "big")).digest(size)


def test_base_generates_the_jacobi_symbol_one_half():
    # h = -x^2 is a non-residue modulo both primes (they are 3 modulo 4), so its Jacobi symbol is +1.
    base = int(randomiser(KEY.public.n).base)  # of the conservative key
    p, q = _factors(KEY)
    assert gmpy2.legendre(base, p) == gmpy2.legendre(base, q) == -1
    assert pow(base, (p - 1) * (q - 1) // 2, KEY.public.n**2) == 1  # an n-th residue of order dividing lambda


@pytest.mark.parametrize("keys", ["subgroup", "conservative"])
@pytest.mark.parametrize("bits", [1024, pytest.param(3072, marks=pytest.mark.slow)])
def test_a_generated_key_has_the_promised_form_and_works(bits, keys):
    key = generate_keys(bits, keys=keys, insecure=bits == 1024)
    p, q = _factors(key)
    assert key.public.keys == keys
    if keys == "subgroup":
        for prime, order in zip((p, q), key._orders, strict=True):
            assert order.bit_length() == 256
            assert gmpy2.is_prime(order, 50)
            assert (prime - 1) % (2 * order) == 0
            assert gmpy2.is_prime((prime - 1) // (2 * order), 50)
    assert key.public.bits == bits
    assert p.bit_length() == q.bit_length() == bits // 2
    assert p % 4 == q % 4 == 3
    assert gmpy2.gcd(p - 1, q - 1) == 2
    assert gmpy2.is_prime(p, 50)
    assert gmpy2.is_prime(q, 50)
    assert key.decrypt(key.public.encrypt([1, -2, key.public.max_plaintext])) == [1, -2, key.public.max_plaintext]


def test_equal_plaintexts_never_give_equal_ciphertexts():
    ciphertexts = KEY.public.encrypt_zeros(40) + KEY.public.encrypt_zeros(40)
    assert len(set(ciphertexts.values)) == 40
    again = KEY.public.rerandomise(ciphertexts)
    assert not set(again.values) & set(ciphertexts.values)
    assert KEY.decrypt(again) == [0] * 40


@pytest.mark.parametrize("key", [CONSERVATIVE, paillier_key(2048)], ids=["half the length", "twice the subgroup's"])
def test_each_encryption_draws_512_bits_from_the_system(key):
    drawn = []

    def source(size):
        drawn.append(size)
        return seeded_bytes(3)(size)

    key.public.encrypt([1, 2, 3], source=source)
    assert sum(drawn) * 8 == 3 * 512


# --- homomorphism ---------------------------------------------------------------------------------------------------


@BOTH
@settings(max_examples=20)
@given(values=st.lists(plaintexts, max_size=3))
def test_round_trip(key, values):
    assert key.decrypt(key.public.encrypt(values)) == values


@BOTH
@settings(max_examples=30)
@given(a=plaintexts, b=plaintexts)
def test_sum_is_exact_and_wraps_only_past_the_plaintext_range(key, a, b):
    total = key.decrypt(key.public.encrypt([a]) + key.public.encrypt([b]))[0]
    assert (total - a - b) % KEY.public.n == 0
    assert abs(total) <= LIMIT
    if abs(a + b) <= LIMIT:
        assert total == a + b


@settings(max_examples=15)
@given(st.integers(-(2**400), 2**400), st.integers(-(2**80), 2**80))
def test_product_with_a_public_number(value, factor):
    assert KEY.decrypt(KEY.public.encrypt([value]) * factor) == [value * factor]


@settings(max_examples=10)
@given(st.lists(st.lists(st.integers(-(2**300), 2**300), min_size=4, max_size=4), min_size=1, max_size=6))
def test_sum_of_many_vectors(vectors):
    total = add_all(KEY.public.encrypt(vector) for vector in vectors)
    assert KEY.decrypt(total) == [sum(column) for column in zip(*vectors, strict=True)]


def test_vectors_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="cannot add"):
        KEY.public.encrypt([1]) + KEY.public.encrypt([1, 2])
    with pytest.raises(InputError, match="cannot add"):
        KEY.public.encrypt([1]) + OTHER.public.encrypt([1])
    with pytest.raises(InputError, match="at least one"):
        add_all([])
    with pytest.raises(InputError, match=OTHER.public.short_fingerprint):
        KEY.decrypt(OTHER.public.encrypt([1]))


def test_selection_keeps_order():
    ciphertexts = KEY.public.encrypt([10, 20, 30])
    assert KEY.decrypt(ciphertexts[np.array([2, 0])]) == [30, 10]
    assert KEY.decrypt(ciphertexts[1:]) == [20, 30]


# --- sparse sums ---

SIZE = 6
contributions = st.lists(st.dictionaries(st.integers(0, SIZE - 1), st.integers(-(2**60), 2**60)), max_size=4)


@settings(max_examples=10)
@given(contributions=contributions)
def test_sparse_sum_is_the_plain_one(contributions):
    total = EncryptedSum(KEY.public, SIZE)
    expected, counts = [0] * SIZE, [0] * SIZE
    for contribution in contributions:
        places = np.array(list(contribution), dtype=np.int64)
        total.add(KEY.public.encrypt(list(contribution.values())), places)
        for place, value in contribution.items():
            expected[place] += value
            counts[place] += 1
    assert KEY.decrypt(total.total()) == expected
    assert total.counts.tolist() == counts
    places, ciphertexts = total.touched()
    assert dict(zip(places.tolist(), KEY.decrypt(ciphertexts), strict=True)) == {
        place: expected[place] for place in range(SIZE) if counts[place]
    }


def test_every_untouched_place_gets_a_zero_of_its_own():
    total = EncryptedSum(KEY.public, 20)
    first, second = total.total().values, total.total().values
    assert len({*first, *second}) == 40
    assert 1 not in first


def test_contribution_that_does_not_fit_changes_nothing():
    total = EncryptedSum(KEY.public, 3)
    total.add(KEY.public.encrypt([5]), np.array([1]))
    for places in ([0], [0, 0], [0, 3], [-1, 0], [0.0, 1.0]):
        with pytest.raises(InputError):
            total.add(KEY.public.encrypt([1, 2]), np.array(places))
    with pytest.raises(InputError, match="cannot add"):
        total.add(OTHER.public.encrypt([1, 2, 3]))
    assert total.counts.tolist() == [0, 1, 0]
    total.add(KEY.public.encrypt([10, 20, 30]))  # at all places
    assert KEY.decrypt(total.total()) == [10, 25, 30]


# --- batches --------------------------------------------------------------------------------------------------------


def test_integers_of_any_kind_are_taken_and_nothing_else():
    for values in (np.array([1, -2], dtype=np.int8), np.array([1, -(2**60)]), np.array([2**63], dtype=np.uint64)):
        assert KEY.decrypt(KEY.public.encrypt(values)) == values.tolist()
    for values in ([1.5], ["1"], np.array([1.0]), np.array([[1, 2]]), [None]):
        with pytest.raises(InputError, match="whole numbers"):
            KEY.public.encrypt(values)
    for value in (LIMIT + 1, -LIMIT - 1):
        with pytest.raises(InputError, match="value 1"):
            KEY.public.encrypt([0, value])


def test_process_pool_gives_the_same_ciphertexts(monkeypatch):
    monkeypatch.setattr(paillier, "_ENCRYPT_CHUNK", 4)
    here = KEY.public.encrypt(range(10), source=seeded_bytes(4))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = KEY.public.encrypt(range(10), source=seeded_bytes(4), pool=pool)
    assert here.values == there.values


class _DyingPool(Executor):
    """Does the first piece of work, then breaks."""

    def map(self, fn, *iterables, **_):
        yield fn(*next(zip(*iterables, strict=True)))
        raise BrokenProcessPool

    def submit(self, *_, **__):
        raise NotImplementedError


def test_broken_pool_falls_back_to_this_process(monkeypatch):
    monkeypatch.setattr(paillier, "_ENCRYPT_CHUNK", 4)
    ciphertexts = KEY.public.encrypt(range(10), source=seeded_bytes(4), pool=_DyingPool())
    assert ciphertexts.values == KEY.public.encrypt(range(10), source=seeded_bytes(4)).values


def test_decryption_does_not_depend_on_threads_and_reports_progress():
    values = list(range(-40, 40))
    ciphertexts = KEY.public.encrypt(values)
    reports = []
    assert KEY.decrypt(ciphertexts, threads=1, progress=lambda *report: reports.append(report)) == values
    assert KEY.decrypt(ciphertexts, threads=3) == values
    assert reports[-1] == ("decrypting", 160, 160)  # modulo both primes


# --- bounded decryption ---------------------------------------------------------------------------------------------


@BOTH
@settings(max_examples=15)
@given(value=st.integers(-(2**64), 2**64))
def test_bounded_decryption_agrees_with_the_full_one(key, value):
    ciphertexts = key.public.encrypt([value])
    assert key.decrypt(ciphertexts, bound=2**64) == key.decrypt(ciphertexts) == [value]


@BOTH
def test_bounded_decryption_never_releases_what_is_beyond_the_bound(key):
    p, q = _factors(key)
    # The last two would reveal a prime as gcd(m - answer, n) if m mod p were released.
    for value in (101, -101, 2**600, p + 101, q * 2**300 + 5):
        for bound in (100, 2**400):
            if abs(value) > bound:
                with pytest.raises(MessageError, match="bound"):
                    key.decrypt(key.public.encrypt([1, value]), bound=bound)


def test_bound_too_close_to_the_prime_takes_the_full_path():
    p, _ = _factors(KEY)
    value = p + 12345  # within the bound, but not below p: half a decryption would get it wrong
    assert KEY.decrypt(KEY.public.encrypt([value]), bound=2**600) == [value]


# --- bytes ----------------------------------------------------------------------------------------------------------


def test_matrix_round_trip():
    ciphertexts = KEY.public.encrypt([1, -2, 3])
    matrix = ciphertexts.to_matrix()
    assert matrix.shape == (3, 256)
    assert Ciphertexts.from_matrix(KEY.public, matrix).values == ciphertexts.values
    assert len(Ciphertexts.from_matrix(KEY.public, matrix[:0])) == 0


def test_rows_that_are_no_ciphertexts_are_refused():
    p, q = _factors(KEY)
    n = p * q
    good = KEY.public.encrypt([1, 2]).to_matrix()
    for number in (0, n * n, n * n + 1, 2**2048 - 1, n, p, p * 5, q * q):
        bad = good.copy()
        bad[1] = np.frombuffer(number.to_bytes(256, "big"), dtype=np.uint8)
        with pytest.raises(MessageError):
            Ciphertexts.from_matrix(KEY.public, bad)
    for shape in (good[:, 1:], good[0], good.astype(np.int64)):
        with pytest.raises(MessageError, match="256"):
            Ciphertexts.from_matrix(KEY.public, shape)


@BOTH
def test_public_key_round_trip(key):
    data = key.public.to_bytes()
    again = PublicKey.from_bytes(data, insecure=True)
    assert again == key.public
    assert again.keys == key.public.keys
    assert hash(again) == hash(key.public)
    assert again.fingerprint == hashlib.sha256(data).hexdigest()


def test_keys_with_another_base_are_other_keys():
    assert KEY.public.n == CONSERVATIVE.public.n
    assert KEY.public != CONSERVATIVE.public
    assert KEY.public.fingerprint != CONSERVATIVE.public.fingerprint
    with pytest.raises(InputError, match="cannot add"):
        KEY.public.encrypt([1]) + CONSERVATIVE.public.encrypt([1])
    with pytest.raises(InputError, match="conservative"):
        generate_keys(3072, keys="conservativ")


def test_bases_that_cannot_be_right_are_refused():
    p, q = _factors(KEY)
    n, h = KEY.public.n, KEY.public.h
    one_mod_p = int(h * q * pow(q, -1, p) % n + p * pow(p, -1, q)) % n  # h modulo p, 1 modulo q
    non_residue = next(x for x in range(2, 100) if gmpy2.jacobi(x, n) == -1)
    for base in (-1, 1, n - 1, n + h, p, 5 * q, one_mod_p, h * non_residue % n):
        with pytest.raises(InputError, match="base"):
            PublicKey(n, base, insecure=True)


@pytest.mark.parametrize("bits", [512, 2047, 8192])
def test_other_key_lengths_are_refused(bits):
    with pytest.raises(InputError, match=str(bits)):
        generate_keys(bits, insecure=True)


def test_short_keys_need_the_flag_everywhere(tmp_path):
    assert inspect.signature(generate_keys).parameters["bits"].default == 3072
    KEY.save(tmp_path / "key")
    with pytest.raises(MessageError, match="insecure=True"):
        PublicKey.from_bytes(KEY.public.to_bytes())
    for attempt in (
        lambda: generate_keys(1024),
        lambda: PrivateKey.load(tmp_path / "key"),
        lambda: PublicKey(KEY.public.n),
    ):
        with pytest.raises(InputError, match="insecure=True"):
            attempt()


def test_moduli_that_cannot_be_right_are_refused():
    p, q = _factors(KEY)
    prime = int(gmpy2.next_prime(1 << 1023))
    while prime % 4 != 1:
        prime = int(gmpy2.next_prime(prime))
    for modulus in (p * q + 1, p * q + 2, prime, p * p, 3 * (1 << 1022) + 3, -(p * q)):
        with pytest.raises(InputError):
            PublicKey(modulus, insecure=True)


def test_private_keys_of_the_wrong_form_are_refused():
    p, q = _factors(KEY)
    one_mod_four = int(gmpy2.next_prime(1 << 511))
    while one_mod_four % 4 != 1:
        one_mod_four = int(gmpy2.next_prime(one_mod_four))
    for factors in ((p, p), (p, q + 2), (p, one_mod_four), (p, 7)):
        with pytest.raises(InputError, match="prime"):
            PrivateKey(*factors, insecure=True)
    a, b = map(int, KEY._orders)
    for orders in ((b, a), (a, 0), (a, -b), (a, 1), (2 * a, b), ((p - 1) // (2 * a), b), OTHER._orders):
        with pytest.raises(InputError, match="256"):
            PrivateKey(p, q, orders, insecure=True)


# --- secrets --------------------------------------------------------------------------------------------------------


@BOTH
def test_private_key_file_is_for_its_owner_alone(tmp_path, key):
    path = tmp_path / "keys" / "paillier.key"
    key.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    again = PrivateKey.load(path, insecure=True)
    assert again.public == key.public
    assert again.decrypt(key.public.encrypt([-42])) == [-42]
    path.chmod(0o640)
    with pytest.raises(StorageError, match="chmod 600"):
        PrivateKey.load(path, insecure=True)


def test_damaged_or_missing_key_file_is_refused(tmp_path):
    path = tmp_path / "paillier.key"
    with pytest.raises(StorageError, match="does not exist"):
        PrivateKey.load(path)
    KEY.save(path)
    data = path.read_bytes()
    for damaged in (data[:-1], b"", data[:20] + b"\xff" + data[21:], KEY.public.to_bytes(), data * 50):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError):
            PrivateKey.load(path, insecure=True)


def test_a_private_key_is_not_shown_pickled_or_copied():
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError):
            attempt(KEY)
    p, q = _factors(KEY)
    for text in (repr(KEY), str(KEY), f"{KEY}", repr(KEY.public), repr(KEY.public.encrypt([7]))):
        assert KEY.public.short_fingerprint in text
        assert len(text) < 100
        assert str(p)[:12] not in text
        assert hex(q)[2:14] not in text
