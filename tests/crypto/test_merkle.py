"""Roots and proofs are those of RFC 6962: known values, the recursive definition as oracle, and no forgery passes."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blindsight.crypto.merkle import EMPTY, Tree, consistent, extend, included, leaf_hash, root_of
from blindsight.errors import InputError

# Inputs and roots of sizes 1 to 8 as Certificate Transparency's own reference tests have them.
RECORDS = [bytes.fromhex(one) for one in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
RECORDS.append(bytes.fromhex("606162636465666768696a6b6c6d6e6f"))
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def stored(records):
    """What a log keeps with each record, by position, and the root after each."""
    peaks, kept, roots = [], {}, [EMPTY]
    for size, record in enumerate(records):
        leaf = leaf_hash(record)
        kept[size + 1] = leaf, extend(peaks, size, leaf)
        roots.append(root_of(peaks))
    return Tree(lambda positions: {one: kept[one] for one in positions}), roots


def mth(records):
    """MTH of RFC 6962, section 2.1, as it is written there."""
    if len(records) < 2:
        return hashlib.sha256(b"\0" + records[0] if records else b"").digest()
    k = largest(len(records))
    return hashlib.sha256(b"\1" + mth(records[:k]) + mth(records[k:])).digest()


def path(m, records):
    """PATH of section 2.1.1."""
    if len(records) == 1:
        return []
    k = largest(len(records))
    if m < k:
        return [*path(m, records[:k]), mth(records[k:])]
    return [*path(m - k, records[k:]), mth(records[:k])]


def subproof(m, records, whole):
    """SUBPROOF of section 2.1.2."""
    if m == len(records):
        return [] if whole else [mth(records)]
    k = largest(len(records))
    if m <= k:
        return [*subproof(m, records[:k], whole), mth(records[k:])]
    return [*subproof(m - k, records[k:], False), mth(records[:k])]


def largest(n):
    return max(2**power for power in range(n.bit_length()) if 2**power < n)


def test_roots_are_those_of_certificate_transparency():
    tree, roots = stored(RECORDS)
    assert [root.hex() for root in roots[1:]] == ROOTS
    assert [tree.root(size).hex() for size in range(1, 9)] == ROOTS
    assert tree.root(0) == EMPTY


def test_roots_and_proofs_are_those_of_the_definition():
    records = [bytes([number]) for number in range(37)]
    tree, roots = stored(records)
    for size in range(1, 38):
        assert tree.root(size) == roots[size] == mth(records[:size])
        for position in range(1, size + 1):
            proof = tree.inclusion(position, size)
            assert proof == path(position - 1, records[:size])
            assert included(leaf_hash(records[position - 1]), position, size, proof, roots[size])
            proof = tree.consistency(position, size)
            assert proof == subproof(position, records[:size], True)
            assert consistent(position, roots[position], size, roots[size], proof)
        assert consistent(0, EMPTY, size, roots[size], tree.consistency(0, size))


@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 69), st.data())
def test_nothing_else_is_proven(first, second, altered, data):
    """Another record, place, size, root or proof: none passes (SHA-256 has no collisions in reach)."""
    first, second = sorted((first, second))
    records = [bytes([number]) for number in range(second)]
    tree, roots = stored(records)
    proof = tree.inclusion(first, second)
    leaf = leaf_hash(records[first - 1])
    assert not included(leaf_hash(b"other"), first, second, proof, roots[second])
    assert not included(leaf, first % second + 1, second, proof, roots[second]) or second == 1
    assert not included(leaf, first, second, [*proof, EMPTY], roots[second])
    consistency = tree.consistency(first, second)
    records[altered % first] = b"altered"
    other = stored(records)[1]
    assert not consistent(first, other[first], second, roots[second], consistency)
    assert not consistent(first, roots[first], second, other[second], consistency)
    assert not consistent(first, roots[first], second, roots[second], [*consistency, EMPTY])
    if consistency:
        index = data.draw(st.integers(0, len(consistency) - 1))
        wrong = [*consistency[:index], EMPTY, *consistency[index + 1 :]]
        assert not consistent(first, roots[first], second, roots[second], wrong)
        assert not consistent(first, roots[first], second, roots[second], consistency[:-1])


def test_proofs_read_little():
    read = set()

    def fetch(positions):
        read.update(positions)
        return dict.fromkeys(positions, (EMPTY, EMPTY))

    size = 2**20 + 12345
    Tree(fetch).inclusion(2**19 + 3, size)
    Tree(fetch).consistency(2**18 + 77, size)
    assert len(read) < 400


def test_places_outside_the_log_are_refused():
    tree, _ = stored(RECORDS)
    for wrong in (lambda: tree.inclusion(0, 8), lambda: tree.inclusion(9, 8), lambda: tree.consistency(9, 8)):
        with pytest.raises(InputError):
            wrong()
