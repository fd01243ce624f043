from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from marian_jobs import PostgresStore
from tests.fix_pgbouncer import transaction_pooled
from tests.worker.fleet import Fleet

__all__ = ["transaction_pooled"]


@pytest.fixture
def fleet(database: str, tmp_path: Path) -> Iterator[Fleet]:
    """Worker processes over a fresh database, killed at the end."""
    fleet = Fleet(database, tmp_path)
    yield fleet
    fleet.stop_all()


@pytest.fixture
async def postgres(database: str) -> AsyncIterator[PostgresStore]:
    """A store over the same database."""
    async with PostgresStore(database) as store:
        yield store
