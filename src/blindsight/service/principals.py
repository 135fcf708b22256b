"""Who may knock at the service: owners, apps and operators, each with one token that is shown once.

*The guarantee.* A token holds 256 bits from the operating system; only its SHA-256 is stored, so a stolen database
opens no door (a slow hash would add nothing: there is no dictionary of such tokens). A token that expired, was revoked
or was replaced opens none either, from that moment on, in every process. No representation, error or log shows one.
"""

import hashlib
import hmac
import re
import unicodedata
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from sqlalchemy import Row, bindparam, func, insert, or_, select, update

from blindsight.errors import InputError, UnknownNameError
from blindsight.rng import ByteSource, system_bytes
from blindsight.service.store import Database, principals

Role = Literal["owner", "app", "operator"]
"""An owner sets what is private, an app proposes sifts and reads sifted data, an operator runs the service."""

TOKEN = re.compile(r"blindsight_[A-Za-z0-9_-]{43}")
NAME_LENGTH = 100
_ALIKE = str.maketrans("аеорсухіјѕһԁԛԝвкмнтαβεηικμνορτυχ01", "aeopcyxijshdqwbkmhtabehikmvoptuxol")

_COLUMNS = (
    principals.c.id,
    principals.c.name,
    principals.c.role,
    principals.c.created,
    principals.c.expires,
    principals.c.revoked,
)
_ACTIVE = principals.c.revoked.is_(None) & or_(
    principals.c.expires.is_(None), principals.c.expires > bindparam("now", type_=principals.c.expires.type)
)
_BY_TOKEN = select(*_COLUMNS, principals.c.token_hash).where(principals.c.token_hash == bindparam("digest"), _ACTIVE)
"""Made once, because every request asks it."""


class Token(str):
    """A token's text; only printing or sending it shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<Token, hidden>"


@dataclass(frozen=True)
class Principal:
    """Someone with a role. The moments tell how the token stands."""

    id: str
    name: str
    role: Role
    created: datetime | None = None
    expires: datetime | None = None
    revoked: datetime | None = None


class Principals:
    """Everyone the service knows."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        source: ByteSource = system_bytes,
    ) -> None:
        """Keep them in `database`."""
        self._database = database
        self._clock = clock
        self._source = source

    @property
    def database(self) -> Database:
        """Where they are kept: in a `session` block of it, what is done here is part of that transaction."""
        return self._database

    def create(self, name: str, role: Role, *, expires: datetime | None = None) -> tuple[Principal, Token]:
        """Add someone; the token returned is not to be had again. Names are unique and stay taken."""
        check_name(name)
        if role not in get_args(Role):
            raise UnknownNameError("role", str(role), get_args(Role))
        now = self._clock()
        self._check_expiry(expires, now)
        token = self._new_token()
        principal = Principal(f"{role}-{self._source(8).hex()}", name, role, now, expires)
        with self._database.session() as session:
            if skeleton(name) in map(skeleton, session.scalars(select(principals.c.name))):
                raise InputError(f"the name {name!r} is taken, or looks like one that is. Choose another.")
            session.execute(
                insert(principals).values(
                    id=principal.id, name=name, role=role, token_hash=_hash(token), created=now, expires=expires
                )
            )
        return principal, token

    def authenticate(self, token: str) -> Principal | None:
        """Return whose token this is, or None: unknown, expired, revoked and malformed ones are all alike."""
        if not isinstance(token, str) or TOKEN.fullmatch(token) is None:
            return None
        digest = _hash(token)
        with self._database.reading() as session:
            found = session.execute(_BY_TOKEN, {"digest": digest, "now": self._clock()}).one_or_none()
        if found is None or not hmac.compare_digest(found.token_hash, digest):
            return None
        return _principal(found)

    def get(self, id: str) -> Principal:
        """Return the principal with this id; the error for an unknown one names no others."""
        check_name(id)
        with self._database.reading() as session:
            found = session.execute(select(*_COLUMNS).where(principals.c.id == id)).one_or_none()
        if found is None:
            raise UnknownNameError("principal", id, ())
        return _principal(found)

    def list(self) -> tuple[Principal, ...]:
        """Return everyone, also the revoked, in the order they came."""
        with self._database.reading() as session:
            rows = session.execute(select(*_COLUMNS).order_by(principals.c.created, principals.c.id)).all()
        return tuple(_principal(row) for row in rows)

    def revoke(self, id: str) -> None:
        """Make the token of this principal worthless for ever; the last operator stays, for nobody could follow."""
        with self._database.session() as session:
            principal = self.get(id)
            operators = select(principals.c.id).where(principals.c.role == "operator", _ACTIVE)
            if session.scalars(operators, {"now": self._clock()}).all() == [id]:
                raise InputError(
                    f"{principal.name!r} is the last operator and cannot be revoked. Rotate its token, or create "
                    "another operator first."
                )
            session.execute(
                update(principals)
                .where(principals.c.id == id, principals.c.revoked.is_(None))
                .values(revoked=self._clock())
            )

    def rotate(self, id: str, *, expires: datetime | None = None) -> Token:
        """Replace the token: the old one is worthless at once, the new one is returned and not to be had again.

        The expiry stays as it was unless another is given; an expired principal needs one.
        """
        now = self._clock()
        token = self._new_token()
        with self._database.session() as session:
            principal = self.get(id)
            if principal.revoked is not None:
                raise InputError(f"{principal.name!r} was revoked, which is for ever. Create another principal.")
            until = expires or principal.expires
            self._check_expiry(until, now)
            session.execute(
                update(principals).where(principals.c.id == id).values(token_hash=_hash(token), expires=until)
            )
        return token

    def first_run(self) -> Token | None:
        """Create the first operator and return its token; None if anyone exists already."""
        with self._database.session() as session:
            if session.scalar(select(func.count()).select_from(principals)):
                return None
            return self.create("operator", "operator")[1]

    def _new_token(self) -> Token:
        return Token("blindsight_" + urlsafe_b64encode(self._source(32)).decode().rstrip("="))

    def _check_expiry(self, expires: datetime | None, now: datetime) -> None:
        if expires is None:
            return
        if expires.tzinfo is None:
            raise InputError(f"expires must say its time zone; got {expires.isoformat()}. Use UTC.")
        if expires <= now:
            raise InputError(f"expires must lie in the future; got {expires.isoformat()}.")


def skeleton(name: str) -> str:
    """Return what names have in common that a reader takes for each other: case, width, Cyrillic and Greek letters.

    >>> skeleton("Ann") == skeleton("\u0410nn") == skeleton("\uff21NN")
    True
    """
    return unicodedata.normalize("NFKC", name).casefold().translate(_ALIKE)


def check_name(name: str) -> None:
    """Refuse a name that is empty, long, padded or holds characters that do not print."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LENGTH:
        raise InputError(f"a name must have 1 to {NAME_LENGTH} characters.")
    if not name.isprintable() or name != name.strip() or not unicodedata.is_normalized("NFC", name):
        raise InputError("a name must be of printable characters in Unicode's form NFC, without spaces around it.")
    if TOKEN.search(name):
        raise InputError("a name must not be a token, which is a secret. Choose another, and rotate that token.")


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _principal(row: Row[*tuple[Any, ...]]) -> Principal:
    return Principal(row.id, row.name, row.role, row.created, row.expires, row.revoked)
