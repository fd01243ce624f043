"""Real worker processes, and the ledger of what they started."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from marian_jobs import Job, Store
from marian_jobs.job import FINISHED

ROOT = Path(__file__).parent.parent.parent
LEDGER = """
create table run_log (
  id bigint generated always as identity, job_id uuid, attempt int, what text, pid int,
  at timestamptz default clock_timestamp()
)
"""


class Fleet:
    """Starts worker processes over one database and reads their ledger."""

    def __init__(self, dsn: str, logs: Path) -> None:
        self.dsn = dsn
        self._logs = logs
        self.processes: list[subprocess.Popen[bytes]] = []
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(LEDGER)

    def start(self, *arguments: str, dsn: str | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """A process running `marian worker`; options are the Worker's, durations in seconds."""
        options = {"poll": 0.2, "lease": 2, **options}
        environment = {
            **os.environ,
            "MARIAN_DATABASE_URL": dsn or self.dsn,
            "TEST_LEDGER": self.dsn,
            "TEST_WORKER": json.dumps(options),
        }
        log = (self._logs / f"worker-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "marian_jobs",
                "worker",
                "tests.worker.app:worker",
                "--log-format",
                "json",
                *arguments,
            ],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
        self.processes.append(process)
        return process

    def log(self, number: int = 0) -> str:
        """What a process has logged."""
        return (self._logs / f"worker-{number}.log").read_text()

    def ledger(self, *, what: str = "start", job: UUID | None = None) -> list[Any]:
        """The rows (job_id, attempt, at, pid) of a kind, oldest first."""
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(
                "select job_id, attempt, at, pid from run_log "
                "where what = %s and (%s::uuid is null or job_id = %s) order by id",
                (what, job, job),
            ).fetchall()

    def started(self, count: int = 1) -> Callable[[], bool]:
        """Whether that many runs have started."""
        return lambda: len(self.ledger()) >= count

    def stop_all(self) -> None:
        """Kills what is left."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


def wait_for(condition: Callable[[], Any], within: float, what: str = "") -> float:
    """Seconds until the condition held; fails after `within`."""
    begun = time.monotonic()
    while not condition():
        elapsed = time.monotonic() - begun
        assert elapsed < within, f"not within {within} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - begun


async def until(condition: Callable[[], Any], within: float, what: str = "") -> float:
    """As `wait_for`, in an event loop."""
    return await asyncio.to_thread(wait_for, condition, within, what)


async def finished(store: Store, job_id: UUID, within: float) -> Job:
    """The job once it is succeeded or dead."""
    end = time.monotonic() + within
    while True:
        job = await store.get(job_id)
        assert job is not None
        if job.status in FINISHED:
            return job
        assert time.monotonic() < end, f"not finished within {within} s: {job}"
        await asyncio.sleep(0.02)
