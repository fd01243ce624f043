"""The real PostgREST over a database, and before it the local stack's gateway, which treats keys as Supabase's does.

One stack per test process; its database is the tests' to empty. `serving_rest` serves any other database.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from uuid import uuid4

import psycopg
import pytest

from marian_jobs.local.failure import LocalStackError
from marian_jobs.local.gateway import Gateway
from marian_jobs.local.keys import Keys
from marian_jobs.local.ports import free_port
from marian_jobs.local.postgres import LocalPostgres
from marian_jobs.local.postgrest import PostgREST, program
from marian_jobs.tokens import mint_access, mint_key
from tests.fix_postgres import TEMPLATE, Server
from tests.needs import need

JWT_SECRET = "super-secret-jwt-token-with-at-least-32-characters-long"
KEYS = Keys(
    jwt_secret=JWT_SECRET,
    anon=mint_key("anon", JWT_SECRET),
    service_role=mint_key("service_role", JWT_SECRET),
    publishable="sb_publishable_tests",
    secret="sb_secret_tests",
)


@dataclass(frozen=True)
class Stack:
    """Where everything is, and the keys."""

    url: str
    dsn: str
    anon_key: str = KEYS.anon
    service_role_key: str = KEYS.service_role
    publishable_key: str = KEYS.publishable
    secret_key: str = KEYS.secret

    def create_user(self, email: str) -> tuple[str, str]:
        """Makes an account; returns its id and an access token."""
        id = uuid4()
        with psycopg.connect(self.dsn) as connection:
            connection.execute("insert into auth.users (id, email) values (%s, %s)", [id, email])
        return str(id), mint_access(id, email, JWT_SECRET, issuer=f"{self.url}/auth/v1")


def serving_rest(server: Server, database: str) -> AbstractContextManager[str]:
    """Serves a database with PostgREST, beside the server, until the block ends; yields its URL."""
    if isinstance(server, LocalPostgres):
        return _serving_process(server, database)
    from tests.fix_containers import serving  # as in tests.fix_postgres

    return serving(server, database, JWT_SECRET)


@contextmanager
def _serving_process(server: LocalPostgres, database: str) -> Iterator[str]:
    try:
        program()
    except LocalStackError as e:
        need(False, f"PostgREST: {e}")
    with PostgREST(server.socket_dsn(role="authenticator", database=database), JWT_SECRET, server.home) as rest:
        yield rest.url


@pytest.fixture(scope="session")
def stack(server: Server) -> Iterator[Stack]:
    """The stack over a migrated database of its own."""
    dsn = server.create_database("stack", template=TEMPLATE)
    with serving_rest(server, "stack") as rest, Gateway(rest, KEYS, free_port()) as gateway:
        yield Stack(gateway.url, dsn)
    server.drop_database("stack")
