"""Encrypted queries agree with Hamming distances, tell no more than is stated, and survive whatever is sent."""

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tenseal")

from blindsight.crypto.wire import decode, encode
from blindsight.data import Thumbnails, load
from blindsight.errors import (
    BudgetExceededError,
    CorruptFileError,
    InputError,
    MessageError,
    PrivacyError,
    StorageError,
)
from blindsight.rng import science
from blindsight.search import encrypted_query as module
from blindsight.search.building import BuildOptions, build_gallery
from blindsight.search.codes import hamming, pack, unpack
from blindsight.search.encrypted_query import (
    EncryptedQuery,
    EncryptedScan,
    QueryBudget,
    QueryServer,
    QuerySetup,
    most_of,
    short_embeddings,
    statement,
    told_bits,
)
from blindsight.search.gallery import Gallery, Source
from blindsight.search.index import HammingIndex
from blindsight.search.itq import ITQ

BITS = 16
IMAGES = load("digits", count=200).images


def drawn(rows: int, bits: int = BITS) -> np.ndarray:
    return pack(science(rows).random((rows, bits)) < 0.5)


@pytest.fixture(scope="module")
def scan():
    return EncryptedScan(drawn(50), BITS)


@pytest.fixture(scope="module")
def query():
    return EncryptedQuery.of_code(drawn(50)[0], BITS)


@pytest.mark.parametrize(("rows", "bits"), [(1, 1), (4095, 7), (4096, 8), (300, 128)])
def test_distances_are_those_of_the_codes(rows, bits):
    codes = drawn(rows, bits)
    scan = EncryptedScan(codes, bits)
    for code in (codes[0], np.zeros_like(codes[0]), ~codes[0] & pack(np.ones((1, bits)))[0]):
        query = EncryptedQuery.of_code(code, bits)
        found = query.distances(scan.answer(scan.read(query.message)))
        assert (found == hamming(code[None], codes)[0]).all()


@pytest.mark.parametrize(("rows", "width", "bits"), [(4096, 5, 2), (300, 64, 4), (40, 128, 6)])
def test_products_are_those_of_the_embeddings_and_rank_as_cosines_do(rows, width, bits):
    most, scores = most_of(bits), np.clip(science(rows).standard_normal((rows, width)), -2, 2)
    scores[:3] = np.eye(width)[:3] * 1e6  # all in one number: cut off
    embeddings = short_embeddings(scores, most)
    scan = EncryptedScan(embeddings, width, most=most)
    for asked in (embeddings[-1], -embeddings[0]):
        query = EncryptedQuery.of_embedding(asked, most)
        found = query.products(scan.answer(scan.read(query.message)))
        assert (found == embeddings.astype(int) @ asked.astype(int)).all()
    units = scores / np.linalg.norm(scores, axis=1, keepdims=True)
    exact, near = units @ units[-1], found_of(scan, embeddings[-1], most) * 9 / (most**2 * width)
    plain = np.abs(units).max(axis=1) * math.sqrt(width) <= 3  # not cut off, so wrong by rounding alone:
    assert np.abs(exact - near)[plain].max() <= 3 / most + 9 / (4 * most**2)  # 1/2 of a step in each of d numbers
    with pytest.raises(MessageError, match="numbers"):
        scan.read(EncryptedQuery(np.ones(width, dtype=np.int64)).message)


def found_of(scan, embedding, most):
    query = EncryptedQuery.of_embedding(embedding, most)
    return query.products(scan.answer(scan.read(query.message)))


def test_products_tell_no_more_than_their_range_and_larger_embeddings_are_refused():
    for width, bits in ((64, 4), (128, 6), (1024, 6)):
        modulus = module.plain_modulus(width, most_of(bits))
        assert math.log2(modulus) < told_bits(width, most_of(bits)) < math.log2(modulus) + 0.4
    long = np.full((1, 64), 7)
    for wrong in (long, np.full((1, 64), 0.5), np.eye(64, dtype=int)[:1] * 8, np.zeros((1, 63), dtype=int)):
        with pytest.raises(InputError, match="embeddings"):
            EncryptedScan(wrong, 64, most=7)
    with pytest.raises(InputError, match="embeddings"):
        EncryptedQuery.of_embedding(long[0], 7)
    assert told_bits(BITS) < 4.11  # that of a distance
    # The mask is uniform but for 2^-60: eps^2 < n q / (4 s^12) (1 + 1e-6).
    assert 4096 * module._MODULUS / (4 * module._MASK**module._ZEROS) * (1 + 1e-6) < 2.0**-120


