"""A database with a job in every state, a limited and a paused type."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.fix_postgres import TEMPLATE, Server
from tests.fuzz.hostile import IDS, KEYS, STATES

ROW = """
insert into public.marian_jobs (id, type, status, attempts, idempotency_key, lease_until, priority)
values (%s, 't', %s, 1, %s, case when %s then now() + '1 hour'::interval end, %s)
"""


def fill(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Puts the rows in that every hostile call meets."""
    for n, state in enumerate(STATES):
        connection.execute(ROW, (IDS[state], state, KEYS[state], state == "running", n))
    connection.execute("insert into public.marian_jobs (type) values ('limited'), ('limited'), ('paused')")
    connection.execute("select public.limit_type('limited', 1, 5, '1 second'), public.pause_type('paused')")


@pytest.fixture(scope="module")
def filled(server: Server) -> Iterator[str]:
    """Its DSN; what a test does there it takes back."""
    dsn = server.create_database("fuzzed", template=TEMPLATE)
    with psycopg.connect(dsn) as connection:
        fill(connection)
    yield dsn
    server.drop_database("fuzzed")
