"""A gallery gives away what its statement says and no more, however often and however changed it is built again."""

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from blindsight.audit.index_audit import neighbouring_bytes
from blindsight.data import load, pipeline
from blindsight.data.features import reading_side
from blindsight.dp.ledger import Ledger
from blindsight.errors import BudgetExceededError, CorruptFileError, DataError, InputError, PrivacyError
from blindsight.files import read_arrays, write_arrays
from blindsight.rng import seeded_bytes
from blindsight.search.building import (
    BuildOptions,
    build_gallery,
    draw_answers,
    erase,
    evaluate_gallery,
    read_origin,
)
from blindsight.search.encrypted_query import most_of, short_embeddings
from blindsight.search.evaluation import evaluate_distances
from blindsight.search.function import load_function
from blindsight.search.gallery import Found, Gallery, Origin, Source, choose_features, feature_pipeline
from blindsight.search.index import SymbolIndex
from blindsight.search.localmode import LocalHasher

LOCAL = BuildOptions("local", 4.0, 1e-6, 64, "thumbnail", public_share=0.5, hold_out=20)
CENTRAL = BuildOptions("central", 4.0, 1e-6, 16, "thumbnail")
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
        patch.setattr("blindsight.search.codebook.CELLS_PER_KIND", 0.8)
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
    assert {path.name for path in given} == {"gallery.npz"}
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
    ledger = tmp_path / "ledger.jsonl"
    first = build_gallery(source, replace(LOCAL, budget=12.0, ledger=ledger), folder)
    again = build_gallery(source, replace(LOCAL, ledger=ledger), folder)
    assert released(first) == released(again)
    assert again.statement.epsilon == 4.0
    relearn = replace(LOCAL, relearn=True, ledger=ledger)
    assert released(build_gallery(source, relearn, folder)) == released(first)  # the same codebook: nothing is new
    relearned = build_gallery(source, replace(relearn, random_state=1), folder)
    assert relearned.statement.epsilon == 8.0
    beside = build_gallery(source, replace(LOCAL, ledger=ledger), tmp_path / "beside")
    assert beside.statement.epsilon == 12.0  # two folders under one ledger add up
    with pytest.raises(BudgetExceededError):
        build_gallery(source, replace(relearn, random_state=2), folder)
    assert released(Gallery.load(folder)) == released(relearned)  # the refused one changed nothing


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
    gallery = tmp_path / "one" / "gallery.npz"
    assert gallery.stat().st_mode & 0o077 == 0
    assert load_function(tmp_path / "one" / "function.npz").digest == relearned.hasher.digest  # may be published
    with pytest.raises(InputError, match="otherwise"):
        build_gallery(DIGITS, replace(CENTRAL, epsilon=2.0), tmp_path / "one")
    document, arrays = read_arrays(gallery, "blindsight/gallery.2")
    for change in ({"features": 5}, {"mode": "magic"}, {"mode": "local"}, {"index": {}}, {"statement": {}}):
        write_arrays(gallery, "blindsight/gallery.2", document | change, arrays)
        with pytest.raises(CorruptFileError, match="gallery"):
            Gallery.load(tmp_path / "one")
    gallery.write_bytes(b"PK not an archive")
    with pytest.raises(CorruptFileError, match=r"gallery\.npz"):
        Gallery.load(tmp_path / "one")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


@pytest.mark.parametrize(
    "options", [LOCAL, replace(LOCAL, relearn=True), CENTRAL], ids=["built on", "relearned", "central"]
)
def test_a_gallery_of_an_older_version_is_refused_and_stays(tmp_path, options):
    (tmp_path / "private").mkdir()
    (tmp_path / "gallery.json").write_text('{"format": 1}')
    (tmp_path / "private" / "releases-1.npz").write_bytes(b"releases of version 1")
    before = contents(tmp_path)
    for use in (
        lambda: Gallery.load(tmp_path),
        lambda: build_gallery(DIGITS, options, tmp_path),
        lambda: Gallery.receive(build_gallery(DIGITS, LOCAL, tmp_path.parent / "other").given_away(), tmp_path),
    ):
        with pytest.raises(CorruptFileError, match=r"gallery\.json"):
            use()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("options", [LOCAL, replace(LOCAL, relearn=True)], ids=["built on", "relearned"])
