"""Projects with the matrix's four rows in them, one for each of Supabase's default privileges."""

from collections.abc import Iterator
from typing import Literal

import psycopg
import pytest

from tests.fix_postgres import Server, apply_migrations, running
from tests.supabase.rls_matrix import DEAD_OF_A, JOB_OF_A, JOB_OF_B, OWNERLESS, A, B

Who = Literal["anon", "a", "b", "service"]
WHO: list[Who] = ["anon", "a", "b", "service"]

ROWS = f"""
    insert into auth.users (id, email) values ('{A}', 'a@example.com'), ('{B}', 'b@example.com');
    insert into public.marian_jobs (id, user_id, type, status) values
      ('{JOB_OF_A}', '{A}', 't', 'queued'),
      ('{DEAD_OF_A}', '{A}', 't', 'dead'),
      ('{JOB_OF_B}', '{B}', 't', 'queued'),
      ('{OWNERLESS}', null, 't', 'queued')"""


@pytest.fixture(scope="module", params=["all", "none"])
def project(request: pytest.FixtureRequest) -> Iterator[tuple[Server, str]]:
    """A server and the name of its database, whose new objects were granted to the API roles by default, or not."""
    with running({"fsync": "off"}, request.param) as server:
        dsn = server.create_database("project")
        apply_migrations(dsn)
        restore(dsn)
        yield server, "project"


def restore(dsn: str) -> None:
    """Puts the four rows back as they were."""
    with psycopg.connect(dsn) as connection:
        connection.execute("truncate auth.users, public.marian_jobs")
        connection.execute(ROWS)
