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

from sqlalchemy import Row, bindparam, func, or_, select

from blindsight.crypto.sealedbox import seal_for
from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.rng import ByteSource, system_bytes
from blindsight.service.rows import Rows, sealed
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
ACTORS = ("machine", "platform", "stranger")  # who acts in the log without being a principal
_ALIKE = str.maketrans("аеорсухіјѕһԁԛԝвкмнтαβεηικμνορτυχ01", "aeopcyxijshdqwbkmhtabehikmvoptuxol")

_ACTIVE = principals.c.revoked.is_(None) & or_(
    principals.c.expires.is_(None), principals.c.expires > bindparam("now", type_=principals.c.expires.type)
)
_ALL = sealed(principals)
_BY_TOKEN = _ALL.where(principals.c.token_hash == bindparam("digest"), _ACTIVE)
"""Made once, because every request asks it."""
_BY_TOKENS = _ALL.where(principals.c.token_hash.in_(bindparam("digests", expanding=True)), _ACTIVE)


class TakenError(InputError):
    """A name that somebody has, or that looks like one."""


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

    def active(self, now: datetime) -> bool:
        return self.revoked is None and (self.expires is None or self.expires > now)


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
    def _rows(self) -> Rows:
        return self._database.rows

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
            alike = select(principals.c.id).where(principals.c.skeleton == skeleton(name))
            if skeleton(name) in map(skeleton, ACTORS) or session.scalar(alike) is not None:
                raise TakenError(f"the name {name!r} is taken, or looks like one that is. Choose another.")
            values = {**vars(principal), "skeleton": skeleton(name), "token_hash": token_hash(self.new_token())}
            self._rows.insert(principals, **values)
            return principal, self.issue_code(principal.id, hours=hours)

    def issue_code(self, id: str, *, hours: float = CODE_HOURS, expires: datetime | None = None) -> Token:
        """Return a code for somebody who has no token yet or lost it; their token and earlier codes end. The new token
        expires when the last one would, unless `expires` is given.
        """
        if not 0 < hours <= 24 * 365:
            raise InputError(f"a code is good for some hours, at most a year; got {hours}.")
        now, drawn = self._clock(), b32encode(self._source(15)).decode()
        with self._database.session():
            row = self._row(id)
            self._check_standing(_principal(row), now, expires)
            self.end_codes(id)
            until = now + timedelta(hours=hours)
            self._rows.insert(enrolments, code_hash=token_hash(drawn), principal=id, expires=until)
            change = {"token_hash": token_hash(self.new_token()), "expires": expires or row.expires}
            self._rows.change(principals, row, **change)
        return Token("-".join(drawn[place : place + 6] for place in range(0, len(drawn), 6)))

    def end_codes(self, id: str | None = None) -> int:
        """Let the codes of somebody, or of all, that were not redeemed expire; return their number."""
        now = self._clock()
        query = sealed(enrolments).where(enrolments.c.redeemed.is_(None), enrolments.c.expires > now)
        with self._database.session():
            found = self._rows.fetch(enrolments, query if id is None else query.where(enrolments.c.principal == id))
            for one in found:
                self._rows.change(enrolments, one, expires=now)
        return len(found)

    def redeem(self, code: str, public_key: str | None = None) -> tuple[Principal, Token]:
        """Make the token of who holds a code; an owner brings the public key for which pictures are sealed."""
        now, token = self._clock(), self.new_token()
        with self._database.session():
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
            row = self._row(found.principal)
            self._check_standing(_principal(row), now)
            change = {"token_hash": token_hash(token)}
            if row.role == "owner":
                if public_key is None:
                    raise InputError("an owner brings a public key, for which pictures are sealed. Use the client.")
                change["public_key"] = _checked_key(public_key)
            self._rows.change(enrolments, found, redeemed=now)
            self._rows.change(principals, row, **change)
            return self.get(row.id), token

    def whose_code(self, code: str) -> Principal | None:
        """Return for whom a code was issued, however it stands."""
        found = self._enrolment(code)
        return None if found is None else self.get(found.principal)

    def _enrolment(self, code: str) -> Any:
        digest = token_hash(re.sub(r"[\s-]", "", code).upper())
        found = self._rows.fetch(enrolments, sealed(enrolments).where(enrolments.c.code_hash == digest))
        return next(iter(found), None)

    def authenticate(self, token: str) -> Principal | None:
        """Return whose token this is, or None: unknown, expired, revoked and malformed ones are all alike."""
        if not isinstance(token, str) or TOKEN.fullmatch(token) is None:
            return None
        digest = token_hash(token)
        for found in self._rows.fetch(principals, _BY_TOKEN, {"digest": digest, "now": self._clock()}):
            if hmac.compare_digest(found.token_hash, digest):
                return _principal(found)
        return None

    def active(self, digests: Collection[str]) -> dict[str, Principal]:
        """Return whose tokens have these hashes, without those that ended; asked for many at once."""
        if not digests:
            return {}
        found = self._rows.fetch(principals, _BY_TOKENS, {"digests": list(digests), "now": self._clock()})
        return {row.token_hash: _principal(row) for row in found}

    def get(self, id: str) -> Principal:
        """Return the principal with this id; the error for an unknown one names no others."""
        return _principal(self._row(id))

    def _row(self, id: str) -> Row[Any]:
        check_name(id)
        for found in self._rows.fetch(principals, _ALL.where(principals.c.id == id)):
            return found
        raise UnknownNameError("principal", id, ())

    def named(self, name: str) -> Principal | None:
        found = self._rows.fetch(principals, _ALL.where(principals.c.name == name))
        return _principal(found[0]) if found else None

    def list(self, *, after: Principal | None = None, limit: int | None = None) -> tuple[Principal, ...]:
        """Return everybody in the order they came, or `limit` of them after one."""
        query = _ALL.order_by(principals.c.created, principals.c.id).limit(limit)
        if after is not None:
            then = (principals.c.created == after.created) & (principals.c.id > after.id)
            query = query.where((principals.c.created > after.created) | then)
        return tuple(map(_principal, self._rows.fetch(principals, query)))

    def ended_owners(self) -> tuple[Principal, ...]:
        """Return owners who were revoked, or for whom a code was issued that nobody has redeemed yet."""
        mine = _ALL.where(principals.c.role == "owner")
        gone = self._rows.fetch(principals, mine.where(principals.c.revoked.is_not(None)))
        query = sealed(enrolments).where(enrolments.c.redeemed.is_(None)).distinct()
        waiting = {one.principal for one in self._rows.fetch(enrolments, query)}
        again = self._rows.fetch(principals, mine.where(principals.c.revoked.is_(None), principals.c.id.in_(waiting)))
        return tuple(map(_principal, (*gone, *again)))

    def revoke(self, id: str) -> None:
        """Make the token of this principal worthless for ever; the last operator stays, for nobody could follow."""
        with self._database.session():
            row = self._row(id)
            operators = self._rows.fetch(
                principals, _ALL.where(principals.c.role == "operator", _ACTIVE), {"now": self._clock()}
            )
            if [one.id for one in operators] == [id]:
                raise InputError(
                    f"{row.name!r} is the last operator and cannot be revoked. Create another operator first."
                )
            if row.revoked is None:
                self._rows.change(principals, row, revoked=self._clock())

    def rotate(self, id: str, *, renewed: bool = True) -> Token:
        """Replace the token of who asks: the old one is worthless at once, the new one is shown once. One that is not
        `renewed` is for nobody, whether the old one had expired or not.
        """
        token = self.new_token()
        with self._database.session():
            row = self._row(id)
            if renewed:
                self._check_standing(_principal(row), self._clock())
            self._rows.change(principals, row, token_hash=token_hash(token))
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


def _checked_key(public_key: str) -> str:
    try:
        seal_for(bytes.fromhex(public_key), b"", context=b"")
    except ValueError:
        raise InputError("a public key is 32 bytes of X25519 in hexadecimal.") from None
    return public_key.lower()


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _principal(row: Row[*tuple[Any, ...]]) -> Principal:
    return Principal(row.id, row.name, row.role, row.created, row.expires, row.revoked, row.public_key)