def test_an_empty_index_answers_with_nothing(query):
    scan = EncryptedScan(drawn(0), BITS)
    assert not len(query.distances(scan.answer(scan.read(query.message))))


def test_a_query_shows_nothing_of_the_code(query):
    again = EncryptedQuery.of_code(drawn(50)[0], BITS)
    first, second = (decode(one.message, module._QueryMessage) for one in (query, again))
    numbers = [
        np.frombuffer(part[123 : 123 + 8 * 4096], dtype="<u8")
        for message in (first, second)
        for part in (*message.weights, *message.zeros)
    ]
    assert len(np.unique(np.concatenate(numbers))) > 0.999 * sum(map(len, numbers))  # +1, -1 and 0 look alike
    with pytest.raises(PrivacyError):
        pickle.dumps(query)
    assert "hidden" in repr(query)


def test_weights_read_as_many_bits_as_stated_and_no_more():
    """The best attack with well-formed queries: powers of two as weights, so that a sum spells bits."""
    codes = drawn(200)
    each = int(told_bits(BITS))
    scan, known = EncryptedScan(codes, BITS), []
    for begin in range(0, BITS, each):
        weights = np.zeros(BITS, dtype=np.int64)
        weights[begin : begin + each] = 1 << np.arange(min(each, BITS - begin))
        query = EncryptedQuery(weights)
        sums = query.distances(scan.answer(scan.read(query.message)))
        known += [(sums >> place) & 1 for place in range(min(each, BITS - begin))]
    assert (unpack(codes, BITS) == np.array(known).T).all()
    assert each == 4  # four queries for 16 bits
    for bits in (16, 64, 128, 1024):
        assert math.log2(bits + 1) < told_bits(bits) < math.log2(bits + 1) + 0.3


def test_without_the_mask_ciphertexts_identify_records_and_with_it_they_do_not(scan, query):
    """An asker who knows all records but one computes what the answer would be for either guess."""
    guess = drawn(50)
    guess[3] ^= 1
    scheme, (zeros, weights) = scan._scheme, scan.read(query.message)
    right, wrong, again = (one._sum(weights, one._blocks[0]) for one in (scan, EncryptedScan(guess, BITS), scan))
    assert scheme.saved([right]) == scheme.saved([again]) != scheme.saved([wrong])
    masked = scheme.saved(scheme.masked(total, zeros, module.system_bytes) for total in (right, again, wrong))
    numbers = [np.frombuffer(part, dtype="<u8", offset=len(part) - 16 * 4096) for part in masked]
    for one, other in ((0, 1), (0, 2)):  # answers to the same differ as answers to others do: everywhere
        assert np.mean(numbers[one] == numbers[other]) < 0.01
    decryptor = scheme.seal.Decryptor(scheme.context, query._key)
    kept = list(scheme.loaded(masked, seeded=False))
    assert decryptor.invariant_noise_budget(kept[0]) == 0  # the noise fills what the distances leave


@pytest.mark.parametrize(
    "spoil",
    [
        lambda parts: parts[:-1],
        lambda parts: (parts[0][:-1], *parts[1:]),
        lambda parts: (b"", *parts[1:]),
        lambda parts: (parts[0][:40] + bytes([parts[0][40] ^ 1]) + parts[0][41:], *parts[1:]),  # another ring
        lambda parts: (parts[0][:123] + b"\xff" * 8 + parts[0][131:], *parts[1:]),  # beyond the modulus
        lambda parts: (parts[0] + b"\0" * (2 * 8 * 4096), *parts[1:]),
        lambda parts: (parts[0][:21] + b"\x03\x00\x10" + parts[0][24:], *parts[1:]),  # a bomb of equal bytes
    ],
)
@pytest.mark.parametrize("field", ["weights", "zeros"])
def test_what_is_no_query_gets_a_sentence(scan, query, spoil, field):
    told = decode(query.message, module._QueryMessage)
    fields = {name: getattr(told, name) for name in ("bits", "most", "zeros", "weights")}
    with pytest.raises(MessageError):
        scan.read(encode(module._QueryMessage(**fields | {field: spoil(fields[field])})))


