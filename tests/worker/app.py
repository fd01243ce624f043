"""The worker that tests run in processes of their own: `marian worker tests.worker.app:worker`.

Every handler first writes a line into `run_log`, by a connection of its own: the ledger of starts, and of ends.
"""

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg

from marian_jobs import Backoff, Context, Job, PostgresStore, Worker

DSN = os.environ["MARIAN_DATABASE_URL"]
LEDGER = os.environ.get("TEST_LEDGER", DSN)
OPTIONS: dict[str, Any] = {
    name: timedelta(seconds=value) if name in {"lease", "poll", "grace"} else value
    for name, value in json.loads(os.environ.get("TEST_WORKER", "{}")).items()
}
SOON = Backoff(base=timedelta(milliseconds=50), max=timedelta(milliseconds=200))

worker = Worker(PostgresStore(DSN), **OPTIONS)


def note(job: Job, what: str) -> None:
    """Writes a line into the ledger."""
    with psycopg.connect(LEDGER, autocommit=True) as connection:
        connection.execute(
            "insert into run_log (job_id, attempt, what, pid) values (%s, %s, %s, %s)",
            (job.id, job.attempts, what, os.getpid()),
        )


def seconds(job: Job) -> float:
    return float(job.payload.get("seconds", 0))


@worker.handler("sleep", backoff=SOON)
async def sleep(job: Job) -> None:
    await asyncio.to_thread(note, job, "start")
    await asyncio.sleep(seconds(job))
    await asyncio.to_thread(note, job, "end")


@worker.handler("plain", backoff=SOON)
def plain(job: Job) -> None:
    note(job, "start")
    time.sleep(seconds(job))
    note(job, "end")


@worker.handler("block", backoff=SOON)
async def block(job: Job) -> None:
    note(job, "start")
    time.sleep(seconds(job))
    note(job, "end")


@worker.handler("spin", backoff=SOON)
async def spin(job: Job) -> None:
    note(job, "start")
    end = time.monotonic() + seconds(job)
    while time.monotonic() < end:
        pass
    note(job, "end")


@worker.handler("spin-plain", backoff=SOON)
def spin_plain(job: Job) -> None:
    note(job, "start")
    end = time.monotonic() + seconds(job)
    while time.monotonic() < end:
        pass
    note(job, "end")


@worker.handler("hang", timeout=3, backoff=SOON)
def hang(job: Job) -> None:
    note(job, "start")
    while True:
        time.sleep(60)


@worker.handler("swallow", timeout=3, backoff=SOON)
async def swallow(job: Job) -> None:
    note(job, "start")
    while True:
        with suppress(BaseException):
            await asyncio.sleep(60)


@worker.handler("die", backoff=SOON)
def die(job: Job) -> None:
    note(job, "start")
    if job.payload["how"] == "exit":
        os._exit(0)
    os.kill(os.getpid(), getattr(signal, job.payload["how"]))
    time.sleep(60)


@worker.handler("heed")
def heed(job: Job, context: Context) -> None:
    """Ends when it is told to stop."""
    note(job, "start")
    note(job, "stopped" if context.wait_stop(timedelta(seconds=30)) else "end")
