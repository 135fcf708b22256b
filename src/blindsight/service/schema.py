"""The service's tables as this code reads them; `migrations` makes them so.

Pictures, features, private labels and tokens are in no table: of a picture the row says whose it is and when it came,
of a token only its SHA-256 is kept. Moments are aware datetimes in UTC.
"""

from datetime import UTC, datetime, timedelta

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Dialect,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Moment(TypeDecorator[datetime]):
    """An aware datetime, kept as whole microseconds since 1970 so that both databases keep and order it alike."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Return what is stored."""
        return None if value is None else (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Return what was meant."""
        return None if value is None else _EPOCH + timedelta(microseconds=value)


metadata = MetaData()

principals = Table(
    "principals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("role", Text, CheckConstraint("role IN ('owner', 'app', 'operator')"), nullable=False),
    Column("token_hash", Text, nullable=False, unique=True),
    Column("created", Moment, nullable=False),
    Column("expires", Moment),
    Column("revoked", Moment),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("payload", JSON, nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state IN ('queued', 'running', 'done', 'failed', 'cancelled', 'timed out')"),
        nullable=False,
    ),
    Column("done", Float, nullable=False, default=0.0),  # the fraction of the work
    Column("doing", Text, nullable=False, default=""),  # the present step, in words
    Column("cancel", Boolean, nullable=False, default=False),  # someone asked for it to stop
    Column("attempts", Integer, nullable=False, default=0),
    Column("result", JSON(none_as_null=True)),
    Column("error", Text),
    Column("submitted", Moment, nullable=False),
    Column("started", Moment),
    Column("heartbeat", Moment),
    Column("finished", Moment),
    Index("jobs_by_state", "state", "submitted"),
    Index("jobs_by_owner", "owner", "submitted"),
)

log = Table(
    "log",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("time", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("details", Text, nullable=False),  # canonical JSON
    Column("hash", Text, nullable=False),
)

frames = Table(
    "frames",
    metadata,
    Column("id", Text, primary_key=True),
    Column("person", Text, nullable=False),
    Column("added", Moment, nullable=False),
    Column("sha256", Text, nullable=False),  # of the picture's file
    Column("bytes", BigInteger, nullable=False),
    Index("frames_by_person", "person", "added"),
)
