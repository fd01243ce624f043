from collections.abc import AsyncIterator

import psycopg
import pytest

from marian_jobs import MemoryStore, PostgresStore, Store
from marian_jobs.stores.supabase import SupabaseStore


def _make(kind: str, request: pytest.FixtureRequest) -> Store:
    if kind == "memory":
        return MemoryStore()
    if kind == "postgres":
        return PostgresStore(request.getfixturevalue("database"))
    stack = request.getfixturevalue("stack")
    with psycopg.connect(stack.dsn) as connection:
        connection.execute("truncate public.marian_jobs, public.marian_job_limits")
    return SupabaseStore(stack.url, stack.service_role_key)


@pytest.fixture(params=["memory", "postgres", "supabase"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Every store there is, empty and open: the suite over it is the same."""
    store = _make(request.param, request)
    await store.open()
    yield store
    await store.close()
