"""Pictures of people, and the features made of them: kept for the platform, never shown to an app.

*The guarantee.* A picture is decoded within bounds on its bytes and pixels before anything is allocated for it, and at
most two at once; only upright pixels and their features are kept, without whatever else the file said (place, camera,
time). Both are in one file of mode 0600, which is whole before its row is in the database; a file without a row, left
by a kill or a deletion that was cut short, is removed at the next start. Names from outside never become part of a
path.
"""

import hashlib
import io
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sqlalchemy import bindparam, delete, func, insert, select

from blindsight.data.features import FeaturePipeline
from blindsight.data.images import FORMATS, MAX_PIXELS, decode
from blindsight.errors import CorruptFileError, DataError, InputError, UnknownNameError
from blindsight.files import read_arrays, sha256_of, storage_errors, write_arrays
from blindsight.service.settings import PICTURE_PIXELS
from blindsight.service.store import Database, frames

MOST_FRAMES = 10_000
"""Of one person."""

_KIND = "blindsight/frame.1"
_DECODING = threading.Semaphore(2)  # small files can be large pictures: many at once would fill the memory
_REMEMBERED = 256  # features in memory, of the frames that were used last
_AMONG = select(frames.c.id).where(
    frames.c.person == bindparam("person"), frames.c.id.in_(bindparam("ids", expanding=True))
)
_NEWEST = (
    select(frames.c.id)
    .where(frames.c.person == bindparam("person"))
    .order_by(frames.c.added.desc(), frames.c.id.desc())
    .limit(bindparam("count"))
)  # made once, because every release asks it

Row = NDArray[np.float32]


