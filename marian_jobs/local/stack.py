"""A small Supabase on this machine: Postgres, PostgREST and the gateway, started and stopped together."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self
from uuid import UUID, uuid4

import psycopg

from marian_jobs.local.directory import CLUSTER
from marian_jobs.local.failure import LocalStackError
from marian_jobs.local.gateway import Gateway
from marian_jobs.local.keys import Keys
from marian_jobs.local.ports import free_port, unused
from marian_jobs.local.postgres import LocalPostgres
from marian_jobs.local.postgrest import PostgREST
from marian_jobs.tokens import mint_access

_RUNNING: Final = "running.json"


class LocalStack:
    """The stack in `data` (None: a directory that goes with it); `migrate` is called with the database's DSN.

    Ports None are free ones. With `database_only` there is no API. Use as a context manager.
    """

    def __init__(
        self,
        data: Path | None,
        *,
        migrate: Callable[[str], object],
        port: int | None = None,
        db_port: int | None = None,
        database_only: bool = False,
    ) -> None:
        self._postgres = LocalPostgres(data, db_port)
        self._migrate = migrate
        self._port = port
        self._database_only = database_only
        self._parts = ExitStack()
        self._env: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._parts.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    def env(self) -> dict[str, str]:
        """Addresses and keys, under the names that `supabase status -o env` uses."""
        return dict(self._env)

    def create_user(self, email: str) -> tuple[UUID, str]:
        """Makes an account; its id and an access token for an hour."""
        return create_user(self._env, email)

    def _start(self) -> None:
        postgres = self._parts.enter_context(self._postgres)  # first: a directory in use says more than its ports do
        port = free_port() if self._port is None else unused(self._port)
        self._migrate(postgres.dsn())
        self._env = {"DB_URL": postgres.dsn()}
        if not self._database_only:
            keys = Keys.kept_in(postgres.home)
            database = postgres.socket_dsn(role="authenticator")
            rest = self._parts.enter_context(PostgREST(database, keys.jwt_secret, postgres.home))
            gateway = self._parts.enter_context(Gateway(rest.url, keys, port))
            self._env |= _addresses(gateway.url, keys)
        running = postgres.home / _RUNNING
        running.touch(0o600)
        running.write_text(json.dumps(self._env))
        self._parts.callback(running.unlink, missing_ok=True)


def running_in(data: Path) -> dict[str, str]:
    """Addresses and keys of the stack that runs in a directory; `LocalStackError` where none does."""
    try:
        env: dict[str, str] = json.loads((data / _RUNNING).read_text())
        served = _directory_served(env["DB_URL"])
    except (OSError, ValueError, KeyError, psycopg.Error):
        served = None
    if served != (data / CLUSTER).resolve():  # the port may be another stack's by now
        raise LocalStackError(f"no local stack runs in {data}: start it with `marian dev`")
    return env


def _directory_served(dsn: str) -> Path | None:
    with psycopg.connect(dsn, connect_timeout=3) as connection:
        row = connection.execute("select current_setting('data_directory')").fetchone()
    return None if row is None else Path(row[0]).resolve()


def create_user(env: dict[str, str], email: str) -> tuple[UUID, str]:
    """Makes an account in the stack with these addresses and keys, or finds the one with this address."""
    if "JWT_SECRET" not in env:
        raise LocalStackError("the stack runs without its API (--db-only), so there is nobody to sign in to")
    with psycopg.connect(env["DB_URL"]) as connection:
        row = connection.execute(
            "insert into auth.users (id, email, aud, role, created_at, updated_at) "
            "values (%s, %s, 'authenticated', 'authenticated', now(), now()) "
            "on conflict (email) do update set updated_at = now() returning id",
            (uuid4(), email),
        ).fetchone()
    if row is None:
        raise LocalStackError(f"no account could be made for {email}")
    user_id: UUID = row[0]
    return user_id, mint_access(user_id, email, env["JWT_SECRET"], issuer=f"{env['API_URL']}/auth/v1")


def _addresses(url: str, keys: Keys) -> dict[str, str]:
    return {
        "API_URL": url,
        "REST_URL": f"{url}/rest/v1",
        "ANON_KEY": keys.anon,
        "SERVICE_ROLE_KEY": keys.service_role,
        "PUBLISHABLE_KEY": keys.publishable,
        "SECRET_KEY": keys.secret,
        "JWT_SECRET": keys.jwt_secret,
    }
