"""Which directories a server can live in."""

import os
import socket
from pathlib import Path

from marian_jobs.local.failure import LocalStackError

CLUSTER = "cluster"
UNFINISHED = "unfinished"  # a file that is there until the first start is through


def refuse_unfit(data: Path) -> None:
    """Refuses a directory that is in use, and one that holds something else: it would change its owner and mode."""
    if not data.is_dir():
        return
    if _is_served(data / CLUSTER / "postmaster.pid"):
        raise LocalStackError(f"{data}: another Postgres server runs there; stop it or choose another directory")
    entries = list(data.iterdir())
    if entries and not any(map(_is_a_servers, (data, *entries))):
        raise LocalStackError(f"{data}: holds other files and no database of ours; choose another directory")


def holds_a_socket(directory: Path) -> bool:
    """Whether the path is short enough for a socket's (103 bytes on macOS) and is one path to Postgres' option."""
    return len(os.fsencode(directory)) <= 85 and not set(str(directory)) & set(""",'" """)


def _is_served(pidfile: Path) -> bool:
    """Whether a server answers at the socket that the file names; its process id alone may be another's by now."""
    try:
        _, _, _, port, directory, *_ = pidfile.read_text().splitlines()
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(f"{directory}/.s.PGSQL.{port}")
    except (OSError, ValueError):
        return False
    return True


def _is_a_servers(directory: Path) -> bool:
    return os.access(directory, os.X_OK) and any((directory / name).exists() for name in (CLUSTER, UNFINISHED))
