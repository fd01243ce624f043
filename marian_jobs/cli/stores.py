"""The one place that picks a store: by what is configured."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from pydantic import SecretStr

from marian_jobs.queue import Queue
from marian_jobs.settings import Settings
from marian_jobs.store import Store
from marian_jobs.stores.postgres import PostgresStore

T = TypeVar("T")

DEADLINE = timedelta(seconds=15)  # somebody waits at the terminal


def settings(database_url: str | None = None) -> Settings:
    """The settings, an option before the environment before `.env`."""
    return Settings(MARIAN_DATABASE_URL=SecretStr(database_url)) if database_url else Settings()


def open_store(database_url: str | None = None) -> Store:
    """The database's store where one is configured, else the Supabase project's."""
    known = settings(database_url)
    if known.database_url is not None:
        return PostgresStore(known.need_database(), deadline=DEADLINE)
    url, key = known.need_project()
    from marian_jobs.stores.supabase import SupabaseStore  # its client takes a second to import

    return SupabaseStore(url, key, deadline=DEADLINE)


def with_queue(database_url: str | None, use: Callable[[Queue], Awaitable[T]]) -> T:
    """What `use` makes of the queue, opened and closed around it."""

    async def run() -> T:
        async with Queue(open_store(database_url)) as queue:
            return await use(queue)

    return asyncio.run(run())


def with_store(database_url: str | None, use: Callable[[Store], Awaitable[T]]) -> T:
    """What `use` makes of the store, opened and closed around it."""

    async def run() -> T:
        store = open_store(database_url)
        await store.open()
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(run())