@pytest.mark.parametrize("name", ["releases-1.npz", None])
def test_releases_of_an_older_version_are_refused_and_stay(tmp_path, options, name):
    """Taken for none, they would be drawn again without a spend."""
    build_gallery(DIGITS, LOCAL, tmp_path)
    (store,) = (tmp_path / "private").glob("releases-*.npz")
    document, arrays = read_arrays(store, "blindsight/releases.4")
    older = store if name is None else store.with_name(name)
    write_arrays(older, "blindsight/releases.3", document, arrays, private=True)
    before = contents(tmp_path)
    with pytest.raises(CorruptFileError, match=r"releases\.3"):
        build_gallery(DIGITS, options, tmp_path)
    with pytest.raises(CorruptFileError, match=r"releases\.3"):
        erase(tmp_path, [str(read_origin(tmp_path).names[0])])
    assert contents(tmp_path) == before


class Killed(BaseException):
    """Stands for SIGKILL: no handler of ours may catch and mend it."""


def test_killed_at_any_step_a_build_draws_nothing_again(tmp_path, monkeypatch, scans):
    """The process dies at the n-th write of a build; the next build releases what the killed one released."""
    write_digits(tmp_path / "pictures", 3)
    source = Source("folder", str(tmp_path / "pictures"))
    codebook = Gallery.load(scans / "index").hasher
    stopped, options = 0, replace(LOCAL, public_share=None, hold_out=0)
    for stop in range(1, 60):
        index, calls = tmp_path / str(stop), {"count": 0}
        if stop % 2:  # on top of a finished gallery, else a first build
            build_gallery(source, options, index, public=codebook)
            before = released(Gallery.load(index))

        def dying(real, calls=calls, stop=stop):
            def call(*args, **kwargs):
                calls["count"] += 1
                if calls["count"] == (stop + 1) // 2:
                    raise Killed
                return real(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for place, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
                patch.setattr(place, name, dying(getattr(place, name)))
            try:
                build_gallery(source, options, index, public=codebook)
            except Killed:
                stopped += 1
            else:
                break
        stored = {path: path.read_bytes() for path in (index / "private").glob("releases-*.npz")}
        after = build_gallery(source, options, index, public=codebook)
        assert not stop % 2 or released(after) == before
        assert after.statement.epsilon == 4.0 or not stored
        assert all(path.read_bytes() == content for path, content in stored.items())  # nothing was drawn again
        assert not list(index.rglob("*.part"))
    else:
        pytest.fail("a build never came to its end")
    assert stopped > 12


def test_readers_never_see_half_a_gallery(scans, tmp_path):
    gallery = Gallery.load(scans / "index")
    gallery.save(tmp_path)
    done = threading.Event()

    def keep_saving():
        while not done.is_set():
            gallery.save(tmp_path)

    saver = threading.Thread(target=keep_saving)
    saver.start()
    try:
        for _ in range(100):
            assert released(Gallery.load(tmp_path)) == released(gallery)
    finally:
        done.set()
        saver.join()


def test_public_bytes_depend_on_a_picture_through_its_release_alone(scans):
    """Among the neighbours is a copy of another picture, which must not show in epsilon or in how many there are."""
    hasher, images = Gallery.load(scans / "index").hasher, load("digits").images[:12]
    options = BuildOptions("local", 4.0, 1e-6, 1, "thumbnail")
    agree = list(neighbouring_bytes(images, options, hasher, seeds=2))
    assert agree == [True] * 14


def seen_by_others(folder, edited):
    """Return the files that may be given away, without the release of the edited picture."""
    given = (path for path in folder.rglob("*") if path.is_file() and "private" not in path.parts)
    held = {path.name: path.read_bytes() for path in given}
    gallery, origin = Gallery.load(folder), read_origin(folder)
    (place,) = np.flatnonzero(gallery.index.ids == origin.numbers[origin.names == edited])
    symbols = gallery.index.symbols.copy()
    symbols[place] = 0
    index = SymbolIndex(gallery.index.outputs)
    index.add(gallery.index.ids, symbols)
    return {**held, "gallery.npz": replace(gallery, index=index).given_away()}


EQUAL = {
    "epsilon is the budget": (4.0, False, "private"),
    "one edit exhausts the budget": (8.0, True, "private"),
    "of a public picture": (None, False, "public"),
    "of a public picture, and an edit": (8.0, True, "public"),
    "of a public part": (8.0, True, "part"),
}


@pytest.mark.parametrize(("budget", "edit", "twin"), EQUAL.values(), ids=EQUAL)
def test_what_is_published_does_not_tell_that_pictures_are_equal(tmp_path, budget, edit, twin):
    """Neighbouring folders with the same coins: in one of them the last picture is equal to another, or public, one."""
    images, versions, notes = load("digits").images, [], []
    share = 0.5 if twin == "part" else None
    options = replace(LOCAL, public_share=share, hold_out=0, budget=budget, kinds=4)
    for world in ("different", "equal"):
        folder = tmp_path / world
        private, public = folder / "private pictures", folder / "public pictures"
        for place, rows in ((private, range(40)), (public, range(100, 160))):
            place.mkdir(parents=True)
            for row in rows:
                Image.fromarray(images[row]).save(place / f"{row:03}.png")
        order = np.random.default_rng(0).permutation(40)  # as the public part is drawn
        last, known = (order[-1], order[0]) if twin == "part" else (39, 100 if twin == "public" else 0)
        if world == "equal":
            shutil.copy((public if twin == "public" else private) / f"{known:03}.png", private / f"{last:03}.png")
        source, coins = Source("folder", str(private)), seeded_bytes(7)
        for step in range(1 + edit):
            if step:  # the same in both worlds
                Image.fromarray(images[200]).save(private / f"{order[-2] if share else 20:03}.png")
            others = Source("folder", str(public)) if share is None else None
            built = build_gallery(source, options, folder / "index", public=others, secret=coins)
            notes.append(any("equal" in note or "several names" in note for note in built.notes))
            versions.append(seen_by_others(folder / "index", f"{last:03}.png"))
    assert versions[: 1 + edit] == versions[1 + edit :]
    assert (notes[0], notes[1 + edit]) == (False, True)


def test_a_private_picture_that_is_public_too_is_not_refused_in_central_mode(tmp_path):
    images = load("digits").images
    for world, last in (("different", 39), ("equal", 100)):
        private, public = tmp_path / world / "private pictures", tmp_path / world / "public pictures"
        for place, rows in ((private, [*range(39), last]), (public, range(100, 160))):
            place.mkdir(parents=True)
            for number, row in enumerate(rows):
                Image.fromarray(images[row]).save(place / f"{number:03}.png")
        sources = (Source("folder", str(private)), Source("folder", str(public)))
        gallery = build_gallery(sources[0], CENTRAL, tmp_path / world / "index", public=sources[1])
        assert len(gallery) == 40
        assert any("1 of 40" in note for note in gallery.notes) == (world == "equal")


@pytest.mark.parametrize("where", ["", "part", "..", "link"])
def test_private_pictures_are_refused_as_public_ones_by_their_place(tmp_path, where):
    place = tmp_path / "all" / "pictures"
    for folder in (place, place / "part"):
        write_digits(folder, 60)
    (place.parent / "link").symlink_to(place)
    public = place.parent / "link" if where == "link" else place / where
    options, index = replace(LOCAL, public_share=None, hold_out=0), tmp_path / "index"
    with pytest.raises(PrivacyError, match="place"):
        build_gallery(Source("folder", str(place)), options, index, public=Source("folder", str(public)))
    with pytest.raises(PrivacyError, match="place"):
        build_gallery(DIGITS, options, index, public=replace(DIGITS, count=100, random_state=1))
    assert not (index / "gallery.npz").exists()


def test_equal_pictures_cost_the_owner_more_and_the_published_statement_does_not_say_so(tmp_path, scans):
    pictures = tmp_path / "pictures"
    shutil.copytree(scans / "pictures", pictures)
    twin = next(pictures.rglob("*.png"))
    shutil.copy(twin, twin.with_name("copy.png"))
    source, hasher = Source("folder", str(pictures)), Gallery.load(scans / "index").hasher
    gallery = build_gallery(source, replace(LOCAL, public_share=None, hold_out=0), tmp_path / "index", public=hasher)
    assert (len(gallery), gallery.statement.epsilon) == (121, 4.0)
    assert "twice" in gallery.notes[0] or "times epsilon" in gallery.notes[0]
    assert Ledger(tmp_path / "index" / "private" / "ledger.jsonl").spent("pictures", "record", delta=0).epsilon == 8.0


def test_an_edited_picture_is_released_again_and_counted(tmp_path, scans):
    pictures = tmp_path / "pictures"
    shutil.copytree(scans / "pictures", pictures)
    source, hasher = Source("folder", str(pictures)), Gallery.load(scans / "index").hasher
    options = replace(LOCAL, public_share=None, hold_out=0)
    first = build_gallery(source, options, tmp_path / "index", public=hasher)
    edited = next(pictures.rglob("*.png"))
    pixels = np.asarray(Image.open(edited)).copy()
    pixels[0, 0] ^= 255
    Image.fromarray(pixels).save(edited)
    second = build_gallery(source, options, tmp_path / "index")
    assert second.statement.epsilon == 8.0
    name = str(edited.relative_to(pictures))
    origin = read_origin(tmp_path / "index")
    number = int(origin.numbers[origin.names == name][0])
    before, after = released(first), released(second)
    assert all(after[key] == before[key] for key in before if key != number)


def test_files_are_read_at_the_size_that_features_need(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(4):
        Image.fromarray(rng.integers(0, 256, (300, 300, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    source = Source("folder", str(tmp_path))
    assert source.load().images.shape[1] == 64
    assert replace(source, side=reading_side(pipeline("embedding"))).load().images.shape[1] == 224
    gallery = build_gallery(source, BuildOptions("open", None, 1e-6, 2, "thumbnail"), tmp_path / "index")
    assert gallery.side == 64


def test_features_are_chosen_by_what_is_installed(monkeypatch, tmp_path):
    photographs = Source("folder", str(tmp_path))
    monkeypatch.setattr("blindsight.search.gallery.find_spec", lambda name: None)
    kind, note = choose_features(photographs)
    assert kind == "thumbnail"
    assert "[deep]" in note
    monkeypatch.setattr("blindsight.search.gallery.find_spec", lambda name: True)
    assert choose_features(photographs) == ("embedding", "")
    assert choose_features(DIGITS) == ("thumbnail", "")


@pytest.mark.parametrize("options", [LOCAL, replace(LOCAL, mode="open", epsilon=None, public_share=None)])
def test_a_query_names_pictures_and_says_how_many_tie(tmp_path, options):
    build_gallery(DIGITS, options, tmp_path / "index")
    gallery, pixels = Gallery.load(tmp_path / "index"), DIGITS.load().images[0]
    answers = gallery.query(pixels, 5)
    assert list(answers) == gallery.search(pixels[None], 5)[0]
    assert set(answers.names) <= set(read_origin(tmp_path / "index").names.tolist())
    everything = gallery.search(pixels[None], len(gallery))[0]
    assert answers.tied == sum(hit.nearness == answers[-1].nearness for hit in everything)
    assert (answers.tied > 1) == (f"{answers.tied} pictures tie for place" in answers.ties)
    assert answers.names[0] in answers._repr_html_()
    Image.fromarray(pixels).save(tmp_path / "query.png")
    assert gallery.query(tmp_path / "query.png", 5) == answers
    assert "epsilon" in repr(gallery) or gallery.mode == "open"


def test_without_the_owners_table_pictures_are_numbers(tmp_path):
    gallery = build_gallery(DIGITS, replace(LOCAL, epsilon=8.0), tmp_path)
    ranking = evaluate_gallery(gallery, tmp_path)  # asks with what was held out, or named
    assert (ranking.queries, ranking.items) == (20, 130)
    assert ranking.mean_average_precision > 0.15  # chance is about .1
    assert evaluate_gallery(gallery, tmp_path, load("digits", count=60, random_state=9), count=40).queries == 40
    query = DIGITS.load().images[0]
    found = gallery.search(query[None], 3)[0]
    sheet = tmp_path / "sheet.png"
    assert draw_answers(gallery, tmp_path, query, found, sheet)
    assert (sheet.stat().st_mode & 0o777, sheet.stat().st_size > 1_000) == (0o600, True)
    shutil.rmtree(tmp_path / "private")
    given = Gallery.load(tmp_path)
    assert given.search(query[None], 3)[0] == found
    assert given.query(query, 3).names == tuple(str(hit.number) for hit in found)
    assert not draw_answers(given, tmp_path, query, found, sheet)
    with pytest.raises(DataError, match="owner"):
        evaluate_gallery(given, tmp_path)


def test_numbers_are_kept_for_encrypted_queries_and_find_more_than_codes(tmp_path):
    options = BuildOptions("open", None, 1e-6, 16, "thumbnail", hold_out=100, numbers=4)
    gallery = build_gallery(DIGITS, options, tmp_path)
    short, dataset, origin = Gallery.load(tmp_path).short, DIGITS.load(), read_origin(tmp_path)
    queries = dataset.take(origin.rows(dataset, "held out")[1])
    rows = feature_pipeline("thumbnail").transform(queries.images)
    asked = short_embeddings(gallery.hasher.scores(rows), most_of(4)).astype(int)
    labels = dataset.labels[origin.rows(dataset, "indexed")[1]]
    found = evaluate_distances(lambda span: -asked[span] @ short.T.astype(int), queries.labels, labels)
    codes = evaluate_gallery(gallery, tmp_path)
    assert found.mean_average_precision > codes.mean_average_precision + 0.03
    gone = str(origin.names_of(gallery.index.ids[3:4])[0])
    erase(tmp_path, [gone])
    np.testing.assert_array_equal(Gallery.load(tmp_path).short, np.delete(short, 3, axis=0))
    assert build_gallery(DIGITS, replace(options, numbers=None), tmp_path).short is None
    for wrong in (replace(LOCAL, numbers=4), replace(CENTRAL, numbers=7)):
        with pytest.raises(InputError, match="number"):
            build_gallery(DIGITS, wrong, tmp_path / "wrong")


def test_few_pictures_make_short_codes(tmp_path):
    gallery = build_gallery(Source("digits", count=5), BuildOptions("open", None, 1e-6, 64, "thumbnail"), tmp_path)
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


def test_public_labels_and_kinds_decide_the_codebook(tmp_path):
    options = replace(LOCAL, public_labels=True)
    gallery = build_gallery(DIGITS, options, tmp_path / "labels")
    assert gallery.hasher.labelled_
    assert gallery.hasher.codebook_.cells == 10
    assert "10 classes" in gallery.notes[0]
    build_gallery(DIGITS, replace(options, public_labels=False), tmp_path / "labels")  # goes on as it was
    with pytest.raises(InputError, match="otherwise"):
        build_gallery(DIGITS, replace(LOCAL, kinds=4), tmp_path / "labels")
    assert build_gallery(DIGITS, replace(LOCAL, kinds=4), tmp_path / "kinds").hasher.kinds == 4
    with pytest.raises(InputError, match="otherwise"):
        build_gallery(DIGITS, options, tmp_path / "kinds")
    write_digits(tmp_path / "flat", 8)
    for picture in list((tmp_path / "flat").rglob("*.png")):
        picture.rename(tmp_path / "flat" / picture.name)
    for folder in [path for path in (tmp_path / "flat").iterdir() if path.is_dir()]:
        folder.rmdir()
    with pytest.raises(DataError, match="classes"):
        build_gallery(
            DIGITS, replace(options, public_share=None), tmp_path / "x", public=Source("folder", str(tmp_path / "flat"))
        )
    for impossible in (replace(options, kinds=3), replace(LOCAL, kinds=1), replace(CENTRAL, kinds=3)):
        with pytest.raises(InputError):
            impossible.check(has_public=False)


def test_a_local_index_is_pulled_whole_and_asked_at_home(scans, tmp_path):
    gallery = Gallery.load(scans / "index")
    query = load("digits").images[:1]
    pulled = Gallery.receive(gallery.given_away(), tmp_path / "with")
    assert pulled.search(query, 5) == gallery.search(query, 5)
    assert (tmp_path / "with" / "gallery.npz").read_bytes() == (scans / "index" / "gallery.npz").read_bytes()
    bare = gallery.given_away(numbers=False)
    places = Gallery.receive(bare, tmp_path / "without").search(query, 5)[0]
    numbers = gallery.index.ids
    assert [int(numbers[hit.number]) for hit in places] == [hit.number for hit in gallery.search(query, 5)[0]]
    assert len(gallery.given_away()) - len(bare) >= 8 * len(gallery)
    with pytest.raises(CorruptFileError):
        Gallery.receive(bare[:-100], tmp_path / "damaged")
    assert not (tmp_path / "damaged").exists()
    closed = build_gallery(DIGITS, CENTRAL, tmp_path / "central")
    with pytest.raises(PrivacyError, match="central"):
        closed.given_away()


@pytest.mark.parametrize(("outputs", "count"), [(2, 5), (16, 8), (17, 5), (300, 3)])
def test_released_symbols_take_half_a_byte_or_a_byte(outputs, count):
    index = SymbolIndex(outputs)
    symbols = np.arange(count) % outputs
    symbols[-1] = outputs - 1
    index.add(np.arange(count), symbols)
    document, arrays = index.parts()
    assert sum(array.nbytes for array in arrays.values()) == {2: 3, 16: 4, 17: 5, 300: 6}[outputs]
    again = SymbolIndex.from_parts(document, arrays, where="here")
    np.testing.assert_array_equal(again.symbols, symbols)
    np.testing.assert_array_equal(again.ids, np.arange(count))


@pytest.mark.parametrize(
    "options", [LOCAL, CENTRAL, BuildOptions("open", None, 1e-6, 16, "thumbnail")], ids=lambda options: options.mode
)
def test_a_person_is_erased_from_index_releases_and_table(tmp_path, scans, options):
    pictures, index = tmp_path / "pictures", tmp_path / "index"
    shutil.copytree(scans / "pictures", pictures)
    source, folder = Source("folder", str(pictures)), index / "private"
    first = build_gallery(source, options, index)
    origin = read_origin(index)
    hers = {name for name in origin.names.tolist() if name.startswith("patient 3/")}
    numbers = origin.numbers[np.isin(origin.names, list(hers))]
    indexed = np.isin(first.index.ids, numbers).sum()
    assert indexed > 1
    for asked in ({"names": ["nobody.png"]}, {"person": "patient 33"}, {}):
        with pytest.raises(InputError, match="Nothing was erased"):
            erase(index, **asked)
    query, sheets = (
        np.zeros((64, 64, 3), np.uint8),
        [tmp_path / f"{name}.png" for name in ("hers", "mixed", "other", "new")],
    )
    others = first.index.ids[~np.isin(first.index.ids, numbers)]
    for sheet, shown in zip(sheets, (numbers[:1], [others[0], numbers[1]], others[:2], numbers), strict=True):
        assert draw_answers(first, index, query, [Found(int(number), 0.0) for number in shown], sheet)
    sheets[3].write_bytes(b"something else by now")
    gone = erase(index, person="patient 3")
    assert set(gone.names) == hers
    assert [sheet.exists() for sheet in sheets] == [False, False, True, True]
    assert set(gone.sheets) == {str(sheet) for sheet in sheets[:2]}
    assert len(gone.left) == (4 if options is LOCAL else 3)
    assert any("private/" in what and "name" in what for what in gone.left) == (options is LOCAL)
    gallery = Gallery.load(index)
    assert len(gallery) == len(first) - indexed
    assert not np.isin(numbers, gallery.index.ids).any()
    kept = [path for path in folder.iterdir() if path.suffix == ".npz"]
    for number in numbers:
        assert not any(
            int(number).to_bytes(8, "little") in path.read_bytes() for path in [*kept, index / "gallery.npz"]
        )
    assert not any("patient 3".encode("utf-32-le") in path.read_bytes() for path in kept)
    shutil.rmtree(pictures / "patient 3")
    again = build_gallery(source, options, index)
    assert again.index.ids.tolist() == gallery.index.ids.tolist()
    if options is LOCAL:
        assert released(again) == released(gallery)  # the others keep theirs
        assert again.statement.epsilon == 4.0


def charged(folder, unit="record"):
    spends = Ledger(folder / "private" / "ledger.jsonl").spends("pictures", unit)
    return sum(one.loss.epsilon * one.loss.count for one in spends)


@pytest.fixture
def album(tmp_path, scans):
    """Pictures, and what builds an index of them."""
    pictures = tmp_path / "pictures"
    shutil.copytree(scans / "pictures", pictures)
    options, codebook = replace(LOCAL, public_share=None, hold_out=0), Gallery.load(scans / "index").hasher

    def build(**changed):
        public = changed.pop("public", codebook)
        return build_gallery(
            Source("folder", str(pictures)), replace(options, **changed), tmp_path / "index", public=public
        )

    return pictures, tmp_path / "index", build


HOW = ["alike", "retouched", "absent in between", "killed while erasing", "relearned", "under a budget"]


@pytest.mark.parametrize("how", HOW)
def test_a_picture_that_is_erased_and_built_again_is_counted_each_time(album, how, monkeypatch):
    pictures, index, build = album
    name = min(str(path.relative_to(pictures)) for path in pictures.rglob("*.png"))
    content = (pictures / name).read_bytes()
    budget = 12.0 if how == "under a budget" else None
    published, numbers = [build(budget=budget).statement.epsilon], set()
    for turn in range(1, 5):
        numbers |= set(read_origin(index).numbers[read_origin(index).names == name].tolist())
        if how == "killed while erasing":  # after the releases were erased, before the table was
            with monkeypatch.context() as patch:
                patch.setattr(Gallery, "save", Mock(side_effect=Killed))
                with pytest.raises(Killed):
                    erase(index, [name])
        if how != "killed while erasing" or turn % 2:
            erase(index, [name])
        if how == "retouched":
            Image.fromarray(np.asarray(Image.open(pictures / name)) ^ np.uint8(turn)).save(pictures / name)
        elif how == "absent in between":
            (pictures / name).unlink()
            assert build().statement.epsilon == 4.0 * turn  # what was released remains released
            (pictures / name).write_bytes(content)
        if budget is not None and turn == 3:
            with pytest.raises(BudgetExceededError):
                build()
            (pictures / name).unlink()
            build()
            break
        published.append(build(relearn=how == "relearned").statement.epsilon)
    assert published == [4.0 * often for often in range(1, len(published) + 1)]
    assert len(published) == (3 if budget else 5)
    assert charged(index) == published[-1]  # nothing of it outside of the budget
    if how != "killed while erasing":
        assert len(numbers) == (3 if budget else 4)  # a number that is new each time does not tell the name


def test_an_erased_picture_is_counted_under_each_codebook(album):
    pictures, index, build = album
    name = min(str(path.relative_to(pictures)) for path in pictures.rglob("*.png"))
    shown = feature_pipeline("thumbnail").transform(load("digits").images[500:700])
    other, published = LocalHasher(4.0, random_state=1).fit(shown), [build().statement.epsilon]
    for changed in ({"relearn": True, "public": other}, {}, {"relearn": True}, {}):  # the first is learned last again
        erase(index, [name])
        published.append(build(**changed).statement.epsilon)
    assert published == [4.0, 8.0, 12.0, 16.0, 20.0]
    assert charged(index) == 20.0


def test_an_erased_picture_under_another_name_is_new_and_its_owner_gets_a_note(album):
    pictures, index, build = album
    build()
    old = min(pictures.rglob("*.png"))
    erase(index, [str(old.relative_to(pictures))])
    old.rename(old.with_name("new name.png"))
    built = build()
    assert (built.statement.epsilon, charged(index)) == (4.0, 8.0)
    assert any("several names" in note for note in built.notes)


def test_an_erased_person_is_counted_again_where_persons_are_the_unit(album):
    pictures, index, build = album
    first = build(epsilon=8.0, per_person=2)
    assert first.statement.epsilon == 8.0
    erase(index, person="patient 3")
    hers = sorted((pictures / "patient 3").iterdir())
    for old in hers:
        old.rename(pictures / old.name)
    assert build(epsilon=8.0, per_person=2).statement.epsilon == 8.0  # nobody's folder
    (pictures / "patient 3" / "other name.png").write_bytes((pictures / hers[0].name).read_bytes())
    assert build(epsilon=8.0, per_person=2).statement.epsilon == 16.0
    assert Ledger(index / "private" / "ledger.jsonl").remaining("pictures", "person") == np.inf
    assert charged(index, "person") >= 16.0


def test_what_is_published_after_an_erasure_does_not_depend_on_what_came_back(tmp_path, scans):
    images, codebook, versions = load("digits").images, Gallery.load(scans / "index").hasher, []
    for world, back in (("alike", 3), ("a copy of another", 5), ("other", 200)):
        pictures, index, coins = tmp_path / world / "pictures", tmp_path / world / "index", seeded_bytes(7)
        pictures.mkdir(parents=True)
        for row in range(12):
            Image.fromarray(images[row]).save(pictures / f"{row:03}.png")
        source, options = Source("folder", str(pictures)), replace(LOCAL, public_share=None, hold_out=0, budget=8.0)
        build_gallery(source, options, index, public=codebook, secret=coins)
        erase(index, ["003.png"])
        Image.fromarray(images[back]).save(pictures / "003.png")
        gallery = build_gallery(source, options, index, public=codebook, secret=coins)
        assert gallery.statement.epsilon == 8.0
        versions.append(seen_by_others(index, "003.png"))
    assert versions[0] == versions[1] == versions[2]


def test_persons_are_the_unit(tmp_path, scans):
    source, options = Source("folder", str(scans / "pictures")), replace(LOCAL, epsilon=8.0, per_person=2)
    gallery = build_gallery(source, options, tmp_path / "index")
    assert (gallery.statement.unit, gallery.statement.epsilon, gallery.hasher.epsilon) == ("person", 8.0, 4.0)
    assert released(build_gallery(source, options, tmp_path / "index")) == released(gallery)
    with pytest.raises(InputError, match="otherwise"):
        build_gallery(source, replace(options, per_person=None), tmp_path / "index")
    central = build_gallery(DIGITS, replace(CENTRAL, per_person=3), tmp_path / "central")
    assert (central.statement.unit, central.statement.epsilon) == ("person", 4.0)
    faces = Source("faces", count=60)
    with pytest.raises(InputError, match="per-person"):
        build_gallery(faces, replace(CENTRAL, per_person=1), tmp_path / "faces")


@pytest.mark.parametrize("public", ["few", "named"])
def test_without_enough_public_pictures_the_shipped_codebook_is_taken(tmp_path, public, monkeypatch):
    """Whatever the network says: which codebook is taken depends on how many public pictures there are."""

    class Drawn:
        side = 8

        def transform(self, images):
            pixels = images.reshape(len(images), -1).astype(np.float32)
            return pixels @ np.random.default_rng(0).random((pixels.shape[1], 1280), dtype=np.float32)

    monkeypatch.setattr("blindsight.search.building.feature_pipeline", lambda kind: Drawn())
    monkeypatch.setattr("blindsight.search.building.extract", lambda data, made, **_: made.transform(data.images))
    monkeypatch.setattr("blindsight.search.building.reading_side", lambda made: made.side)
    write_digits(tmp_path / "pictures", 4)
    write_digits(tmp_path / "public", 8, first=20)
    options = BuildOptions("local", 4.0, 1e-6, 64, "embedding", codebook="public" if public == "named" else "auto")
    source, others = (Source("folder", str(tmp_path / name)) for name in ("pictures", "public"))
    gallery = build_gallery(source, options, tmp_path / "index", public=others)
    shipped = public != "named"
    assert ("ImageNet" in gallery.statement.mechanism, gallery.hasher.codebook_.cells == 200) == (shipped, shipped)
    assert any("shipped" in note for note in gallery.notes) == shipped


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (replace(LOCAL, public_share=None), "public"),
        (replace(LOCAL, codebook="shipped"), "shipped"),
        (replace(LOCAL, codebook="shipped", public_share=None), "embedding"),
        (replace(LOCAL, features="embedding", public_share=None, kinds=5), "public"),
        (replace(CENTRAL, codebook="shipped"), "codebook"),
    ],
)
def test_a_codebook_that_cannot_be_had_is_refused(tmp_path, options, word):
    with pytest.raises(InputError, match=word):
        build_gallery(DIGITS, options, tmp_path)
