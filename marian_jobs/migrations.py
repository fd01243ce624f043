"""The schema's versions: which there are, which a database has, and how it gets the rest.

They are recorded where `supabase db push` records them, so that either may follow the other. Each file is one
transaction, which takes an advisory lock first: any number of processes may migrate at once, and each step is done by
one of them. A step that fails leaves the version before it intact.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors as pg

from marian_jobs.errors import MarianError
from marian_jobs.stores.refusals import explain, parsed

LOCK_TIMEOUT = "5s"
_HERE = Path(__file__).parent
_PLACES = (_HERE / "supabase", _HERE.parent / "supabase")  # in a wheel, in a checkout

_HISTORY = """
create schema if not exists supabase_migrations;
create table if not exists supabase_migrations.schema_migrations (version text not null primary key);
alter table supabase_migrations.schema_migrations add column if not exists statements text[];
alter table supabase_migrations.schema_migrations add column if not exists name text;
"""


class MigrationFailed(MarianError):
    """A step could not be applied; the versions before it stand, and it has left nothing behind."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: its version (a timestamp), its name and its SQL."""

    version: str
    name: str
    sql: str


def project() -> Path:
    """The directory with `migrations` and `functions`, of the wheel or of the checkout."""
    return next(place for place in _PLACES if (place / "migrations").is_dir())


def available(directory: Path | None = None) -> list[Migration]:
    """All steps there are, oldest first."""
    files = sorted((directory or project() / "migrations").glob("*.sql"))
    return [Migration(file.stem.partition("_")[0], file.stem.partition("_")[2], file.read_text()) for file in files]


def pending(dsn: str, directory: Path | None = None) -> list[Migration]:
    """The steps that the database does not have yet."""
    with _connected(dsn) as connection:
        applied = _applied(connection)
    return [step for step in available(directory) if step.version not in applied]


def migrate(
    dsn: str, directory: Path | None = None, *, on_step: Callable[[Migration], None] = lambda _: None
) -> list[Migration]:
    """Applies what is missing and returns it; raises `MigrationFailed` naming the step that could not be applied."""
    steps = available(directory)
    with _connected(dsn) as connection:
        missing = {step.version for step in steps} - _applied(connection)
        return [step for step in steps if step.version in missing and _apply(connection, step, on_step)]


def _apply(connection: psycopg.Connection[Any], step: Migration, on_step: Callable[[Migration], None]) -> bool:
    """Whether this process applied the step; another may have been first."""
    try:
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(hashtextextended('marian_jobs:migrate', 0))")
            connection.execute(_HISTORY)
            if step.version in _applied(connection):
                return False
            # A table lock that waits holds up every worker behind it: rather give up soon and be run again.
            connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
            connection.execute(step.sql)
            connection.execute(
                "insert into supabase_migrations.schema_migrations (version, name, statements) values (%s, %s, %s)",
                (step.version, step.name, [step.sql]),
            )
    except pg.LockNotAvailable as e:
        raise MigrationFailed(
            f"{step.version}_{step.name}: the table was in use for {LOCK_TIMEOUT}; nothing changed, run it again"
        ) from e
    except (pg.OperationalError, OSError) as e:
        raise explain(e) from e
    except psycopg.Error as e:
        said = e.diag.message_primary or str(e)
        raise MigrationFailed(f"{step.version}_{step.name}: {said}; the version before it stands") from e
    on_step(step)
    return True


def _applied(connection: psycopg.Connection[Any]) -> set[str]:
    known = connection.execute("select to_regclass('supabase_migrations.schema_migrations')").fetchone()
    if known is None or known[0] is None:
        return set()
    rows: Sequence[Any] = connection.execute("select version from supabase_migrations.schema_migrations").fetchall()
    return {row[0] for row in rows}


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    options = {"connect_timeout": "10", **parsed(dsn)}
    try:
        connection = psycopg.connect(**options, autocommit=True, prepare_threshold=None)
    except (psycopg.Error, OSError) as e:
        raise explain(e) from e
    with connection:
        yield connection
