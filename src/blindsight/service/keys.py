"""Keys of people: what their features are sealed for, and the folder that keeps it open while a grant is live.

*The guarantee.* A person's pictures are sealed (`crypto.sealedbox`, RFC 9180) for the public key that they brought, and
features for the key of the person's *epoch*, before the first byte reaches a disk. The secret of an epoch is made here,
sealed for the person's own key, and forgotten. An approval brings it back: it is kept, while the person has a live
grant, in a folder of its own, encrypted under a key that lies there too; never in the database, in the service's folder
or in a backup. So a restarted service, or a second one with the same key folder, goes on; when the last grant ends the
secret is overwritten and removed, and the next epoch begins. From then on nothing on any disk opens the earlier
features but the person's own key. Who loses that key loses the pictures.

Overwriting is not worth much on disks that write elsewhere (flash, snapshots): put the key folder on a tmpfs; after a
restart of the machine people hand their keys over again (`Client.hand_over_keys`).
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Row, bindparam, or_, select

from blindsight.crypto.sealedbox import ExchangeKey, seal, seal_for, unseal
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.files import atomic_writer, folder_lock, storage_errors
from blindsight.rng import ByteSource, system_bytes
from blindsight.service.rows import sealed
from blindsight.service.store import Database, epochs, frames
from blindsight.statement import PrivacyStatement

_MACHINE, _SUFFIX = "machine.key", ".epoch"
_OF = sealed(epochs).where(epochs.c.person == bindparam("person"))
_PURPOSE = b"blindsight/open epoch.1 "


@dataclass(frozen=True)
class Epoch:
    """One epoch of a person; `sealed` is its secret as only the holder of `owner_key` can open it."""

    id: str
    person: str
    public_key: str
    owner_key: str
    sealed: str
    began: datetime
    ended: datetime | None


@dataclass(frozen=True)
class SealedFor:
    """The public keys, in hexadecimal, that a picture's sender expects: of the owner and of their present epoch."""

    owner_key: str | None = None
    epoch_key: str | None = None


ANY_KEY = SealedFor()


def epoch_context(id: str) -> bytes:
    return b"blindsight/epoch.1 " + id.encode()


def picture_context(frame: str) -> bytes:
    return b"blindsight/picture.1 " + frame.encode()


def features_context(frame: str) -> bytes:
    return b"blindsight/features.1 " + frame.encode()


