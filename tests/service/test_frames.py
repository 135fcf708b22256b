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
from smallservice import Cells, frames, pictures, png, traits

from blindsight.data.images import decode
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.service.frames import FrameStore


@pytest.fixture
def store(tmp_path, database):
    return FrameStore(tmp_path / "frames", database, Cells(), size=8, pixels=10_000)


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
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(store.picture("Ann", ids[2])))), images[2])
    assert np.array_equal(store.latest("Ann", 2), Cells().transform(images[2:]))
    for wrong in (9, 0):
        with pytest.raises(InputError):
            store.latest("Ann", wrong)


def test_nobody_gets_the_frame_of_somebody_else(store):
    id = store.add("Ann", frames(1)[0])
    for person, frame in (("Bob", id), ("Ann", "../Ann"), ("Ann", "' OR 1=1 --"), ("Ann", "0" * 32), ("Ann", "a\0b")):
        for call in (store.picture, store.delete, lambda person, frame: store.features(person, [frame])):
            with pytest.raises(UnknownNameError, match="frame"):
                call(person, frame)
    assert store.ids("Bob") == ()
    assert store.ids("Ann") == (id,)


def test_names_never_become_paths(store, tmp_path):
    person = "../../etc/passwd\\..'; DROP TABLE frames; --<script>"
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


def test_bombs_and_too_many_bytes_are_refused_by_default(tmp_path, sqlite_database):
    store = FrameStore(tmp_path / "frames", sqlite_database, Cells(), size=8)
    with pytest.raises(InputError, match="16,000,000"):
        store.add("Ann", bomb(4_001, 4_000))
    with pytest.raises(InputError, match="50"):
        FrameStore(tmp_path / "frames", sqlite_database, Cells(), size=8, content_bytes=50).add("Ann", frames(1)[0])


def test_at_most_two_pictures_are_decoded_at_once(tmp_path, sqlite_database, monkeypatch):
    store = FrameStore(tmp_path / "frames", sqlite_database, Cells(), size=8)
    begun, go_on = threading.Semaphore(0), threading.Event()

    def held(content, *, size):
        begun.release()
        assert go_on.wait(120)
        return decode(content, size=size)

    monkeypatch.setattr("blindsight.service.frames.decode", held)
    with ThreadPoolExecutor(6) as pool:
        found = [pool.submit(store._decoded, content) for content in frames(6)]
        assert begun.acquire(timeout=120)
        assert begun.acquire(timeout=120)
        third = begun.acquire(timeout=0.1)
        go_on.set()
    assert not third
    assert len([one.result() for one in found]) == 6


def test_what_else_a_file_said_is_not_kept(store, tmp_path):
    image, stream = Image.fromarray(pictures(traits(1, 3)[0])[0]), io.BytesIO()
    exif = Image.Exif()
    exif[0x010F] = "camera of Ann's neighbour"
    image.save(stream, "PNG", exif=exif)
    id = store.add("Ann", stream.getvalue())
    (path,) = (tmp_path / "frames").rglob("*.npz")
    assert b"neighbour" not in path.read_bytes()
    assert b"neighbour" not in store.picture("Ann", id)


def test_a_deleted_frame_is_gone(store, tmp_path):
    kept, gone = (store.add("Ann", content) for content in frames(2))
    store.features("Ann", [gone])
    store.delete("Ann", gone)
    with pytest.raises(UnknownNameError):
        store.features("Ann", [gone])
    assert [path.stem for path in (tmp_path / "frames").rglob("*.npz")] == [kept]


def test_what_a_kill_left_is_removed_and_a_damaged_frame_refused(tmp_path, sqlite_database):
    store = FrameStore(tmp_path / "frames", sqlite_database, Cells(), size=8)
    id = store.add("Ann", frames(1)[0])
    (path,) = (tmp_path / "frames").rglob("*.npz")
    stray, part = path.with_name("1" * 32 + ".npz"), path.with_name(".x.part")
    stray.write_bytes(path.read_bytes())
    part.write_bytes(b"half")
    again = FrameStore(tmp_path / "frames", sqlite_database, Cells(), size=8)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert again.features("Ann", [id]).shape == (1, 20)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CorruptFileError):
        FrameStore(tmp_path / "frames", sqlite_database, Cells(), size=8).features("Ann", [id])


def test_features_of_another_pipeline_are_made_anew(tmp_path, sqlite_database):
    class Doubled(Cells):
        def transform(self, images):
            return 2 * super().transform(images)

        def fingerprint(self):
            return "cells 2"

    first = FrameStore(tmp_path / "frames", sqlite_database, Cells(), size=8)
    id = first.add("Ann", frames(1)[0])
    second = FrameStore(tmp_path / "frames", sqlite_database, Doubled(), size=8)
    assert np.array_equal(second.features("Ann", [id]), 2 * first.features("Ann", [id]))
