"""The store of people's pictures and their features: kept for the platform, never shown to an app.

*The guarantee.* A picture is decoded within bounds on its bytes and pixels before anything is allocated for it, and few
at once; only upright pixels and their features are kept, no other content of the file (place, camera, time). The
picture is sealed for the person's own key, the features for their epoch's (`keys`), before the first byte reaches the
disk; opened features are only in memory, in a bounded part of it, from the moment a grant begins or a frame arrives
during one (`open_up`) until the epoch ends. Both are in one file of mode 0600, complete before its row is in the
database; a file without a row, left by a kill or an interrupted deletion, is removed at the next start. Names from
outside never become part of a path.

Features of another pipeline cannot be recomputed here, since only the owner can open the picture: apps do not get such
frames until their owner has sent them again (`stale`, `Client.renew_frames`).
"""

import hashlib
import io
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sqlalchemy import Row as SqlRow
from sqlalchemy import bindparam, func, select

from blindsight.crypto.sealedbox import seal_for
from blindsight.data.features import FeaturePipeline
from blindsight.data.images import claimed_size, decode
from blindsight.errors import BlindsightError, CorruptFileError, DataError, InputError, UnknownNameError
from blindsight.files import read_arrays, sha256_of, storage_errors, write_arrays
from blindsight.service.keys import ANY_KEY, Keys, SealedFor, features_context, picture_context
from blindsight.service.rows import sealed
from blindsight.service.settings import PICTURE_PIXELS
from blindsight.service.store import Database, frames

MOST_FRAMES = 10_000  # of one person
MOST_SIDE = 30_000  # pixels of a sent picture: a thin one is not shrunk while it is decoded
_LIGHT = ("1", "L", "RGB", "RGBA", "CMYK", "YCbCr")  # modes that take at most 12 bytes for each pixel

_ID = re.compile("[0-9a-f]{32}")
_SEALED = "blindsight/frame.2"
_AT_ONCE = 4  # pictures of 16 million pixels, or fewer larger ones: small files can be large pictures
_REMEMBERED = 256_000_000  # bytes of features in memory, of the frames that were used last
_OPENED = 10_000  # frames that are opened at once, before anybody asks for them
_ALL = sealed(frames)
_OF = _ALL.where(frames.c.person == bindparam("person"))
_MADE = frames.c.pipeline == bindparam("pipeline")
_BACKWARD = frames.c.added.desc(), frames.c.id.desc()
_OWNERS = _ALL.where(frames.c.id.in_(bindparam("ids", expanding=True)), _MADE)
_NEWEST = _OF.where(_MADE).order_by(*_BACKWARD).limit(bindparam("count"))  # made once: every release asks it

Row = NDArray[np.float32]
Owners = Mapping[str, tuple[str, str]]
"""Who is on frames, by their ids, and for whose epoch features are sealed."""


