"""The schema's versions: which there are, which a database has, and how it gets the rest.

They are recorded where and as `supabase db push` records them, so that either may follow the other. Each file is one
transaction, which takes an advisory lock first: any number of processes may migrate at once, and each step is done by
one of them. A step that fails leaves the version before it intact.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors as pg
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from marian_jobs.errors import MarianError
from marian_jobs.stores.refusals import explain, parsed

LOCK_TIMEOUT = timedelta(seconds=5)
_TRIES = 3
_PAUSE = timedelta(seconds=1)
_HERE = Path(__file__).parent
_PLACES = (_HERE / "supabase", _HERE.parent / "supabase")  # in a wheel, in a checkout
_FILE = re.compile(r"(\d+)_(.*)\.sql")

_HISTORY = """
create schema if not exists supabase_migrations;
create table if not exists supabase_migrations.schema_migrations (version text not null primary key);
alter table supabase_migrations.schema_migrations add column if not exists statements text[];
alter table supabase_migrations.schema_migrations add column if not exists name text;
"""

# What may hold a semicolon that ends nothing, then the semicolon that ends a statement, then anything else.
_TOKEN = re.compile(
    r"""
    --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\1\$ | [eE]'(?:\\.|''|[^'\\])*' | '(?:''|[^'])*' | "(?:""|[^"])*" | ; | .
    """,
    re.DOTALL | re.VERBOSE,
)


class MigrationFailed(MarianError):
    """A step could not be applied; the versions before it stand, and it has left nothing behind."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: its version (a timestamp), its name, its SQL, and the file that holds it."""

    version: str
    name: str
    sql: str
    path: Path

    @property
    def statements(self) -> list[str]:
        """The SQL in single statements, as the Supabase CLI records them: trimmed, without their semicolons."""
        texts = [""]
        for token in _TOKEN.finditer(self.sql):
            if token[0] == ";":
                texts.append("")
            else:
                texts[-1] += token[0]
        return [text.strip() for text in texts if text.strip()]


def project() -> Path:
    """The directory with `migrations` and `functions`, of the wheel or of the checkout."""
    for place in _PLACES:
        if (place / "migrations").is_dir():
            return place
    raise MarianError("this installation lacks its migrations: install marian-jobs anew")


def available(directory: Path | None = None) -> list[Migration]:
    """All steps there are, oldest first: the files `<digits>_<name>.sql` of a directory, by default our own."""
    place = directory or project() / "migrations"
    if not place.is_dir():
        raise MarianError(f"{place}: there is no such directory of migrations")
    named = [(match, file) for file in place.iterdir() if (match := _FILE.fullmatch(file.name))]
    return sorted((Migration(m[1], m[2], file.read_text("utf-8"), file) for m, file in named), key=lambda s: s.version)


def pending(dsn: str, directory: Path | None = None) -> list[Migration]:
    """The steps that the database does not have yet; changes nothing, and so is the dry run of `migrate`."""
    with _connected(dsn) as connection:
        applied = _applied(connection)
    return [step for step in available(directory) if step.version not in applied]


def schema_version(dsn: str, directory: Path | None = None) -> str | None:
    """The newest of our versions that the database has, None where it has none; other people's are not looked at."""
    ours = {step.version for step in available(directory)}
    with _connected(dsn) as connection:
        return max(ours & _applied(connection), default=None)


def migrate(
    dsn: str,
    directory: Path | None = None,
    *,
    on_step: Callable[[Migration], None] = lambda _: None,
    lock_timeout: timedelta = LOCK_TIMEOUT,
) -> list[Migration]:
    """Applies what is missing and returns it; raises `MigrationFailed` naming the step that could not be applied.

    `on_step` is told of each step once it stands. A step waits for what it locks at most `lock_timeout`, three times.
    Other errors: `StoreUnavailable`, `StoreRefused`, `ValueError` for a text that is no connection string.
    """
    with _connected(dsn) as connection:
        applied = _applied(connection)
        done = []
        for step in available(directory):
            if step.version not in applied and _applied_by_us(connection, step, lock_timeout):
                on_step(step)
                done.append(step)
        return done


def _applied_by_us(connection: psycopg.Connection[Any], step: Migration, lock_timeout: timedelta) -> bool:
    """Whether this process applied the step; another may have been first."""
    patience = Retrying(
        retry=retry_if_exception_type(pg.LockNotAvailable),
        stop=stop_after_attempt(_TRIES),
        wait=wait_fixed(_PAUSE),
        reraise=True,
    )
    try:
        return patience(_apply, connection, step, lock_timeout)
    except pg.LockNotAvailable as e:
        raise MigrationFailed(
            f"{step.path.name}: something it must lock was in use, {_TRIES} times for {lock_timeout.total_seconds():g} "
            "s; nothing of it was applied. End long transactions and run it again"
        ) from e
    except psycopg.Error as e:
        if connection.closed:
            raise explain(e) from e
        raise MigrationFailed(
            f"{_place(step, e)}: {_said(e)}; nothing of it was applied, what was before stands"
        ) from e


def _apply(connection: psycopg.Connection[Any], step: Migration, lock_timeout: timedelta) -> bool:
    with connection.transaction():
        # Of the transaction, not of the session: a pooler may give each transaction another session.
        connection.execute("select pg_advisory_xact_lock(hashtextextended('marian_jobs:migrate', 0))")
        # A table lock that waits holds up every worker behind it: rather give way soon and try again. The wait for
        # another migration, just over, holds up nobody and may be as long as that takes.
        connection.execute(
            "select set_config('lock_timeout', %s, true)", (f"{lock_timeout / timedelta(milliseconds=1):.0f}",)
        )
        if step.version in _applied(connection):
            return False
        connection.execute(_HISTORY)
        connection.execute(step.sql)
        connection.execute(
            "insert into supabase_migrations.schema_migrations (version, name, statements) values (%s, %s, %s)",
            (step.version, step.name, step.statements),
        )
    return True


def _applied(connection: psycopg.Connection[Any]) -> set[str]:
    known = connection.execute("select to_regclass('supabase_migrations.schema_migrations')").fetchone()
    if known is None or known[0] is None:
        return set()
    rows: Sequence[Any] = connection.execute("select version from supabase_migrations.schema_migrations").fetchall()
    return {row[0] for row in rows}


def _place(step: Migration, error: psycopg.Error) -> str:
    """The file, and the line in it where the server says which."""
    position = error.diag.statement_position
    return f"{step.path.name}:{step.sql.count(chr(10), 0, int(position)) + 1}" if position else step.path.name


def _said(error: psycopg.Error) -> str:
    said = error.diag.message_primary or type(error).__name__
    return f"{said} ({error.diag.message_detail})" if error.diag.message_detail else said


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    options = {"connect_timeout": "10", "application_name": "marian migrate", **parsed(dsn)}
    try:
        with psycopg.connect(**options, autocommit=True, prepare_threshold=None) as connection:
            yield connection
    except psycopg.Error as e:
        raise explain(e) from e
