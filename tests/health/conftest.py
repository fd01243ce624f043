import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from marian_jobs.local.postgres import LocalPostgres
from marian_jobs.migrations import migrate
from tests.worker.conftest import fleet, postgres

__all__ = ["fleet", "own_server", "postgres"]


@pytest.fixture
def own_server() -> Iterator[LocalPostgres]:
    """A server of the test's own, to be stopped."""
    named = os.environ.get("MARIAN_TEST_POSTGRES_BIN")
    with LocalPostgres(bin=Path(named) if named else None) as server:
        migrate(server.dsn())
        yield server