class FrameStore:
    """The frames of all people, in a folder for their owner alone; `size` is the side of the platform's pictures."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        pipeline: FeaturePipeline,
        keys: Keys,
        *,
        size: int = 64,
        pixels: int = PICTURE_PIXELS,
        content_bytes: int = 8_000_000,
        alone: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._folder, self._database, self._pipeline, self._keys = folder, database, pipeline, keys
        self.side, self._pixels, self._bytes, self._clock = size, pixels, content_bytes, clock
        self.pipeline = pipeline.fingerprint()  # names the features
        self.prepare: Callable[[Row], Row] = lambda rows: rows
        """Applied to features (n, d) before they are used, once for each frame."""
        self._recent: OrderedDict[str, tuple[str, Row]] = OrderedDict()  # with their epoch
        self._mutex = threading.Lock()
        with storage_errors("create", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        if alone:
            self._remove_strays()

    def add(
        self,
        person: str,
        content: bytes,
        expected: SealedFor = ANY_KEY,
        *,
        logged: Callable[[str], object] | None = None,
    ) -> str:
        """Keep a picture of a person, sealed for the expected keys, and return its id, or say why it cannot be used.
        `logged` gets the id in the transaction that adds the row.
        """
        self._keys.current(person, expected)  # or it is refused before anything is decoded
        if self.count(person) >= MOST_FRAMES:
            raise InputError(
                f"at most {MOST_FRAMES} frames of a person are kept. Delete some, or choose how long they are kept."
            )
        picture = self._decoded(content)
        id = secrets.token_hex(16)
        try:
            row = {"id": id, "person": person, **self._seal(person, id, picture, expected)}
        finally:
            picture.fill(0)
        with self._database.session() as session:
            newest = session.scalar(select(func.max(frames.c.added)).where(frames.c.person == person))
            self._database.rows.insert(frames, **row, added=_after(newest, self._clock()))
            if logged is not None:
                logged(id)
        return id

    def _seal(self, person: str, id: str, picture: NDArray[np.uint8], expected: SealedFor) -> dict[str, object]:
        """Write a picture and its features, sealed; return the row's facts about the file. Features stay in memory if
        some grant may need them.
        """
        epoch, path = self._keys.current(person, expected), self._path(person, id)
        features = np.asarray(self._pipeline.transform(picture[None]), dtype=np.float32)[0]
        sealed = {
            "picture": seal_for(bytes.fromhex(epoch.owner_key), _png(picture), context=picture_context(id)),
            "features": seal_for(bytes.fromhex(epoch.public_key), features.tobytes(), context=features_context(id)),
        }
        with storage_errors("create", path.parent):
            path.parent.mkdir(mode=0o700, exist_ok=True)
        boxes = {name: np.frombuffer(box, dtype=np.uint8) for name, box in sealed.items()}
        write_arrays(path, _SEALED, {}, boxes, private=True)
        if self._keys.is_open(epoch.id):
            self._remember(id, epoch.id, features)
        told = {"sha256": sha256_of(path), "bytes": path.stat().st_size}
        return {**told, "epoch": epoch.id, "pipeline": self.pipeline}

    def open_up(self, person: str | None = None) -> int:
        """Open the features of the newest frames (of one person, or of all) whose epochs are open, while there is room
        in memory; return how many. What cannot be opened is left to who asks for it.
        """
        ids = self._keys.open_epochs(person)
        wanted, count = [id for whose, several in ids.items() if whose for id in several], 0
        newest = _ALL.where(_MADE, frames.c.epoch.in_(wanted)).order_by(frames.c.added.desc()).limit(_OPENED)
        for one in self._database.rows.fetch(frames, newest, {"pipeline": self.pipeline}) if wanted else ():
            if self._full():
                break
            if one.id not in self._recent:
                with suppress(BlindsightError):
                    self._row(one.person, one.id, one.epoch)
                    count += 1
        return count

    def stale(self, person: str) -> tuple[str, ...]:
        """Return the frames that apps do not get because another pipeline made their features."""
        other = _OF.where(frames.c.pipeline != self.pipeline).order_by(frames.c.added, frames.c.id)
        return tuple(one.id for one in self._database.rows.fetch(frames, other, {"person": person}))

    def count(self, person: str) -> int:
        return self._database.rows.count(frames, person)

    def ids(self, person: str, *, after: str | None = None, limit: int | None = None) -> tuple[str, ...]:
        """Return a person's frames, oldest first, or `limit` of them after one."""
        query = _OF.order_by(frames.c.added, frames.c.id).limit(limit)
        if after is not None:
            (last,) = self._rows_of(person, [after])
            then = (frames.c.added == last.added) & (frames.c.id > last.id)
            query = query.where((frames.c.added > last.added) | then)
        return tuple(one.id for one in self._database.rows.fetch(frames, query, {"person": person}))

    def newest(self, person: str, count: int) -> tuple[str, ...]:
        """Return the newest frames of a person, newest first."""
        query = _OF.order_by(*_BACKWARD).limit(count)
        return tuple(one.id for one in self._database.rows.fetch(frames, query, {"person": person}))

    def latest(self, person: str, count: int) -> Row:
        """Return the features of the newest frames of a person, (n, d), oldest first."""
        wanted = {"person": person, "count": max(count, 1), "pipeline": self.pipeline}
        found = self._database.rows.fetch(frames, _NEWEST, wanted)
        if len(found) != count:
            raise InputError(f"ask for 1 frame or more, and for no more than there are; got {count} of {len(found)}.")
        return _rows([self._row(person, one.id, one.epoch) for one in reversed(found)])

    def owners(self, ids: Collection[str]) -> Owners:
        """Return who is on which of these frames; those that are not there are left out."""
        wanted = [id for id in ids if _ID.fullmatch(id)]
        if not wanted:
            return {}
        rows = self._database.rows.fetch(frames, _OWNERS, {"ids": wanted, "pipeline": self.pipeline})
        return {row.id: (row.person, row.epoch) for row in rows}

    def features(self, person: str, ids: Sequence[str], owners: Owners | None = None) -> Row:
        """Return the features of some frames of a person, (n, d), in this order; `owners` knows who is on them."""
        found = self.owners(ids) if owners is None else owners
        for id in ids:
            if found.get(_checked(id), ("", ""))[0] != person:
                raise UnknownNameError("frame", id, ())
        if not ids:
            raise InputError("name at least one frame.")
        return _rows([self._row(person, id, found[id][1]) for id in ids])

    def picture(self, person: str, id: str) -> bytes:
        """Return a picture as PNG, sealed for the person on it."""
        self._rows_of(person, [id])
        return self._box(person, id, "picture")

    def _rows_of(self, person: str, ids: Sequence[str]) -> list[SqlRow[Any]]:
        """Return the rows of some frames of a person, who must have all of them."""
        query = _OF.where(frames.c.id.in_([_checked(id) for id in ids]))
        found = {one.id: one for one in self._database.rows.fetch(frames, query, {"person": person})}
        for id in ids:
            if id not in found:
                raise UnknownNameError("frame", id, ())
        return [found[id] for id in ids]

    def forget_all(self, person: str) -> int:
        """Remove all of a person: rows, memory and files; return the number of frames."""
        ids = self.ids(person)
        self._database.rows.remove_all(frames, person)
        self._remove(person, ids)
        folder = self._path(person, "").parent
        with storage_errors("delete", folder), suppress(FileNotFoundError):
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        return len(ids)

    def forget_closed(self) -> None:
        """Drop from memory what belongs to epochs that are no longer open."""
        with self._mutex:
            among = {epoch for epoch, _ in self._recent.values()}
            closed = {epoch for epoch in among if not self._keys.is_open(epoch)}
            for id in [id for id, (epoch, _) in self._recent.items() if epoch in closed]:
                del self._recent[id]

    def delete(self, person: str, ids: Sequence[str], *, logged: Callable[[], object] | None = None) -> None:
        """Forget pictures and their features; what was released of them before cannot be taken back. `logged` is called
        in the transaction that deletes the rows.
        """
        with self._database.session():
            for one in self._rows_of(person, ids):
                self._database.rows.remove(frames, one)
            if logged is not None:
                logged()
        self._remove(person, ids)

    def _remove(self, person: str, ids: Sequence[str]) -> None:
        with self._mutex:
            for id in ids:
                self._recent.pop(id, None)
        for id in ids:
            path = self._path(person, id)
            with storage_errors("delete", path):
                path.unlink(missing_ok=True)

    def over(self, person: str, *, newest: int | None, since: datetime | None) -> tuple[str, ...]:
        """Return a person's frames that are not among the `newest` or came before `since`."""
        found: list[SqlRow[Any]] = []
        if newest is not None and self.count(person) > newest:
            older = _OF.order_by(*_BACKWARD).offset(newest).limit(MOST_FRAMES)
            found += self._database.rows.fetch(frames, older, {"person": person})
        if since is not None:
            found += self._database.rows.fetch(frames, _OF.where(frames.c.added < since), {"person": person})
        return tuple(dict.fromkeys(one.id for one in found))

    def _decoded(self, content: bytes) -> NDArray[np.uint8]:
        if len(content) > self._bytes:
            raise InputError(f"a picture may have {self._bytes:,} bytes; got {len(content):,}.")
        return decode_within(content, size=self.side, pixels=self._pixels)

    def _row(self, person: str, id: str, epoch: str) -> Row:
        if not self._keys.is_open(epoch):
            self.forget_closed()
        with self._mutex:
            if id in self._recent:
                self._recent.move_to_end(id)
                return self._recent[id][1]
        return self._remember(id, epoch, self._opened(person, id, epoch))

    def _remember(self, id: str, epoch: str, opened: Row) -> Row:
        features: Row = self.prepare(opened[None])[0]
        with self._mutex:
            if self._keys.is_open(epoch):  # it may have ended since
                self._recent[id] = epoch, features
            while len(self._recent) * features.nbytes > _REMEMBERED:
                self._recent.popitem(last=False)
        return features

    def _full(self) -> bool:
        last = next(iter(self._recent.values()), None)
        return last is not None and (len(self._recent) + 1) * last[1].nbytes > _REMEMBERED

    def _opened(self, person: str, id: str, epoch: str) -> Row:
        box = self._box(person, id, "features")
        return np.frombuffer(self._keys.secret(epoch).open(box, context=features_context(id)), dtype=np.float32)

    def _box(self, person: str, id: str, part: str) -> bytes:
        _, boxes = read_arrays(self._path(person, id), _SEALED)
        if part not in boxes:
            raise CorruptFileError("a frame is not whole.")
        return boxes[part].tobytes()

    def _path(self, person: str, id: str) -> Path:
        return self._folder / hashlib.sha256(person.encode()).hexdigest()[:32] / f"{id}.sealed.npz"

    def strays(self) -> list[Path]:
        """Return the files that belong to no frame."""
        known = {self._path(person, id) for person, id in self._database.rows.named(frames)}
        return [path for path in self._folder.rglob("*") if path.is_file() and path not in known]

    def _remove_strays(self) -> None:
        for path in self.strays():
            with suppress(OSError):
                path.unlink()


