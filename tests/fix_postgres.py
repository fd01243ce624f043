"""One Postgres per test process, a fresh migrated database per test.

The server is a process of this machine, or with MARIAN_TEST_STACK=containers a container of Supabase's image.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

import psycopg
import pytest

from marian_jobs.local.postgres import LocalPostgres

MIGRATIONS = Path(__file__).parent.parent / "supabase" / "migrations"
TEMPLATE = "migrated"

_number = count()


class Server(Protocol):
    """What tests ask of a server, wherever it runs."""

    def dsn(self, *, role: str = ..., database: str = ...) -> str: ...
    def socket_dsn(self, *, role: str, database: str = ...) -> str: ...
    def create_database(self, name: str, *, template: str = ...) -> str: ...
    def drop_database(self, name: str) -> None: ...


def in_containers() -> bool:
    """Whether the tests' servers are to be containers; anything but the two words is refused."""
    stack = os.environ.get("MARIAN_TEST_STACK", "processes")
    if stack not in ("processes", "containers"):
        raise ValueError(f"MARIAN_TEST_STACK: expected processes or containers, got {stack!r}")
    return stack == "containers"


def running(settings: Mapping[str, str], grants: Literal["all", "none"] = "all") -> AbstractContextManager[Server]:
    """A server while the block lasts; `MARIAN_TEST_POSTGRES_BIN` chooses another version than the wheel's."""
    if in_containers():
        from tests.fix_containers import ContainerPostgres  # loads the Docker client, which other runs have no use for

        return ContainerPostgres(settings, grants)
    named = os.environ.get("MARIAN_TEST_POSTGRES_BIN")
    return LocalPostgres(bin=Path(named) if named else None, settings=settings, grants=grants)


def apply_migrations(dsn: str) -> None:
    """Applies the files as `supabase db push` does: in order, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for file in sorted(MIGRATIONS.glob("*.sql")):
            with connection.transaction():
                connection.execute(file.read_text())


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The test process's server."""
    with running({"fsync": "off", "pg_stat_statements.track": "all"}) as server:
        apply_migrations(server.create_database(TEMPLATE))
        yield server


@pytest.fixture
def bare_database(server: Server) -> Iterator[str]:
    """The DSN of a database as a fresh project has it: no migration applied."""
    name = f"bare_{next(_number)}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The DSN (role postgres) of a fresh database with all migrations applied."""
    name = f"test_{next(_number)}"
    yield server.create_database(name, template=TEMPLATE)
    server.drop_database(name)
