"""The tests' servers as containers of Supabase's images, where MARIAN_TEST_STACK=containers asks for them.

Postgres and PostgREST are those that `supabase start` runs; MARIAN_TEST_POSTGRES_IMAGE and MARIAN_TEST_POSTGREST_IMAGE
name others. Every database that tests get is a copy of the image's own database `postgres`, which alone has what makes
it a project's.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, Self

import docker.errors
import httpx
import psycopg
from psycopg import sql
from testcontainers.core.container import DockerContainer

from marian_jobs.local.postgres import AUTH_FUNCTIONS, DEFAULT_PRIVILEGES
from marian_jobs.local.postgrest import settings as rest_settings
from tests.needs import need

POSTGRES_IMAGE: Final = os.environ.get("MARIAN_TEST_POSTGRES_IMAGE") or "supabase/postgres:17.6.1.167"
POSTGREST_IMAGE: Final = os.environ.get("MARIAN_TEST_POSTGREST_IMAGE") or "postgrest/postgrest:v16.2"
READY_WITHIN: Final = 180.0  # its first start makes the cluster and runs some sixty scripts
PASSWORD: Final = "postgres"
PROJECT: Final = "fresh_project"


class ContainerPostgres:
    """Supabase's Postgres in a container, with the surface of `LocalPostgres` that tests use."""

    def __init__(self, settings: Mapping[str, str], grants: Literal["all", "none"]) -> None:
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._grants = grants
        with _docker_needed():
            self._container = (
                DockerContainer(POSTGRES_IMAGE)
                .with_env("POSTGRES_PASSWORD", PASSWORD)
                .with_exposed_ports(5432)
                .with_command(["postgres", "-D", "/etc/postgresql", *options])
            )

    def __enter__(self) -> Self:
        with _docker_needed():
            self._container.start()
        try:
            _until_answered(self._connects, self._container)
            self._make_project()
        except BaseException:
            self._container.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._container.stop()

    @property
    def id(self) -> str:
        """The container's."""
        return self._container.get_container_id()

    def dsn(self, *, role: str = "postgres", database: str = PROJECT) -> str:
        """The connection string from here, through the port that Docker has mapped."""
        host, port = self._container.get_container_host_ip(), self._container.get_exposed_port(5432)
        return _dsn(role, host, port, database)

    def socket_dsn(self, *, role: str, database: str = PROJECT) -> str:
        """The same: the socket is inside."""
        return self.dsn(role=role, database=database)

    def dsn_inside(self, *, role: str, database: str) -> str:
        """The connection string from another container."""
        return _dsn(role, self._container.get_docker_client().bridge_ip(self.id), 5432, database)

    def create_database(self, name: str, *, template: str = PROJECT) -> str:
        """Makes a database as a fresh project has it, or a copy of `template`; returns its connection string."""
        self._execute(
            sql.SQL("create database {} template {} owner postgres").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return self.dsn(database=name)

    def drop_database(self, name: str) -> None:
        """Drops a database, whoever is connected to it."""
        self._execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _make_project(self) -> None:
        self._execute(sql.SQL("alter role authenticator password {}").format(PASSWORD))
        self._copy_own_database()
        with self._admin(PROJECT) as connection:
            connection.execute(AUTH_FUNCTIONS.read_text().encode())
            connection.execute("select set_config('marian.grants', %s, false)", (self._grants,))
            connection.execute(DEFAULT_PRIVILEGES.read_text().encode())

    def _copy_own_database(self) -> None:
        """The image's background workers (pg_cron's, pg_net's) sit in the database, which nobody may while it is
        copied: they are sent away, and come back a second later."""
        for last in (*[False] * 9, True):
            self._execute(sql.SQL("select pg_terminate_backend(pid) from pg_stat_activity where datname = 'postgres'"))
            try:
                self.create_database(PROJECT, template="postgres")
                return
            except psycopg.errors.ObjectInUse:
                if last:
                    raise

    def _execute(self, statement: sql.Composed | sql.SQL) -> None:
        with self._admin("template1") as connection:
            connection.execute(statement)

    def _admin(self, database: str) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(self.dsn(role="supabase_admin", database=database), autocommit=True, connect_timeout=5)

    def _connects(self) -> bool:
        try:
            self._admin("template1").close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def serving(server: object, database: str, jwt_secret: str) -> Iterator[str]:
    """Serves a database with a PostgREST container until the block ends; yields its URL."""
    assert isinstance(server, ContainerPostgres)
    settings = rest_settings(server.dsn_inside(role="authenticator", database=database), jwt_secret)
    with _docker_needed():
        container = (
            DockerContainer(POSTGREST_IMAGE)
            .with_envs(**settings, PGRST_SERVER_PORT="3000", PGRST_ADMIN_SERVER_PORT="3001")
            .with_exposed_ports(3000, 3001)
            .start()
        )
    try:
        host = container.get_container_host_ip()
        ready = f"http://{host}:{container.get_exposed_port(3001)}/ready"
        _until_answered(lambda: _is_ready(ready), container)
        yield f"http://{host}:{container.get_exposed_port(3000)}"
    finally:
        container.stop()


def _dsn(role: str, host: str, port: int, database: str) -> str:
    return f"postgresql://{role}:{PASSWORD}@{host}:{port}/{database}?sslmode=disable"


@contextmanager
def _docker_needed() -> Iterator[None]:
    """Skips (fails in CI) where there is no Docker, or where it cannot have the image."""
    try:
        yield
    except docker.errors.DockerException as e:
        need(False, f"Docker: {e}")


def _until_answered(answers: Callable[[], bool], container: DockerContainer) -> None:
    end = time.monotonic() + READY_WITHIN
    while time.monotonic() < end:
        if answers():
            return
        wrapped = container.get_wrapped_container()
        wrapped.reload()
        if wrapped.status == "exited":
            raise RuntimeError(f"{container.image} ended: {_tail(container)}")
        time.sleep(0.1)
    raise RuntimeError(f"{container.image} did not answer within {READY_WITHIN:g} s: {_tail(container)}")


def _tail(container: DockerContainer) -> str:
    return " / ".join(container.get_wrapped_container().logs(tail=10).decode(errors="replace").splitlines())


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False
