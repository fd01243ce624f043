from collections.abc import AsyncIterator

import pytest

from marian_jobs import MemoryStore, PostgresStore, Store


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Every store there is, empty and open: the suite over it is the same."""
    store: Store
    store = MemoryStore() if request.param == "memory" else PostgresStore(request.getfixturevalue("database"))
    await store.open()
    yield store
    await store.close()
