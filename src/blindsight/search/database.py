"""Connections to PostgreSQL that come back by themselves, and errors in one sentence that tell no secret.

What libpq says can quote the connection string, so none of its words are passed on; what the server says about a
statement is.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from blindsight.errors import InputError, StorageError
from blindsight.extras import require

T = TypeVar("T")

_ATTEMPTS = 5  # at work that PostgreSQL broke off because of other writers


class Database:
    """A pool of up to `connections` connections; `patience` is how many seconds to wait for one."""

    def __init__(self, dsn: str, *, connections: int = 4, patience: float = 30.0) -> None:
        self._psycopg = require("psycopg", extra="postgres", purpose="an index in PostgreSQL")
        pool = require("psycopg_pool", extra="postgres", purpose="an index in PostgreSQL")
        if connections < 1 or not patience > 0:
            raise InputError(f"connections must be >= 1 and patience > 0; got {connections!r} and {patience!r}.")
        try:
            self._psycopg.conninfo.conninfo_to_dict(dsn)
        except (self._psycopg.Error, AttributeError, TypeError):
            raise InputError(
                "the connection string cannot be read. It looks like 'postgresql://user@host/name' or "
                "'host=... dbname=... user=...'."
            ) from None
        self._pool = pool.ConnectionPool(
            dsn,
            min_size=1,
            max_size=connections,
            open=False,
            timeout=patience,
            reconnect_timeout=patience,  # then it rests, and the next operation knocks again at once
            check=pool.ConnectionPool.check_connection,
            kwargs={"connect_timeout": math.ceil(patience), "prepare_threshold": None},
        )
        self._pool.open()

    def run(self, doing: str, work: Callable[[Any], T]) -> T:
        """Do `work` with a connection inside one transaction; `doing` names it in errors ("a search")."""
        for _ in range(_ATTEMPTS):
            try:
                with self._pool.connection() as connection:
                    return work(connection)
            except (self._psycopg.errors.DeadlockDetected, self._psycopg.errors.SerializationFailure):
                continue
            except (self._psycopg.OperationalError, self._psycopg.InterfaceError):
                raise StorageError(
                    f"PostgreSQL could not be reached, or went away during {doing}. A change happened whole or not at "
                    "all. Try again when it is back."
                ) from None
            except self._psycopg.Error as error:
                raise StorageError(f"PostgreSQL refused {doing}: {error.diag.message_primary}.") from None
        raise StorageError(f"PostgreSQL broke off {doing} {_ATTEMPTS} times because of other writers. Try again.")

    def close(self) -> None:
        self._pool.close()
