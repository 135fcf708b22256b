"""A gallery gives away what its statement says and no more, however often and however changed it is built again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

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
DIGITS = Source("digits", count=400)


def write_digits(folder: Path, count: int, *, first: int = 0) -> None:
    """Write pictures under names that tell what nobody should know."""
    digits = load("digits")
    assert digits.images is not None
    assert digits.labels is not None
    for row in range(first, first + count):
        place = folder / f"patient {digits.labels[row]}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.images[row].repeat(4, axis=0).repeat(4, axis=1)).save(place / f"scan {row}.png")


@pytest.fixture
def pictures(tmp_path: Path) -> Source:
    write_digits(tmp_path / "pictures", 240)
    return Source("folder", str(tmp_path / "pictures"))


def released(gallery: Gallery) -> dict[int, int]:
    numbers, searcher = gallery.searcher()
    return dict(zip(numbers.tolist(), searcher.released.tolist(), strict=True))


def test_what_may_be_given_away_names_nothing(pictures, tmp_path):
    folder = tmp_path / "index"
    build_gallery(pictures, LOCAL, folder)
    held = read_origin(folder).names[read_origin(folder).parts == 1]
    assert len(held) == 20
    given = [path for path in folder.rglob("*") if path.is_file() and "private" not in path.parts]
    assert {path.name for path in given} == {"gallery.json", "hasher.npz", "index.bin", "statement.json"}
    for path in given:
        content = path.read_bytes()
        for secret in (b"patient", b"scan", str(tmp_path).encode()):
            assert secret not in content, path
    for path in (folder / "private").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    assert (folder / "private").stat().st_mode & 0o077 == 0


def test_order_of_an_index_tells_nothing_of_the_order_of_pictures(pictures, tmp_path):
    numbers, _ = build_gallery(pictures, LOCAL, tmp_path / "index").searcher()
    assert (np.diff(numbers) > 0).all()  # the order of the numbers, which are random
    names = read_origin(tmp_path / "index").names_of(numbers)
    assert names != sorted(names)


def test_private_pictures_may_not_be_the_public_ones(pictures, tmp_path):
    wish = replace(LOCAL, public_share=None)
    with pytest.raises(PrivacyError, match="220 of 220 private pictures are among the public ones"):
        build_gallery(pictures, wish, tmp_path / "index", public=pictures.load())


def test_building_again_changes_and_costs_nothing(pictures, tmp_path):
    wish = replace(LOCAL, budget=4.0)
    first = build_gallery(pictures, wish, tmp_path / "index")
    again = build_gallery(pictures, wish, tmp_path / "index")
    assert released(first) == released(again)
    assert again.statement.epsilon == 4.0


def test_growing_shrinking_and_changing(pictures, tmp_path):
    wish = LOCAL
    first = build_gallery(pictures, wish, tmp_path / "index")
    folder = Path(pictures.path)
    write_digits(folder, 30, first=500)
    origin = read_origin(tmp_path / "index")
    numbers, _ = first.searcher()
    gone, *others = origin.names_of(numbers)
    (folder / gone).unlink()
    second = build_gallery(pictures, wish, tmp_path / "index")
    before, after = released(first), released(second)
    assert len(after) == len(before) - 1 + 30  # all that is new is indexed, none of it public
    number = dict(zip([gone, *others], numbers.tolist(), strict=True))
    assert number[gone] not in after
    assert all(after[number[name]] == before[number[name]] for name in others)
    assert second.statement.epsilon == 4.0  # nobody was released twice


def test_learning_anew_costs_once_more(pictures, tmp_path):
    build_gallery(pictures, replace(LOCAL, budget=8.0), tmp_path / "index")
    again = build_gallery(pictures, replace(LOCAL, relearn=True), tmp_path / "index")
    assert again.statement.epsilon == 8.0
    with pytest.raises(BudgetExceededError):
        build_gallery(pictures, replace(LOCAL, relearn=True), tmp_path / "index")
    assert len(Gallery.load(tmp_path / "index")) == len(again)  # the refused one changed nothing


def test_two_folders_under_one_ledger_add_up(pictures, tmp_path):
    wish = replace(LOCAL, ledger=tmp_path / "ledger.jsonl")
    build_gallery(pictures, wish, tmp_path / "one")
    assert build_gallery(pictures, wish, tmp_path / "two").statement.epsilon == 8.0


def test_central_function_is_kept_until_learned_anew(tmp_path):
    first = build_gallery(DIGITS, CENTRAL, tmp_path)
    again = build_gallery(DIGITS, CENTRAL, tmp_path)
    assert again.hasher.digest == first.hasher.digest
    anew = build_gallery(DIGITS, replace(CENTRAL, relearn=True), tmp_path)
    assert anew.hasher.digest != first.hasher.digest
    assert anew.statement.epsilon > first.statement.epsilon
    assert (tmp_path / "index.bin").stat().st_mode & 0o077 == 0


def test_another_wish_is_refused(tmp_path):
    build_gallery(DIGITS, CENTRAL, tmp_path)
    with pytest.raises(InputError, match="made otherwise"):
        build_gallery(DIGITS, replace(CENTRAL, epsilon=2.0), tmp_path)


def test_parts_of_two_galleries_do_not_mix(tmp_path):
    build_gallery(DIGITS, CENTRAL, tmp_path / "one")
    build_gallery(DIGITS, replace(CENTRAL, epsilon=1.0), tmp_path / "two")
    shutil.copy(tmp_path / "two" / "statement.json", tmp_path / "one" / "statement.json")
    with pytest.raises(CorruptFileError, match=r"statement\.json is damaged or of another gallery"):
        Gallery.load(tmp_path / "one")


@pytest.mark.parametrize("change", [{"features": 5}, {"format": 2}, {"mode": "magic"}, {"sha256": {}}])
def test_damaged_description(tmp_path, change):
    build_gallery(DIGITS, CENTRAL, tmp_path)
    about = json.loads((tmp_path / "gallery.json").read_text())
    (tmp_path / "gallery.json").write_text(json.dumps(about | change))
    with pytest.raises(CorruptFileError, match="damaged or of another version"):
        Gallery.load(tmp_path)


def test_without_the_owners_table_pictures_are_numbers(tmp_path):
    gallery = build_gallery(DIGITS, LOCAL, tmp_path)
    query = DIGITS.load().images[0]
    found = gallery.search(query[None], 3)[0]
    assert answer_sheet(gallery, tmp_path, query, found) is not None
    shutil.rmtree(tmp_path / "private")
    given = Gallery.load(tmp_path)
    assert given.search(query[None], 3)[0] == found
    assert name_answers(tmp_path, found) == [str(hit.number) for hit in found]
    assert answer_sheet(given, tmp_path, query, found) is None
    with pytest.raises(DataError, match="only the owner"):
        evaluate_gallery(given, tmp_path)


def test_evaluation_asks_with_what_was_held_out_or_named(tmp_path):
    gallery = build_gallery(DIGITS, replace(LOCAL, epsilon=8.0), tmp_path)
    ranking = evaluate_gallery(gallery, tmp_path)
    assert (ranking.queries, ranking.items) == (20, 180)
    assert ranking.mean_average_precision > 0.2  # chance is about .1
    others = evaluate_gallery(gallery, tmp_path, load("digits", count=60, random_state=9), count=40)
    assert others.queries == 40


def test_few_pictures_make_short_codes(tmp_path):
    gallery = build_gallery(Source("digits", count=5), Wish("open", None, 1e-6, 64), tmp_path)
    assert gallery.hasher.bits == 4


class TestOrigin:
    def test_round_trip_and_unknown_numbers(self, tmp_path):
        origin = Origin.begin(DIGITS, DIGITS.load(), public=0.25, held_out=10, random_state=0)
        origin.save(tmp_path / "origin")
        again = Origin.load(tmp_path / "origin")
        assert again.source == DIGITS
        np.testing.assert_array_equal(again.numbers, origin.numbers)
        assert np.bincount(again.parts).tolist() == [290, 10, 100]
        with pytest.raises(DataError, match="not in the table"):
            again.names_of(np.array([-1]))

    def test_numbers_are_drawn_anew(self):
        dataset = DIGITS.load()
        one, two = (Origin.begin(DIGITS, dataset, public=0, held_out=0, random_state=0) for _ in range(2))
        assert not np.intersect1d(one.numbers, two.numbers).size

    def test_damaged(self, tmp_path):
        (tmp_path / "origin").write_bytes(b"nothing")
        with pytest.raises(CorruptFileError):
            Origin.load(tmp_path / "origin")
