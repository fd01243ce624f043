"""What went wrong, in this package's words: a driver's error becomes a `MarianError` that names the remedy.

Connection strings and keys stay out of it: of a driver's message only what the server said is passed on.
"""

import re
from typing import Any

import psycopg
from psycopg import conninfo
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from marian_jobs.errors import BY_SQLSTATE, InvalidArgument, MarianError, StoreRefused, StoreUnavailable

_NOT_MIGRATED = (pg.UndefinedTable, pg.UndefinedFunction, pg.UndefinedColumn, pg.InvalidSchemaName)
_CREDENTIALS = (pg.InvalidPassword, pg.InvalidAuthorizationSpecification, pg.InvalidCatalogName)
_REFUSALS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "not permitted to log in")
_PORTS = re.compile(r"[\d,]*")
_PASSING = (pg.DeadlockDetected, pg.LockNotAvailable, pg.QueryCanceled, pg.ReadOnlySqlTransaction)


def parsed(dsn: str) -> dict[str, Any]:
    """The parts of a connection string; `ValueError` for one that is none, without quoting it."""
    try:
        found = dict(conninfo.conninfo_to_dict(dsn))
    except psycopg.Error:
        # Its message quotes the text, and with it perhaps the password.
        raise ValueError("the database URL is not a valid connection string (postgresql://user:…@host/db)") from None
    if "://" in dsn and (dsn.partition("?")[0].count("@") > 1 or not _PORTS.fullmatch(str(found.get("port", "")))):
        # Cut at the first @ or slash, a part of the password becomes the host or the port, which errors name.
        raise ValueError("the database URL has no proper host and port: write @ as %40 and / as %2F in its password")
    return found


def explain(error: Exception) -> MarianError:
    """The error to raise in place of a driver's; raise it `from` the driver's, which stays its cause."""
    if isinstance(error, PoolTimeout | TooManyRequests | PoolClosed):
        return StoreUnavailable(f"no connection to the database: {_first_line(error)}")
    if not isinstance(error, psycopg.Error):
        return StoreUnavailable(f"the connection broke: {type(error).__name__}")
    if error.sqlstate in BY_SQLSTATE:
        return BY_SQLSTATE[error.sqlstate](_said(error))
    if isinstance(error, _NOT_MIGRATED):
        return StoreRefused(f"the queue's schema is missing or too old ({_said(error)}): run `marian migrate`")
    if isinstance(error, pg.InsufficientPrivilege):
        return StoreRefused(f"{_said(error)}: connect as the database's owner or as service_role")
    if isinstance(error, pg.DatatypeMismatch):
        return StoreUnavailable("the queue's table was changed while the call waited for it; nothing was done")
    if isinstance(error, _CREDENTIALS) or _refused_login(error):
        return StoreRefused(f"the database refused the login: {_said(error)}")
    if isinstance(error, pg.ForeignKeyViolation):
        return InvalidArgument("user_id: no such user in auth.users")
    if isinstance(error, (*_PASSING, psycopg.OperationalError, psycopg.InterfaceError)):
        return StoreUnavailable(f"the database could not answer: {_said(error)}")
    if isinstance(error, psycopg.IntegrityError | psycopg.DataError):
        return InvalidArgument(_said(error))
    return StoreRefused(f"the database refused the call: {_said(error)}")


def _refused_login(error: psycopg.Error) -> bool:
    """A connection that never came about has no SQLSTATE, only the server's words."""
    return error.sqlstate is None and any(words in str(error) for words in _REFUSALS)


def was_not_carried_out(error: BaseException) -> bool:
    """Whether the call surely had no effect, so that any call may be sent again: no connection could be had for it, or
    a column was added to the table while it waited for that (it began with the row's old type, and was rolled back)."""
    return isinstance(error, PoolTimeout | TooManyRequests | pg.DatatypeMismatch)


def is_broken_off(error: Exception) -> bool:
    """Whether the connection was lost, so that a call that is harmless to repeat may be repeated."""
    return isinstance(error, OSError | psycopg.OperationalError | psycopg.InterfaceError) and not isinstance(
        error, (*_CREDENTIALS, PoolTimeout, TooManyRequests, PoolClosed)
    )


def _said(error: psycopg.Error) -> str:
    return error.diag.message_primary or _first_line(error)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
