"""pgbouncer before the test's database, in either mode."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest

from tests.needs import need


@pytest.fixture
def transaction_pooled(database: str, tmp_path: Path) -> Iterator[str]:
    """The DSN of the database behind pgbouncer in transaction mode."""
    with _pgbouncer(database, tmp_path, "transaction") as dsn:
        yield dsn


@pytest.fixture
def session_pooled(database: str, tmp_path: Path) -> Iterator[str]:
    """The DSN of the database behind pgbouncer in session mode."""
    with _pgbouncer(database, tmp_path, "session") as dsn:
        yield dsn


@contextmanager
def _pgbouncer(database: str, directory: Path, mode: Literal["transaction", "session"]) -> Iterator[str]:
    program = shutil.which("pgbouncer") or ("/usr/sbin/pgbouncer" if Path("/usr/sbin/pgbouncer").exists() else None)
    need(program, "pgbouncer")
    parts = psycopg.conninfo.conninfo_to_dict(database)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (directory / "users.txt").write_text('"postgres" "postgres"\n')
    (directory / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={parts['host']} port={parts['port']} user=postgres password=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
        f"auth_file = {directory}/users.txt\n"
        f"pool_mode = {mode}\nunix_socket_dir =\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    for parent in (directory, *directory.parents):
        if os.geteuid() == 0 and parent.is_relative_to("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)
    account: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
    process = subprocess.Popen(
        [str(program), str(directory / "pgbouncer.ini")],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        **account,
    )
    try:
        dsn = f"postgresql://postgres:postgres@127.0.0.1:{port}/{parts['dbname']}?sslmode=disable"
        _wait_until_ready(dsn)
        yield dsn
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(dsn: str) -> None:
    end = time.monotonic() + 5
    while True:
        try:
            psycopg.connect(dsn, prepare_threshold=None).close()
            return
        except psycopg.OperationalError:
            assert time.monotonic() < end, "pgbouncer did not start"
            time.sleep(0.05)
