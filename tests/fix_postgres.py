"""One Postgres per test process, a fresh migrated database per test."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from marian_jobs.local.postgres import LocalPostgres

MIGRATIONS = Path(__file__).parent.parent / "supabase" / "migrations"
TEMPLATE = "migrated"

_number = count()


def apply_migrations(dsn: str) -> None:
    """Applies the files as `supabase db push` does: in order, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for file in sorted(MIGRATIONS.glob("*.sql")):
            with connection.transaction():
                connection.execute(file.read_text())


@pytest.fixture(scope="session")
def server() -> Iterator[LocalPostgres]:
    """The server; `MARIAN_TEST_POSTGRES_BIN` chooses another version than the wheel's."""
    named = os.environ.get("MARIAN_TEST_POSTGRES_BIN")
    with LocalPostgres(
        bin=Path(named) if named else None,
        settings={"fsync": "off", "pg_stat_statements.track": "all"},
    ) as server:
        apply_migrations(server.create_database(TEMPLATE))
        yield server


@pytest.fixture
def bare_database(server: LocalPostgres) -> Iterator[str]:
    """The DSN of a database as a fresh project has it: no migration applied."""
    name = f"bare_{next(_number)}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def database(server: LocalPostgres) -> Iterator[str]:
    """The DSN (role postgres) of a fresh database with all migrations applied."""
    name = f"test_{next(_number)}"
    yield server.create_database(name, template=TEMPLATE)
    server.drop_database(name)