class Keys:
    """The epochs of all people, and the open ones in `folder`, which is made when the first key comes."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        source: ByteSource = system_bytes,
    ) -> None:
        self._folder, self._database, self._clock, self._source = folder, database, clock, source

    # --- epochs ---

    def begin(self, person: str, owner_key: str, *, keep: bool = False) -> Epoch:
        """End a person's epoch and begin the next; its secret is forgotten unless a live grant needs it (`keep`)."""
        id, secret = self._source(16).hex(), ExchangeKey.generate(self._source)
        box = seal_for(bytes.fromhex(owner_key), secret.secret_bytes(), context=epoch_context(id), source=self._source)
        now = self._clock()
        made = Epoch(id, person, secret.public.hex(), owner_key, box.hex(), now, None)
        if keep:
            self._write(id, secret.secret_bytes())
        rows = self._database.rows
        with self._database.session() as session:
            used = set(session.scalars(select(frames.c.epoch).where(frames.c.person == person).distinct()))
            for one in rows.fetch(epochs, _OF, {"person": person}):
                if one.id not in used:
                    rows.remove(epochs, one)
                elif one.ended is None:
                    rows.change(epochs, one, ended=now)
            rows.insert(epochs, **vars(made))
        return made

    def of(self, person: str) -> tuple[Epoch, ...]:
        """Return the epochs of a person that matter: those with frames, and the present one, which is the last."""
        used = select(frames.c.epoch).where(frames.c.person == person)
        mine = _OF.where(or_(epochs.c.ended.is_(None), epochs.c.id.in_(used)))
        mine = mine.order_by(epochs.c.ended.is_(None), epochs.c.began, epochs.c.id)
        return tuple(map(_epoch, self._database.rows.fetch(epochs, mine, {"person": person})))

    def current(self, person: str, expected: SealedFor = ANY_KEY) -> Epoch:
        """Return the present epoch of a person, who must have brought a key; other keys than expected are refused."""
        rows = self._database.rows.fetch(epochs, _OF.where(epochs.c.ended.is_(None)), {"person": person})
        if not rows:
            raise InputError("pictures are sealed for a key of yours, and there is none. Enrol first.")
        found = _epoch(rows[-1])
        if expected.owner_key not in (None, found.owner_key):
            raise PrivacyError(
                "this picture would be sealed for another owner's key than you expect. Nothing was kept."
            )
        if expected.epoch_key not in (None, found.public_key):
            raise PrivacyError(
                "features would be sealed for another epoch's key than you expect. Nothing was kept. If your epoch has "
                "just ended, send the picture again."
            )
        return found

    # --- those that are open ---

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Let nobody else, in no process, change which epochs are open; an approval must not meet an end."""
        with storage_errors("create", self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with folder_lock(self._folder):
            yield

    def keep(self, person: str, secrets: Mapping[str, str]) -> None:
        """Keep the secrets of epochs, in hexadecimal by the epoch's id: that of the present one at least."""
        mine = {epoch.id: epoch for epoch in self.of(person)}
        if self.current(person).id not in secrets or not set(secrets) <= set(mine):
            raise InputError(
                "an approval hands over the keys of your features: that of your present epoch at least, and no other "
                "than yours. Use the page or the client, which open them with your own key."
            )
        for id, secret in secrets.items():
            try:
                right = ExchangeKey(bytes.fromhex(secret)).public.hex() == mine[id].public_key
            except ValueError:
                right = False
            if not right:
                raise InputError("this is not the key of your epoch. Use the page or the client, which open it.")
        for id, secret in secrets.items():
            self._write(id, bytes.fromhex(secret))

    def is_open(self, id: str) -> bool:
        return os.path.exists(f"{self._folder}/{id}{_SUFFIX}")  # noqa: PTH110 - asked at every release

    def secret(self, id: str) -> ExchangeKey:
        try:
            secret = unseal(self._machine_key(), self._path(id).read_bytes(), purpose=_PURPOSE + id.encode())
        except (OSError, MessageError):
            raise PrivacyError(
                "the key to these pictures is not here: the machine was started again, or its key folder exchanged. "
                "The person has to hand it over once more."
            ) from None
        return ExchangeKey(secret)

    def open_epochs(self, person: str | None = None) -> dict[str, list[str]]:
        """Return the ids of all open epochs by person, of one or of all; those of nobody are under the empty name."""
        there = [path.stem for path in self._folder.glob(f"*{_SUFFIX}")]
        rows = self._database.rows.fetch(epochs, sealed(epochs).where(epochs.c.id.in_(there))) if there else []
        known = {row.id: row.person for row in rows}
        found: dict[str, list[str]] = {}
        for id in there:
            found.setdefault(known.get(id, ""), []).append(id)
        return found if person is None else {person: found.get(person, [])}

    def close(self, ids: list[str]) -> None:
        """End epochs: their secrets are overwritten, and once none is open the key that all lie under is, too. Call it
        while `settled`.
        """
        for id in ids:
            _overwrite(self._path(id))
        if not any(self._folder.glob(f"*{_SUFFIX}")):
            _overwrite(self._folder / _MACHINE)

    def erase(self, person: str) -> None:
        with self.settled():
            self.close(self.open_epochs(person)[person])
            self._database.rows.remove_all(epochs, person)

    def _path(self, id: str) -> Path:
        return self._folder / f"{id}{_SUFFIX}"

    def _write(self, id: str, secret: bytes) -> None:
        if self.is_open(id) and self.secret(id).secret_bytes() == secret:
            return  # a second copy would free the first one, which nobody could overwrite any more
        closed = seal(self._machine_key(), secret, purpose=_PURPOSE + id.encode(), source=self._source)
        with atomic_writer(self._path(id), private=True) as stream:
            stream.write(closed)

    def _machine_key(self) -> bytes:
        path = self._folder / _MACHINE
        if not path.exists():
            with storage_errors("create", self._folder):
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = path.with_name(f".{self._source(8).hex()}.part")
            with storage_errors("write", made):
                descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(self._source(32))
                    stream.flush()
                    os.fsync(stream.fileno())
                with suppress(FileExistsError):
                    os.link(made, path)  # whoever comes second takes what the first one made
                made.unlink()
        return path.read_bytes()


def _epoch(row: Row[Any]) -> Epoch:
    return Epoch(**{part.name: getattr(row, part.name) for part in fields(Epoch)})


def _overwrite(path: Path) -> None:
    with storage_errors("delete", path), suppress(FileNotFoundError):
        with path.open("r+b") as stream:
            stream.write(bytes(path.stat().st_size))
            stream.flush()
            os.fsync(stream.fileno())
        path.unlink()


def storage_statement() -> PrivacyStatement:
    """Return what holds for the pictures that a service keeps."""
    return PrivacyStatement(
        guarantee="cryptographic",
        mechanism=(
            "pictures are sealed for the owner's public key, features for a key of the owner's present epoch (HPKE, "
            "RFC 9180: X25519, HKDF-SHA256, AES-256-GCM), before anything is written"
        ),
        unit="person",
        epsilon=None,
        delta=None,
        randomness="operating system",
        who_sees={
            "service at arrival": "the picture and its features in memory, until they are sealed",
            "service during a grant": "the features of all frames whose epoch's key the owner handed over, in memory",
            "service without a grant": "sealed bytes, when they came, and how many there are",
            "operator": "who is here, when pictures came, evidence and the log; no picture, no feature, no token",
            "app": "what was granted and released, with its receipt; no picture, no feature",
            "database, folder, backup": "sealed bytes that the owner's key alone opens",
            "owner": "everything of their own",
        },
        assumptions=(
            "the owner's private key is secret, and X25519, HKDF-SHA256 and AES-256-GCM hold",
            "the service runs this software, unaltered, when a picture arrives and while a grant is live",
            "the key folder is read by the service alone",
        ),
        not_protected=(
            "against who is root on the machine when a picture arrives or while a grant is live: memory and key folder "
            "give them the picture as it comes, and the features of the open epochs",
            "against a page altered by who runs the service: use the command line or the client where that matters",
            "when pictures came, how many there are, what was granted and what went out",
            "pictures whose owner's key is lost: nobody opens them again",
        ),
    )