def _rows(several: list[Row]) -> Row:
    return several[0][None] if len(several) == 1 else np.stack(several)


def _png(picture: NDArray[np.uint8]) -> bytes:
    """Return a picture as a file whose size tells nothing about it: it is not compressed."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG", compress_level=0)
    return stream.getvalue()


def decode_within(content: bytes, *, size: int, pixels: int) -> NDArray[np.uint8]:
    """Decode an untrusted picture of at most `pixels` pixels and `MOST_SIDE` a side, once others leave enough memory:
    12 bytes for each pixel, which count twice where a mode takes more; 800 MB for all together.
    """
    try:
        width, height, mode = claimed_size(content)
        claimed = width * height * (1 if mode in _LIGHT else 2)
        if claimed > pixels:
            raise DataError(f"more than {pixels if mode in _LIGHT else pixels // 2:,} pixels")
        if max(width, height) > MOST_SIDE:
            raise DataError(f"more than {MOST_SIDE:,} pixels on a side")
        with _DECODING.room(1 + min(claimed // 16_000_000, _AT_ONCE - 1)):
            return decode(content, size=size, shrink=True)
    except DataError as reason:
        raise InputError(f"this picture cannot be used: {reason}.") from None


def _checked(id: str) -> str:
    if _ID.fullmatch(id) is None:
        raise UnknownNameError("frame", id, ())
    return id


class _Room:
    """A counter of parts: callers take some, and wait until there are enough."""

    def __init__(self, parts: int) -> None:
        self._free, self._changed = parts, threading.Condition()

    @contextmanager
    def room(self, parts: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._free >= parts)
            self._free -= parts
        try:
            yield
        finally:
            with self._changed:
                self._free += parts
                self._changed.notify_all()


_DECODING = _Room(_AT_ONCE)


def _after(newest: datetime | None, now: datetime) -> datetime:
    """Return a moment after the newest one, so that frames keep their order whatever the clock does."""
    return now if newest is None or now > newest else newest + timedelta(microseconds=1)
