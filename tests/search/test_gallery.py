"""A gallery gives away what its statement says and no more, however often and however changed it is built again."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from blindsight.data import load
from blindsight.errors import BudgetExceededError, CorruptFileError, DataError, InputError, PrivacyError
from blindsight.search.building import Wish, answer_sheet, build_gallery, evaluate_gallery, name_answers, read_origin
from blindsight.search.gallery import Gallery
from blindsight.search.origin import Origin, Source

LOCAL = Wish("local", 4.0, 1e-6, 64, public_share=0.5, hold_out=20)
CENTRAL = Wish("central", 4.0, 1e-6, 16)
DIGITS = Source("digits", count=300)
pytestmark = pytest.mark.usefixtures("few_cells")


def write_digits(folder, count, *, first=0):
    """Write pictures under names that tell what nobody should know."""
    digits = load("digits")
    for row in range(first, first + count):
        place = folder / f"patient {digits.labels[row]}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.images[row]).save(place / f"scan {row}.png")


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """A folder of pictures, and a gallery of them."""
    folder = tmp_path_factory.mktemp("gallery")
    write_digits(folder / "pictures", 120)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blindsight.search.localmode.MOST_CELLS", 8)
        build_gallery(Source("folder", str(folder / "pictures")), LOCAL, folder / "index")
    return folder


def released(gallery: Gallery) -> dict[int, int]:
    numbers, searcher = gallery.searcher()
    return dict(zip(numbers.tolist(), searcher.released.tolist(), strict=True))


def test_what_may_be_given_away_names_nothing(scans):
    folder = scans / "index"
    origin = read_origin(folder)
    assert len(origin.names[origin.parts == 1]) == 20
    given = [path for path in folder.rglob("*") if path.is_file() and "private" not in path.parts]
    assert {path.name for path in given} == {"gallery.json", "hasher.npz", "index.bin", "statement.json"}
    for path in given:
        content = path.read_bytes()
        for secret in (b"patient", b"scan", str(scans).encode()):
            assert secret not in content, path
    for path in (folder / "private", *(folder / "private").iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
    numbers, _ = Gallery.load(folder).searcher()
    assert (np.diff(numbers) > 0).all()  # the order of the numbers, which are random
    names = origin.names_of(numbers)
    assert names != sorted(names)


def test_building_again_costs_nothing_and_learning_again_once_more(tmp_path):
    write_digits(tmp_path / "pictures", 120)
    source, folder = Source("folder", str(tmp_path / "pictures")), tmp_path / "index"
    with pytest.raises(PrivacyError, match="100 of 100"):  # private pictures may not be the public ones
        build_gallery(source, replace(LOCAL, public_share=None), folder, public=source.load())
    shutil.rmtree(folder, ignore_errors=True)
    ledger = tmp_path / "ledger.jsonl"
    first = build_gallery(source, replace(LOCAL, budget=12.0, ledger=ledger), folder)
    again = build_gallery(source, replace(LOCAL, ledger=ledger), folder)
    assert released(first) == released(again)
    assert again.statement.epsilon == 4.0
    relearned = build_gallery(source, replace(LOCAL, relearn=True, ledger=ledger), folder)
    assert relearned.statement.epsilon == 8.0
    beside = build_gallery(source, replace(LOCAL, ledger=ledger), tmp_path / "beside")
    assert beside.statement.epsilon == 12.0  # two folders under one ledger add up
    with pytest.raises(BudgetExceededError):
        build_gallery(source, replace(LOCAL, relearn=True, ledger=ledger), folder)
    assert len(Gallery.load(folder)) == len(relearned)  # the refused one changed nothing


def test_growing_shrinking_and_changing(tmp_path):
    folder = tmp_path / "pictures"
    write_digits(folder, 120)
    source = Source("folder", str(folder))
    first = build_gallery(source, LOCAL, tmp_path / "index")
    write_digits(folder, 30, first=500)
    origin = read_origin(tmp_path / "index")
    numbers, _ = first.searcher()
    gone, *others = origin.names_of(numbers)
    (folder / gone).unlink()
    second = build_gallery(source, LOCAL, tmp_path / "index")
    before, after = released(first), released(second)
    assert len(after) == len(before) - 1 + 30  # all that is new is indexed, none of it public
    number = dict(zip([gone, *others], numbers.tolist(), strict=True))
    assert number[gone] not in after
    assert all(after[number[name]] == before[number[name]] for name in others)
    assert second.statement.epsilon == 4.0  # nobody was released twice


def test_central_function_is_kept_until_learned_again_and_parts_of_galleries_do_not_mix(tmp_path):
    first = build_gallery(DIGITS, CENTRAL, tmp_path / "one")
    assert build_gallery(DIGITS, CENTRAL, tmp_path / "one").hasher.digest == first.hasher.digest
    relearned = build_gallery(DIGITS, replace(CENTRAL, relearn=True), tmp_path / "one")
    assert relearned.hasher.digest != first.hasher.digest
    assert relearned.statement.epsilon > first.statement.epsilon
    assert (tmp_path / "one" / "index.bin").stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="otherwise"):
        build_gallery(DIGITS, replace(CENTRAL, epsilon=2.0), tmp_path / "one")
    about = json.loads((tmp_path / "one" / "gallery.json").read_text())
    for change in ({"features": 5}, {"format": 2}, {"mode": "magic"}, {"sha256": {}}):
        (tmp_path / "one" / "gallery.json").write_text(json.dumps(about | change))
        with pytest.raises(CorruptFileError):
            Gallery.load(tmp_path / "one")
    (tmp_path / "one" / "gallery.json").write_text(json.dumps(about))
    build_gallery(DIGITS, replace(CENTRAL, epsilon=1.0), tmp_path / "two")
    shutil.copy(tmp_path / "two" / "statement.json", tmp_path / "one" / "statement.json")
    with pytest.raises(CorruptFileError, match=r"statement\.json"):
        Gallery.load(tmp_path / "one")


def test_without_the_owners_table_pictures_are_numbers(tmp_path):
    gallery = build_gallery(DIGITS, replace(LOCAL, epsilon=8.0), tmp_path)
    ranking = evaluate_gallery(gallery, tmp_path)  # asks with what was held out, or named
    assert (ranking.queries, ranking.items) == (20, 130)
    assert ranking.mean_average_precision > 0.15  # chance is about .1
    assert evaluate_gallery(gallery, tmp_path, load("digits", count=60, random_state=9), count=40).queries == 40
    query = DIGITS.load().images[0]
    found = gallery.search(query[None], 3)[0]
    assert answer_sheet(gallery, tmp_path, query, found) is not None
    shutil.rmtree(tmp_path / "private")
    given = Gallery.load(tmp_path)
    assert given.search(query[None], 3)[0] == found
    assert name_answers(tmp_path, found) == [str(hit.number) for hit in found]
    assert answer_sheet(given, tmp_path, query, found) is None
    with pytest.raises(DataError, match="owner"):
        evaluate_gallery(given, tmp_path)


def test_few_pictures_make_short_codes(tmp_path):
    gallery = build_gallery(Source("digits", count=5), Wish("open", None, 1e-6, 64), tmp_path)
    assert gallery.hasher.bits == 4


def test_origins_are_kept_whole_and_their_numbers_drawn_every_time(tmp_path):
    dataset = DIGITS.load()
    origin, other = (Origin.begin(DIGITS, dataset, public=0.25, held_out=10, random_state=0) for _ in range(2))
    assert not np.intersect1d(origin.numbers, other.numbers).size
    origin.save(tmp_path / "origin")
    again = Origin.load(tmp_path / "origin")
    assert again.source == DIGITS
    np.testing.assert_array_equal(again.numbers, origin.numbers)
    assert np.bincount(again.parts).tolist() == [215, 10, 75]
    with pytest.raises(DataError, match="table"):
        again.names_of(np.array([-1]))
    (tmp_path / "origin").write_bytes(b"nothing")
    with pytest.raises(CorruptFileError):
        Origin.load(tmp_path / "origin")
