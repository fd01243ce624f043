"""The server that everything is measured on: one, durable, with the same settings for all."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import psycopg
from psycopg import sql

from marian_jobs.local.postgres import LocalPostgres

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "autovacuum": "on",
    "wal_level": "replica",
}
SHOWN = (*SETTINGS, "wal_sync_method", "max_connections", "work_mem", "jit")

_numbers = count()


class Server:
    """A running server that lends out databases, each a fresh copy of a template made once per queue."""

    def __init__(self, postgres: LocalPostgres) -> None:
        self._postgres = postgres
        self._templates: set[str] = set()

    def settings(self) -> dict[str, str]:
        """The version and the settings that matter, as the server reports them."""
        with psycopg.connect(self._postgres.dsn()) as connection:
            shown = {"version": connection.info.parameter_status("server_version") or ""}
            for name in SHOWN:
                row = connection.execute(sql.SQL("show {}").format(sql.Identifier(name))).fetchone()
                shown[name] = str(row[0]) if row else ""
        return shown

    @contextmanager
    def database(self, name: str, install: list[str]) -> Iterator[str]:
        """The connection string of a fresh database in which the program `install` has made its schema."""
        template = f"template_{name}"
        if template not in self._templates:
            dsn = self._postgres.create_database(template)
            subprocess.run([*install, "install", dsn], check=True)
            self._templates.add(template)
        database = f"{name}_{next(_numbers)}"
        dsn = self._postgres.create_database(database, template=template)
        try:
            yield dsn
        finally:
            self._postgres.drop_database(database)

    def api_dsn(self, dsn: str) -> str:
        """The same database's connection string for PostgREST."""
        database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
        return self._postgres.socket_dsn(role="authenticator", database=str(database))

    def settle(self, dsn: str) -> None:
        """Vacuums, analyses and checkpoints, so that each measurement starts from the same state."""
        database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
        self._as_admin("vacuum analyze", str(database))
        self._as_admin("checkpoint", str(database))

    def count_statements(self, dsn: str) -> int:
        """How many statements clients have sent to that database since `forget_statements`."""
        database = str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])
        with psycopg.connect(self._admin("postgres"), autocommit=True) as connection:
            connection.execute("create extension if not exists pg_stat_statements")
            row = connection.execute(
                "select coalesce(sum(s.calls), 0) from pg_stat_statements s"
                " join pg_database d on d.oid = s.dbid where d.datname = %s",
                (database,),
            ).fetchone()
        return int(row[0]) if row else 0

    def _as_admin(self, statement: str, database: str) -> None:
        with psycopg.connect(self._admin(database), autocommit=True) as connection:
            connection.execute(sql.SQL(statement))

    def _admin(self, database: str) -> str:
        return self._postgres.socket_dsn(role="supabase_admin", database=database)


@contextmanager
def running() -> Iterator[Server]:
    """A server in a temporary directory, stopped at the end."""
    with LocalPostgres(settings=SETTINGS) as postgres:
        yield Server(postgres)
