"""Pictures are taken in within bounds, kept for their owner, and found by nobody else."""

import hashlib
import io
import stat
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image
from smallservice import KEY, Cells, frames, pictures, png, traits

from blindsight.data.images import decode
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.service.frames import FrameStore
from blindsight.service.keys import Keys, picture_context


def keyed(folder, database, *people):
    """Keys of people who all have the same one, and whose features may be read."""
    keys = Keys(folder / "keys", database)
    for person in people:
        keys.begin(person, KEY.public.hex(), keep=True)
    return keys


@pytest.fixture
def store(tmp_path, database):
    keys = keyed(tmp_path, database, "Ann", EVIL)
    return FrameStore(tmp_path / "frames", database, Cells(), keys, size=8, pixels=10_000)


@pytest.fixture
def make_store(tmp_path, sqlite_database):
    """What opens stores in the same place, of people who are known."""
    keys = keyed(tmp_path, sqlite_database, "Ann")
    return lambda pipeline=None, **more: FrameStore(
        tmp_path / "frames", sqlite_database, pipeline or Cells(), keys, size=8, **more
    )


def opened(picture, frame):
    return KEY.open(picture, context=picture_context(frame))


EVIL = "../../etc/passwd\\..'; DROP TABLE frames; --<script>"


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes that claims to have so many pixels."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_features_and_picture_come_back(store):
    X = traits(1, seed=3, per_person=4)[0]
    images = pictures(X)
    ids = [store.add("Ann", png(image)) for image in images]
    assert store.ids("Ann") == tuple(ids)
    assert np.array_equal(store.features("Ann", ids[::-1]), Cells().transform(images[::-1]))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(opened(store.picture("Ann", ids[2]), ids[2])))), images[2])
    assert np.array_equal(store.latest("Ann", 2), Cells().transform(images[2:]))
    for wrong in (9, 0):
        with pytest.raises(InputError):
            store.latest("Ann", wrong)


def test_nobody_gets_the_frame_of_somebody_else(store):
    id = store.add("Ann", frames(1)[0])
    for person, frame in (("Bob", id), ("Ann", "../Ann"), ("Ann", "' OR 1=1 --"), ("Ann", "0" * 32), ("Ann", "a\0b")):
        for call in (
            store.picture,
            lambda *one: store.delete(one[0], one[1:]),
            lambda *one: store.features(one[0], one[1:]),
        ):
            with pytest.raises(UnknownNameError, match="frame"):
                call(person, frame)
    assert store.ids("Bob") == ()
    assert store.ids("Ann") == (id,)


def test_names_never_become_paths(store, tmp_path):
    person = EVIL
    store.add(person, frames(1)[0])
    (path,) = (tmp_path / "frames").rglob("*.npz")
    assert path.parent.name == hashlib.sha256(person.encode()).hexdigest()[:32]
    assert len(store.ids(person)) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE((tmp_path / "frames").stat().st_mode) == 0o700


def test_what_is_no_picture_is_refused_with_a_sentence(store, tmp_path):
    for content, reason in [
        (b"", "empty"),
        (b"GIF89a", "not a picture|damaged"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "not a picture"),
        (b"<svg onload=alert(1)>", "not a picture"),
        (bomb(100_000, 100_000), "10,000"),
        (bomb(30_000, 30_000), "10,000"),
        (bomb(2_000, 2_000), "10,000"),
        (bomb(90, 90), "damaged"),
        (frames(1)[0][:60], "damaged"),
    ]:
        with pytest.raises(InputError, match=reason):
            store.add("Ann", content)
    assert store.ids("Ann") == ()
    assert list((tmp_path / "frames").rglob("*.npz")) == []


def test_bombs_and_too_many_bytes_are_refused_by_default(make_store):
    store = make_store()
    with pytest.raises(InputError, match="50,000,000"):
        store.add("Ann", bomb(5_001, 10_000))
    with pytest.raises(InputError, match="30,000"):
        store.add("Ann", bomb(1, 49_000_000))
    with pytest.raises(InputError, match="50"):
        make_store(content_bytes=50).add("Ann", frames(1)[0])


@pytest.mark.parametrize(("pixels", "at_once"), [(1_000_000, 4), (20_000_000, 2), (50_000_000, 1)])
def test_few_pictures_are_decoded_at_once_and_large_ones_alone(make_store, monkeypatch, pixels, at_once):
    store = make_store()
    begun, go_on = threading.Semaphore(0), threading.Event()

    def held(content, **how):
        begun.release()
        assert go_on.wait(120)
        return decode(content, **how)

    monkeypatch.setattr("blindsight.service.frames.decode", held)
    monkeypatch.setattr("blindsight.service.frames.claimed_size", lambda content: (pixels // 5000, 5000, "RGB"))
    with ThreadPoolExecutor(6) as pool:
        found = [pool.submit(store._decoded, content) for content in frames(6)]
        assert all(begun.acquire(timeout=120) for _ in range(at_once))
        another = begun.acquire(timeout=0.1)
        go_on.set()
    assert not another
    assert len([one.result() for one in found]) == 6


def test_what_else_a_file_said_is_not_kept(store, tmp_path):
    image, stream = Image.fromarray(pictures(traits(1, 3)[0])[0]), io.BytesIO()
    exif = Image.Exif()
    exif[0x010F] = "camera of Ann's neighbour"
    image.save(stream, "PNG", exif=exif)
    id = store.add("Ann", stream.getvalue())
    (path,) = (tmp_path / "frames").rglob("*.npz")
    assert b"neighbour" not in path.read_bytes()
    assert b"neighbour" not in opened(store.picture("Ann", id), id)


def test_a_deleted_frame_is_gone(store, tmp_path):
    kept, gone = (store.add("Ann", content) for content in frames(2))
    store.features("Ann", [gone])
    store.delete("Ann", [gone])
    with pytest.raises(UnknownNameError):
        store.features("Ann", [gone])
    assert [path.name for path in (tmp_path / "frames").rglob("*.npz")] == [f"{kept}.sealed.npz"]


def test_what_a_kill_left_is_removed_and_a_damaged_frame_refused(tmp_path, make_store):
    store = make_store()
    id = store.add("Ann", frames(1)[0])
    (path,) = (tmp_path / "frames").rglob("*.npz")
    stray, part = path.with_name("1" * 32 + ".npz"), path.with_name(".x.part")
    stray.write_bytes(path.read_bytes())
    part.write_bytes(b"half")
    again = make_store()
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert again.features("Ann", [id]).shape == (1, 20)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CorruptFileError):
        make_store().features("Ann", [id])


def test_features_of_another_pipeline_wait_for_their_owner(make_store):
    class Doubled(Cells):
        def transform(self, images):
            return 2 * super().transform(images)

        def fingerprint(self):
            return "cells 2"

    first = make_store()
    id = first.add("Ann", frames(1)[0])
    second = make_store(Doubled())
    assert second.stale("Ann") == (id,)
    for ask in (lambda: second.features("Ann", [id]), lambda: second.latest("Ann", 1)):
        with pytest.raises(InputError):
            ask()
    again = second.add("Ann", opened(second.picture("Ann", id), id))  # as the owner's client does
    second.delete("Ann", [id])
    assert np.array_equal(second.features("Ann", [again]), 2 * Cells().transform(pictures(traits(1, 5, 1)[0])))
    assert second.stale("Ann") == ()