def test_queries_for_others_and_equal_seeds_are_refused(scan, query):
    told = decode(query.message, module._QueryMessage)
    with pytest.raises(MessageError, match="seed"):
        scan.read(encode(module._QueryMessage(told.bits, 0, told.zeros[:1] * len(told.zeros), told.weights)))
    with pytest.raises(MessageError, match="16 bits"):
        scan.read(EncryptedQuery.of_code(drawn(1, 24)[0], 24).message)
    foreign = decode(EncryptedQuery.of_code(drawn(1, 24)[0], 24).message, module._QueryMessage)
    with pytest.raises(MessageError, match="parameters"):
        scan.read(encode(module._QueryMessage(BITS, 0, foreign.zeros, foreign.weights[:BITS])))
    whole = scan._scheme.seal.Ciphertext()  # not seeded: its second half is the asker's choice
    key = scan._scheme.seal.KeyGenerator(scan._scheme.context).secret_key()
    scan._scheme.seal.Encryptor(scan._scheme.context, key).encrypt_zero_symmetric(whole)
    chosen = scan._scheme.saved([whole])
    with pytest.raises(MessageError, match="parameters"):
        scan.read(encode(module._QueryMessage(BITS, 0, told.zeros, chosen + told.weights[1:])))
    for weights in (np.zeros(2000, dtype=np.int64), np.zeros(3), np.zeros((2, 2), dtype=np.int64)):
        with pytest.raises(InputError):
            EncryptedQuery(weights)
    with pytest.raises(InputError, match="1024"):
        EncryptedScan(drawn(1, 2000), 2000)


def test_another_key_reads_nothing(scan, query):
    answer = scan.answer(scan.read(query.message))
    other = EncryptedQuery.of_code(drawn(50)[0], BITS)
    assert (query.distances(answer) != other.distances(answer)).mean() > 0.5  # equal by chance: 1 in 17; below 1e-15
    with pytest.raises(MessageError, match="another query"):
        EncryptedQuery.of_code(drawn(1, 24)[0], 24).distances(answer)
    told = decode(answer, module._AnswerMessage)
    for count, parts in ((50, ()), (5000, told.parts), (-1, ()), (50, (told.parts[0][:-1],)), (50, (b"",))):
        with pytest.raises(MessageError):
            query.distances(encode(module._AnswerMessage(BITS, 0, count, parts)))


def test_a_budget_is_kept_on_disk_and_never_overspent(tmp_path):
    budget = QueryBudget(tmp_path)
    with pytest.raises(PrivacyError, match="allows no"):
        budget.spend()
    budget.allow(2)
    for left in (1, 0):
        QueryBudget(tmp_path).spend()
        assert budget.left == left
    with pytest.raises(BudgetExceededError, match="all 2"):
        budget.spend()
    budget.allow(3)  # three in all
    assert (budget.most, budget.left) == (3, 1)
    with pytest.raises(InputError):
        budget.allow(-1)
    path = tmp_path / "private" / "queries.json"
    assert path.stat().st_mode & 0o777 == 0o600
    for text in ("{", json.dumps({"most": 1, "asked": -1}), json.dumps({"most": True, "asked": 0})):
        path.write_text(text)
        with pytest.raises(CorruptFileError):
            budget.spend()


@pytest.mark.parametrize("linked", ["folder", "file"])
def test_a_budget_through_a_link_is_the_same_and_one_of_two_hard_links_is_refused(tmp_path, linked):
    path, other = tmp_path / "index" / "private" / "queries.json", tmp_path / "other" / "private" / "queries.json"
    first, second = (QueryBudget(one.parent.parent) for one in (path, other))
    first.allow(3)
    if linked == "folder":
        other.parent.parent.symlink_to(path.parent.parent)
    else:
        other.parent.mkdir(parents=True)
        other.symlink_to(path)
    for left, budget in ((2, second), (1, first), (0, second)):
        budget.spend()
        assert (first.left, second.left) == (left, left)
    for budget in (first, second):
        with pytest.raises(BudgetExceededError):
            budget.spend()
    first.allow(4)
    (tmp_path / "copy").hardlink_to(path)
    for budget in (first, second):
        with pytest.raises(StorageError, match="2 hard links"):
            budget.spend()
    assert first.left == 1


