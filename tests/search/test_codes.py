"""Packed codes against bit-by-bit counting and against faiss."""

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from blindsight.errors import InputError
from blindsight.search.codes import blocks, check_codes, code_bytes, hamming, pack, unpack

bit_rows = nps.arrays(np.bool_, st.tuples(st.integers(0, 5), st.integers(1, 150)))


@settings(deadline=None)
@given(bit_rows)
def test_packing_and_unpacking_give_the_bits_back(bits):
    codes = pack(bits)
    assert codes.shape == (len(bits), code_bytes(bits.shape[1]))
    np.testing.assert_array_equal(unpack(codes, bits.shape[1]), bits)
    np.testing.assert_array_equal(pack(np.where(bits, 1, -1)), codes)


@pytest.mark.parametrize("bits", [3, 8, 48, 64, 65, 200])
def test_distances_against_counting_and_against_faiss(bits):
    rng = np.random.default_rng(bits)
    queries, items = rng.random((7, bits)) < 0.5, rng.random((30, bits)) < 0.5
    counted = (queries[:, None, :] != items[None, :, :]).sum(axis=2)
    found = hamming(pack(queries), pack(items))
    np.testing.assert_array_equal(found, counted)
    index = faiss.IndexBinaryFlat(8 * code_bytes(bits))
    index.add(pack(items))
    nearest, _ = index.search(pack(queries), 30)
    np.testing.assert_array_equal(np.sort(found, axis=1), nearest)


def test_bit_j_stands_in_byte_j_over_8_at_position_j_mod_8():
    for j in range(20):
        code = pack(np.arange(20)[None, :] == j)[0]
        assert code[j // 8] == 1 << (j % 8)
        assert code.sum() == code[j // 8]


def test_distances_do_not_care_how_the_codes_lie_in_memory():
    codes = pack(np.random.default_rng(0).random((40, 24)) < 0.5)
    expected = hamming(codes[::2].copy(), np.asfortranarray(codes))
    np.testing.assert_array_equal(hamming(codes[::2], codes[:, :]), expected)
    longest = hamming(np.zeros((1, 8191), np.uint8), np.full((1, 8191), 255, np.uint8))
    assert longest[0, 0] == 65528


def test_blocks_cover_every_row_once():
    assert [list(range(10))[span] for span in blocks(10, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert not list(blocks(0, 4))


def test_bad_codes_are_refused():
    one, two, long = np.zeros((2, 1), np.uint8), np.zeros((2, 2), np.uint8), np.zeros((1, 8192), np.uint8)
    for call, named in [
        *((lambda bits=bits: code_bytes(bits), f"got {bits}") for bits in (0, 65529, True, 8.0)),
        *((lambda bits=bits: pack(bits), "shape") for bits in ([1, 0], np.empty((3, 0)))),
        (lambda: check_codes(two, 8), r"\(2, 2\)"),
        (lambda: check_codes(one.astype(float), 8), "float64"),
        (lambda: check_codes(one + np.uint8(4), 2, "query codes"), "query codes have bits beyond the 2"),
        (lambda: hamming(one, two), "1 and 2 bytes"),
        (lambda: hamming(long, long), "8191 bytes"),
        (lambda: hamming(one.astype(float), one), "packed"),
    ]:
        with pytest.raises(InputError, match=named):
            call()
