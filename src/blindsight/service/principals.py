"""Principals (owners, apps and operators), each with one token that only they have seen.

*The guarantee.* An operator who adds somebody gets a code, not a token: it is redeemed once, within its time, and only
then is a token made, for who redeemed it. A code that was redeemed tells the next one who tries when that was; a new
code makes the old token worthless. A token holds 256 bits from the operating system, a code 120; only their SHA-256 is
stored, so a stolen database opens nothing (a slow hash would add nothing: there is no dictionary of them). A token that
expired, was revoked or was replaced ends at that moment, in every process. No representation, error or log shows one.
"""

import hashlib
import hmac
import re
import unicodedata
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from sqlalchemy import Row, bindparam, func, insert, or_, select, update

from blindsight.crypto.sealedbox import seal_for
from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.rng import ByteSource, system_bytes
from blindsight.service.store import Database, enrolments, principals

Role = Literal["owner", "app", "operator", "device"]
"""An owner sets what is private, an app proposes sifts and reads sifted data, an operator runs the service; a device
brings frames of the owner whose name it has (`cameras`), and is no principal of its own.
"""
ROLES = get_args(Role)[:3]

TOKEN = re.compile(r"blindsight_[A-Za-z0-9_-]{43}")
SECRET = re.compile(rf"{TOKEN.pattern}|\b[A-Z2-7]{{6}}(?:-[A-Z2-7]{{6}}){{3}}\b")
"""A token or a code, which no name and no entry of the log may hold."""
NAME_LENGTH = 100
CODE_HOURS = 72  # until a code expires
_ALIKE = str.maketrans("аеорсухіјѕһԁԛԝвкмнтαβεηικμνορτυχ01", "aeopcyxijshdqwbkmhtabehikmvoptuxol")

_COLUMNS = (
    principals.c.id,
    principals.c.name,
    principals.c.role,
    principals.c.created,
    principals.c.expires,
    principals.c.revoked,
    principals.c.public_key,
)
ACTIVE = principals.c.revoked.is_(None) & or_(
    principals.c.expires.is_(None), principals.c.expires > bindparam("now", type_=principals.c.expires.type)
)
_BY_TOKEN = select(*_COLUMNS, principals.c.token_hash).where(principals.c.token_hash == bindparam("digest"), ACTIVE)
"""Made once, because every request asks it."""
_BY_TOKENS = select(*_COLUMNS, principals.c.token_hash).where(
    principals.c.token_hash.in_(bindparam("digests", expanding=True)), ACTIVE
)


class DeadTokenError(PrivacyError):
    """A token that opened the door has ended since."""


class Token(str):
    """The text of a token or a code; only printing or sending it shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<Token, hidden>"


@dataclass(frozen=True)
class Principal:
    """Someone with a role. The moments tell how the token stands; for an owner's `public_key` pictures are sealed."""

    id: str
    name: str
    role: Role
    created: datetime | None = None
    expires: datetime | None = None
    revoked: datetime | None = None
    public_key: str | None = None