class FrameStore:
    """The frames of all people, in a folder for their owner alone; `size` is the side of the platform's pictures."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        pipeline: FeaturePipeline,
        *,
        size: int = 64,
        pixels: int = PICTURE_PIXELS,
        content_bytes: int = 8_000_000,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._folder, self._database, self._pipeline = folder, database, pipeline
        self._size, self._pixels, self._bytes, self._clock = size, pixels, content_bytes, clock
        self.pipeline = pipeline.fingerprint()
        """What names the features."""
        self._recent: OrderedDict[str, Row] = OrderedDict()
        self._mutex = threading.Lock()
        with storage_errors("create", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        self._remove_strays()

    def add(self, person: str, content: bytes) -> str:
        """Keep a picture of a person and return its id, or say why it cannot be used."""
        picture = self._decoded(content)
        features = np.asarray(self._pipeline.transform(picture[None]), dtype=np.float32)[0]
        id = secrets.token_hex(16)
        path = self._path(person, id)
        if len(self.ids(person)) >= MOST_FRAMES:
            raise InputError(f"at most {MOST_FRAMES} frames of a person are kept. Delete some first.")
        with storage_errors("create", path.parent):
            path.parent.mkdir(mode=0o700, exist_ok=True)
        write_arrays(path, _KIND, {"pipeline": self.pipeline}, {"picture": picture, "features": features}, private=True)
        row = {"id": id, "person": person, "sha256": sha256_of(path), "bytes": path.stat().st_size}
        with self._database.session() as session:
            newest = session.scalar(select(func.max(frames.c.added)).where(frames.c.person == person))
            session.execute(insert(frames).values(**row, added=_after(newest, self._clock())))
        return id

    def ids(self, person: str) -> tuple[str, ...]:
        """Return the frames of a person, oldest first."""
        mine = select(frames.c.id).where(frames.c.person == person).order_by(frames.c.added, frames.c.id)
        with self._database.reading() as session:
            return tuple(session.scalars(mine))

    def latest(self, person: str, count: int) -> Row:
        """Return the features of the newest frames of a person, (n, d), oldest first."""
        with self._database.reading() as session:
            found = session.scalars(_NEWEST, {"person": person, "count": max(count, 1)}).all()
        if len(found) != count:
            raise InputError(f"ask for 1 frame or more, and for no more than there are; got {count} of {len(found)}.")
        return np.stack([self._row(person, id) for id in reversed(found)])

    def features(self, person: str, ids: Sequence[str]) -> Row:
        """Return the features of some frames of a person, (n, d), in this order."""
        wanted = [_checked(id) for id in ids]
        with self._database.reading() as session:
            found = set(session.scalars(_AMONG, {"person": person, "ids": wanted}))
        for id in wanted:
            if id not in found:
                raise UnknownNameError("frame", id, ())
        if not wanted:
            raise InputError("name at least one frame.")
        return np.stack([self._row(person, id) for id in wanted])

    def picture(self, person: str, id: str) -> bytes:
        """Return a picture as PNG: for the person on it alone."""
        self._check(person, id)
        stream = io.BytesIO()
        Image.fromarray(self._read(person, id)[1]).save(stream, "PNG")
        return stream.getvalue()

    def delete(self, person: str, id: str) -> None:
        """Forget a picture and its features; what was released of it before cannot be taken back."""
        self._check(person, id)
        with self._database.session() as session:
            session.execute(delete(frames).where(frames.c.person == person, frames.c.id == id))
        with self._mutex:
            self._recent.pop(id, None)
        path = self._path(person, id)
        with storage_errors("delete", path):
            path.unlink(missing_ok=True)

    def _decoded(self, content: bytes) -> NDArray[np.uint8]:
        if len(content) > self._bytes:
            raise InputError(f"a picture may have {self._bytes:,} bytes; got {len(content):,}.")
        return decode_within(content, size=self._size, pixels=self._pixels)

    def _row(self, person: str, id: str) -> Row:
        with self._mutex:
            if id in self._recent:
                self._recent.move_to_end(id)
                return self._recent[id]
        features = self._read(person, id)[0]
        with self._mutex:
            self._recent[id] = features
            while len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)
        return features

    def _read(self, person: str, id: str) -> tuple[Row, NDArray[np.uint8]]:
        """Return features and picture; where the pipeline has changed since, the features are made anew."""
        document, arrays = read_arrays(self._path(person, id), _KIND)
        picture = arrays.get("picture")
        if picture is None or "features" not in arrays:
            raise CorruptFileError("a frame is not whole.")
        if document.get("pipeline") == self.pipeline:
            return arrays["features"], picture
        return np.asarray(self._pipeline.transform(picture[None]), dtype=np.float32)[0], picture

    def _check(self, person: str, id: str) -> None:
        mine = select(frames.c.id).where(frames.c.person == person, frames.c.id == _checked(id))
        with self._database.reading() as session:
            if session.scalar(mine) is None:
                raise UnknownNameError("frame", id, ())

    def _path(self, person: str, id: str) -> Path:
        return self._folder / hashlib.sha256(person.encode()).hexdigest()[:32] / f"{id}.npz"

    def _remove_strays(self) -> None:
        with self._database.reading() as session:
            known = {self._path(person, id) for person, id in session.execute(select(frames.c.person, frames.c.id))}
        for folder, _, names in os.walk(self._folder):
            for path in (Path(folder) / name for name in names):
                if path not in known:
                    with suppress(OSError):
                        path.unlink()


def decode_within(content: bytes, *, size: int, pixels: int) -> NDArray[np.uint8]:
    """Decode a stranger's picture of at most so many pixels, when fewer than two others are being decoded."""
    try:
        with _DECODING:
            if _pixels_of(content) > pixels:
                raise DataError(f"more than {pixels:,} pixels")
            return decode(content, size=size)
    except DataError as reason:
        raise InputError(f"this picture cannot be used: {reason}.") from None


def _checked(id: str) -> str:
    if re.fullmatch("[0-9a-f]{32}", id) is None:
        raise UnknownNameError("frame", id, ())
    return id


def _pixels_of(content: bytes) -> int:
    """Return how many pixels the file claims to have, without decoding it; 0 where `decode` will say what is wrong."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
            return picture.width * picture.height
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return MAX_PIXELS + 1
    except Exception:  # decoders raise nearly anything on damaged files
        return 0


def _after(newest: datetime | None, now: datetime) -> datetime:
    """Return a moment behind the newest one, so that frames keep their order whatever the clock does."""
    return now if newest is None or now > newest else newest + timedelta(microseconds=1)
