import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest

from marian_jobs import Job, JobFilter, MemoryStore, PostgresStore, Store
from marian_jobs.local.gateway import Gateway
from marian_jobs.local.ports import free_port
from marian_jobs.local.postgres import LocalPostgres
from marian_jobs.stores.rows import COLUMNS, to_job
from marian_jobs.stores.supabase import SupabaseStore
from tests.fix_postgres import TEMPLATE
from tests.fix_stack import KEYS, serving_rest
from tests.model.machine import USERS
from tests.model.virtual import VirtualClock, install

DATABASE = "model"


class InMemory:
    """A memory store, made anew for every play."""

    def __init__(self, runner: asyncio.Runner, make: Callable[[VirtualClock], MemoryStore] = MemoryStore) -> None:
        self.clock = VirtualClock()
        self._runner, self.make = runner, make

    def send(self, call: str, *arguments: Any) -> Any:
        return self._runner.run(getattr(self.store, call)(*arguments))

    def rows(self) -> list[Job]:
        return [*self.send("find", JobFilter(limit=1000))]

    def empty(self) -> None:
        self.clock.reset()
        self.store = self.make(self.clock)


class InDatabase:
    """A store over a database whose clock is the test's; emptied for every play."""

    def __init__(self, runner: asyncio.Runner, store: Store, connection: psycopg.Connection[Any]) -> None:
        self.clock = VirtualClock(self._tell)
        self._runner, self.store, self._connection = runner, store, connection

    def send(self, call: str, *arguments: Any) -> Any:
        return self._runner.run(getattr(self.store, call)(*arguments))

    def rows(self) -> list[Job]:
        return [to_job(row) for row in self._connection.execute(f"select {COLUMNS} from public.marian_jobs").fetchall()]

    def empty(self) -> None:
        self._connection.execute("delete from public.marian_jobs; delete from public.marian_job_limits")
        self.clock.reset()

    def _tell(self, now: datetime) -> None:
        self._connection.execute("update public.virtual_clock set now = %s", [now])


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def in_memory(runner: asyncio.Runner) -> InMemory:
    return InMemory(runner)


@pytest.fixture
def superuser(server: LocalPostgres) -> Iterator[psycopg.Connection[Any]]:
    """The superuser's connection to a migrated database with a virtual clock and two users."""
    server.create_database(DATABASE, template=TEMPLATE)
    dsn = server.socket_dsn(role="supabase_admin", database=DATABASE)
    install(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for user in USERS:
            connection.execute("insert into auth.users (id) values (%s)", [user])
        yield connection
    server.drop_database(DATABASE)


@pytest.fixture
def in_postgres(
    runner: asyncio.Runner, server: LocalPostgres, superuser: psycopg.Connection[Any]
) -> Iterator[InDatabase]:
    store = PostgresStore(server.dsn(database=DATABASE), max_connections=2)
    runner.run(store.open())
    yield InDatabase(runner, store, superuser)
    runner.run(store.close())


@pytest.fixture
def in_supabase(
    runner: asyncio.Runner, server: LocalPostgres, superuser: psycopg.Connection[Any]
) -> Iterator[InDatabase]:
    with serving_rest(server, DATABASE) as rest, Gateway(rest, KEYS, free_port()) as gateway:
        store = SupabaseStore(gateway.url, KEYS.service_role)
        runner.run(store.open())
        yield InDatabase(runner, store, superuser)
        runner.run(store.close())