class Principals:
    """Everyone the service knows."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        source: ByteSource = system_bytes,
    ) -> None:
        self._database = database
        self._clock = clock
        self._source = source

    @property
    def database(self) -> Database:
        """Where they are kept: in a `session` block of it, what is done here is part of that transaction."""
        return self._database

    def create(
        self, name: str, role: Role, *, expires: datetime | None = None, hours: float = CODE_HOURS
    ) -> tuple[Principal, Token]:
        """Add someone; return the code that makes their token, once. Names are unique and stay taken."""
        check_name(name)
        if role not in ROLES:
            raise UnknownNameError("role", str(role), ROLES)
        now = self._clock()
        self._check_expiry(expires, now)
        principal = Principal(f"{role}-{self._source(8).hex()}", name, role, now, expires)
        with self._database.session() as session:
            if skeleton(name) in map(skeleton, session.scalars(select(principals.c.name))):
                raise InputError(f"the name {name!r} is taken, or looks like one that is. Choose another.")
            nobodys = token_hash(self.new_token())
            values = {"id": principal.id, "name": name, "role": role, "created": now, "expires": expires}
            session.execute(insert(principals).values(**values, token_hash=nobodys))
            return principal, self.issue_code(principal.id, hours=hours)

    def issue_code(self, id: str, *, hours: float = CODE_HOURS, expires: datetime | None = None) -> Token:
        """Return a code for somebody who has no token yet or lost it; their token and earlier codes end. The new token
        expires when the last one would, unless `expires` is given.
        """
        if not 0 < hours <= 24 * 365:
            raise InputError(f"a code is good for some hours, at most a year; got {hours}.")
        now, drawn = self._clock(), b32encode(self._source(15)).decode()
        with self._database.session() as session:
            principal = self.get(id)
            self._check_standing(principal, now, expires)
            session.execute(
                update(enrolments)
                .where(enrolments.c.principal == id, enrolments.c.redeemed.is_(None), enrolments.c.expires > now)
                .values(expires=now)
            )
            row = {"code_hash": token_hash(drawn), "principal": id, "expires": now + timedelta(hours=hours)}
            session.execute(insert(enrolments).values(**row))
            change = {"token_hash": token_hash(self.new_token()), "expires": expires or principal.expires}
            session.execute(update(principals).where(principals.c.id == id).values(**change))
        return Token("-".join(drawn[place : place + 6] for place in range(0, len(drawn), 6)))

    def redeem(self, code: str, public_key: str | None = None) -> tuple[Principal, Token]:
        """Make the token of who holds a code; an owner brings the public key for which pictures are sealed."""
        now, token = self._clock(), self.new_token()
        with self._database.session() as session:
            found = self._enrolment(code)
            if found is None:
                raise PrivacyError("this code opens nothing. Look for a mistyped letter, or ask for another code.")
            if found.redeemed is not None:
                raise PrivacyError(
                    f"this code was redeemed already, at {found.redeemed.isoformat(timespec='seconds')}. If that was "
                    "not you, somebody else has your token: tell the operator and whoever reads the log."
                )
            if found.expires <= now:
                raise PrivacyError("this code has expired, or another was issued after it. Ask for another.")
            principal = self.get(found.principal)
            self._check_standing(principal, now)
            if principal.role == "owner":
                if public_key is None:
                    raise InputError("an owner brings a public key, for which pictures are sealed. Use the client.")
                self.set_key(principal.id, public_key)
            mine = enrolments.c.code_hash == found.code_hash
            session.execute(update(enrolments).where(mine).values(redeemed=now))
            session.execute(
                update(principals).where(principals.c.id == principal.id).values(token_hash=token_hash(token))
            )
            return self.get(principal.id), token

    def whose_code(self, code: str) -> Principal | None:
        """Return for whom a code was issued, however it stands."""
        found = self._enrolment(code)
        return None if found is None else self.get(found.principal)

    def _enrolment(self, code: str) -> Any:
        digest = token_hash(re.sub(r"[\s-]", "", code).upper())
        with self._database.reading() as session:
            return session.execute(select(enrolments).where(enrolments.c.code_hash == digest)).one_or_none()

    def set_key(self, id: str, public_key: str) -> None:
        try:
            seal_for(bytes.fromhex(public_key), b"", context=b"")
        except ValueError:
            raise InputError("a public key is 32 bytes of X25519 in hexadecimal.") from None
        with self._database.session() as session:
            known = update(principals).where(principals.c.id == id).values(public_key=public_key.lower())
            session.execute(known)

    def authenticate(self, token: str) -> Principal | None:
        """Return whose token this is, or None: unknown, expired, revoked and malformed ones are all alike."""
        if not isinstance(token, str) or TOKEN.fullmatch(token) is None:
            return None
        digest = token_hash(token)
        with self._database.reading() as session:
            found = session.execute(_BY_TOKEN, {"digest": digest, "now": self._clock()}).one_or_none()
        if found is None or not hmac.compare_digest(found.token_hash, digest):
            return None
        return _principal(found)

    def active(self, digests: Collection[str]) -> dict[str, Principal]:
        """Return whose tokens have these hashes, without those that ended; asked for many at once."""
        if not digests:
            return {}
        with self._database.reading() as session:
            rows = session.execute(_BY_TOKENS, {"digests": list(digests), "now": self._clock()})
            return {row.token_hash: _principal(row) for row in rows}

    def get(self, id: str) -> Principal:
        """Return the principal with this id; the error for an unknown one names no others."""
        check_name(id)
        with self._database.reading() as session:
            found = session.execute(select(*_COLUMNS).where(principals.c.id == id)).one_or_none()
        if found is None:
            raise UnknownNameError("principal", id, ())
        return _principal(found)

    def list(self) -> tuple[Principal, ...]:
        with self._database.reading() as session:
            rows = session.execute(select(*_COLUMNS).order_by(principals.c.created, principals.c.id)).all()
        return tuple(_principal(row) for row in rows)

    def revoked_owners(self) -> tuple[Principal, ...]:
        gone = select(*_COLUMNS).where(principals.c.role == "owner", principals.c.revoked.is_not(None))
        with self._database.reading() as session:
            return tuple(_principal(row) for row in session.execute(gone))

    def revoke(self, id: str) -> None:
        """Make the token of this principal worthless for ever; the last operator stays, for nobody could follow."""
        with self._database.session() as session:
            principal = self.get(id)
            operators = select(principals.c.id).where(principals.c.role == "operator", ACTIVE)
            if session.scalars(operators, {"now": self._clock()}).all() == [id]:
                raise InputError(
                    f"{principal.name!r} is the last operator and cannot be revoked. Create another operator first."
                )
            session.execute(
                update(principals)
                .where(principals.c.id == id, principals.c.revoked.is_(None))
                .values(revoked=self._clock())
            )

    def rotate(self, id: str) -> Token:
        """Replace the token of who asks: the old one is worthless at once, the new one is shown once."""
        token = self.new_token()
        with self._database.session() as session:
            self._check_standing(self.get(id), self._clock())
            session.execute(update(principals).where(principals.c.id == id).values(token_hash=token_hash(token)))
        return token

    def first_run(self) -> Token | None:
        """Create the first operator and return its token; None if anyone exists already."""
        with self._database.session() as session:
            if session.scalar(select(func.count()).select_from(principals)):
                return None
            return self.redeem(self.create("operator", "operator")[1])[1]

    def _check_standing(self, principal: Principal, now: datetime, expires: datetime | None = None) -> None:
        if principal.revoked is not None:
            raise InputError(f"{principal.name!r} was revoked, which is for ever. Create another principal.")
        self._check_expiry(expires or principal.expires, now)

    def new_token(self) -> Token:
        return Token("blindsight_" + urlsafe_b64encode(self._source(32)).decode().rstrip("="))

    def _check_expiry(self, expires: datetime | None, now: datetime) -> None:
        if expires is None:
            return
        if expires.tzinfo is None:
            raise InputError(f"expires must say its time zone; got {expires.isoformat()}. Use UTC.")
        if expires <= now:
            raise InputError(f"expires must lie in the future; got {expires.isoformat()}.")


def told_of(principal: Principal) -> dict[str, str]:
    """Return what the log says about somebody; of an owner also as the person, who may read what is about them."""
    about = {"principal": principal.id, "name": principal.name, "role": principal.role}
    return about | ({"person": principal.name} if principal.role == "owner" else {})


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
    if SECRET.search(name):
        raise InputError("a name must not be a token, which is a secret. Choose another, and rotate that token.")


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _principal(row: Row[*tuple[Any, ...]]) -> Principal:
    return Principal(row.id, row.name, row.role, row.created, row.expires, row.revoked, row.public_key)