@pytest.mark.parametrize("numbers", [None, 4])
def test_a_gallery_is_asked_as_if_it_were_here(tmp_path, numbers):
    images = science(3).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    rows = Thumbnails().transform(images)
    function = ITQ(BITS, random_state=0).fit(rows).function_
    index = HammingIndex(BITS)
    index.add(np.arange(100, 140), function(rows))
    said = statement(BITS, 2, learned="learned from public pictures alone")
    most = 0 if numbers is None else most_of(numbers)
    short = short_embeddings(function.scores(rows), most) if most else None
    settings = {"numbers": numbers, "learned from": "public pictures"}
    gallery = Gallery("open", "thumbnail", 8, said, function, index, settings, short=short)
    gallery.save(tmp_path)
    gallery = Gallery.load(tmp_path)
    index = gallery.index
    server = QueryServer(gallery, tmp_path)
    with pytest.raises(PrivacyError, match="allow"):
        server.setup()
    server.budget.allow(2)
    setup = QuerySetup.from_bytes(server.setup().to_bytes())
    query = setup.encrypt(images[9])
    with pytest.raises(MessageError):
        server.answer(query.message[:100])
    assert server.budget.left == 2  # what cannot be read costs nothing
    found = setup.nearest(query, server.answer(query.message), 5)
    if short is None:
        assert found == gallery.search(images[9:10], 5)[0]
    else:
        products = short.astype(int) @ short[9].astype(int)
        best = np.argsort(-products, kind="stable")[:5]
        assert [(hit.number, hit.nearness) for hit in found] == [(100 + place, products[place]) for place in best]
        assert setup.statement.who_sees["asker"].startswith("the inner product")
    index.remove([100])
    gallery = replace(gallery, short=None if short is None else short[1:])
    fresh = QueryServer(gallery, tmp_path)
    with pytest.raises(MessageError, match="changed"):
        setup.nearest(query, fresh.answer(query.message), 5)
    with pytest.raises(BudgetExceededError):
        fresh.answer(query.message)
    with pytest.raises(MessageError):
        QuerySetup.from_bytes(module.file_bytes(module._KIND, {}, {}))


def thumbnails(tmp_path, name, rows):
    folder = tmp_path / name
    folder.mkdir()
    for row in rows:
        Image.fromarray(IMAGES[row]).save(folder / f"{row:03}.png")
    return Source("folder", str(folder))


BUILT = {
    "open": (BuildOptions("open", None, 0.0, BITS, "thumbnail"), False),
    "open, numbers": (BuildOptions("open", None, 0.0, BITS, "thumbnail", numbers=4), False),
    "open, public pictures": (BuildOptions("open", None, 0.0, BITS, "thumbnail"), True),
    "open, public share": (BuildOptions("open", None, 0.0, BITS, "thumbnail", public_share=0.4, numbers=4), False),
    "central": (BuildOptions("central", 2.0, 1e-6, BITS, "thumbnail"), False),
    "central, public pictures": (BuildOptions("central", 2.0, 1e-6, BITS, "thumbnail"), True),
}


@pytest.mark.parametrize(("options", "public"), BUILT.values(), ids=BUILT)
def test_a_function_that_was_learned_from_the_pictures_without_noise_is_not_given_away(tmp_path, options, public):
    """Between two set-ups one picture is added. Of a mean of 60 and one of 61 rows the difference is that picture."""
    source, others = thumbnails(tmp_path, "pictures", range(60)), thumbnails(tmp_path, "others", range(100, 160))
    means = []
    for count in (60, 61):
        if count == 61:
            Image.fromarray(IMAGES[60]).save(tmp_path / "pictures" / "060.png")
        gallery = build_gallery(source, options, tmp_path / "index", public=others if public else None)
        means.append(gallery.hasher.mean.astype(np.float64))
        kept, again = Gallery.load(tmp_path / "index"), tmp_path / "index"
        if options.mode == "open" and not public and options.public_share is None:
            for old in (kept, replace(kept, settings={})):  # of a version that kept no record
                with pytest.raises(PrivacyError, match="public pictures"):
                    QueryServer(old, again)
            continue
        server = QueryServer(kept, again)
        server.budget.allow(2)
        setup = QuerySetup.from_bytes(server.setup().to_bytes())
        np.testing.assert_array_equal(setup.hasher.mean, gallery.hasher.mean)
        (asker,) = (text for role, text in setup.statement.who_sees.items() if role == "all who ask")
        assert ("public pictures" if options.mode == "open" else "epsilon =") in asker
    read = 61 * means[1] - 60 * means[0]
    added = Thumbnails().transform(replace(source, side=kept.side).load().images[60:])[0]
    found = np.abs(read - added).max() < 1e-4
    if options.mode == "open":
        assert found == (not public and options.public_share is None)  # the attack works where it is refused
    else:
        assert not found
        np.testing.assert_array_equal(*means)  # paid for once
    if options.mode == "open":
        with pytest.raises(PrivacyError, match="public pictures"):  # the mode alone proves nothing
            QueryServer(replace(kept, mode="central", settings={}), again)


def test_the_statement_says_who_sees_what():
    said = statement(128, 4, learned="learned from public pictures alone")
    assert said.guarantee == "cryptographic"
    assert "not the picture" in said.who_sees["operator of the search"]
    assert f"{4 * told_bits(128):.1f} of each picture's 128 bits" in said.who_sees["all who ask"]
    assert any("19 well-chosen" in line for line in said.not_protected)  # 128 / 7.01
