"""The workers under fire: `marian worker chaos.app:worker`, over the store and with the types that CHAOS_WORKER names.

A handler's first act is a line in the ledger, on a connection of its own that goes through no proxy; its last, before
it returns, is another one. What it does in between its payload says. Where the ledger cannot be written the attempt
fails with `LedgerUnreachable`: so an attempt without a line either never reached its handler or ended like that.
"""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from chaos.clocks import may_jump
from chaos.plan import LEASE
from marian_jobs import Backoff, Context, Dead, Job, PostgresStore, Retry, Snooze, Store, SupabaseStore, Worker

DOOMED = "doomed"  # as chaos.moves knows it
SOON = Backoff(base=timedelta(milliseconds=50), max=timedelta(milliseconds=400), jitter=0.5)
DEADLINE = timedelta(seconds=5)
_INSERT = "insert into chaos.ledger (job, attempt, what, pid) values (%s, %s, %s, %s)"
_told: dict[str, Any] = json.loads(os.environ["CHAOS_WORKER"])


class LedgerUnreachable(Exception):
    """The handler's line could not be written, or perhaps it was."""


@dataclass(frozen=True)
class Ledgers:
    """The worker's connections to the ledger."""

    for_loop: "AsyncConnectionPool[psycopg.AsyncConnection[Any]]"
    for_threads: "ConnectionPool[psycopg.Connection[Any]]"

    async def write(self, job: Job, what: str) -> None:
        """A line, from a coroutine."""
        try:
            async with self.for_loop.connection() as connection:
                await connection.execute(_INSERT, (job.id, job.attempts, what, os.getpid()))
        except psycopg.Error as e:
            raise LedgerUnreachable from e

    def write_from_thread(self, job: Job, what: str) -> None:
        """A line, from a plain function."""
        try:
            with self.for_threads.connection() as connection:
                connection.execute(_INSERT, (job.id, job.attempts, what, os.getpid()))
        except psycopg.Error as e:
            raise LedgerUnreachable from e


@asynccontextmanager
async def ledgers() -> AsyncIterator[Ledgers]:
    """Opens both pools without waiting: the server may be away."""
    options: dict[str, Any] = {"min_size": 1, "max_size": 4, "timeout": 3, "kwargs": {"autocommit": True}}
    for_loop = AsyncConnectionPool(_told["ledger"], open=False, **options)
    for_threads = ConnectionPool(_told["ledger"], open=False, **options)
    await for_loop.open()
    for_threads.open()
    try:
        yield Ledgers(for_loop, for_threads)
    finally:
        await for_loop.close()
        for_threads.close(timeout=1)


def _store() -> Store:
    if "url" in _told:
        return SupabaseStore(_told["url"], _told["key"], deadline=DEADLINE)
    return PostgresStore(_told["dsn"], deadline=DEADLINE)


worker = Worker(
    _store(),
    concurrency=_told["concurrency"],
    lease=timedelta(seconds=LEASE),
    poll=timedelta(seconds=0.3),
    grace=timedelta(seconds=3),
    lifespan=ledgers,
)


def judged(job: Job) -> float:
    """Raises what the payload wants of this attempt, or returns how many seconds it takes."""
    wanted = job.payload
    if wanted.get("doomed"):
        raise Dead(DOOMED)
    if job.attempts <= wanted.get("fails", 0):
        raise Retry("busy") if wanted.get("kindly") else RuntimeError("broken")
    if job.attempts <= wanted.get("fails", 0) + wanted.get("snoozes", 0):
        raise Snooze(timedelta(milliseconds=200))
    return float(wanted.get("seconds", 0))


async def loop(job: Job, context: Context) -> None:
    """A coroutine; with `blocks` one that keeps the whole loop from going on."""
    ledger: Ledgers = context.resources
    await ledger.write(job, "start")
    if job.payload.get("dies"):
        await ledger.write(job, "dies")
        os.kill(os.getpid(), signal.SIGKILL)
    seconds = judged(job)
    if job.payload.get("blocks"):
        time.sleep(seconds)
    else:
        await asyncio.sleep(seconds)
    await ledger.write(job, "end")


def thread(job: Job, context: Context) -> None:
    """A plain function."""
    ledger: Ledgers = context.resources
    ledger.write_from_thread(job, "start")
    time.sleep(judged(job))
    ledger.write_from_thread(job, "end")


async def settle(job: Job, context: Context) -> None:
    """Completes its job in the transaction that holds its effect, over the same bad network as the worker."""
    ledger: Ledgers = context.resources
    await ledger.write(job, "start")
    seconds = judged(job)
    async with await psycopg.AsyncConnection.connect(_told["dsn"]) as connection:
        await connection.execute("insert into chaos.effects (job, attempt) values (%s, %s)", (job.id, job.attempts))
        await asyncio.sleep(seconds)
        await context.complete(connection)


def process(job: Job) -> None:
    """In a process of its own."""
    try:
        with psycopg.connect(_told["ledger"], autocommit=True) as connection:
            connection.execute(_INSERT, (job.id, job.attempts, "start", os.getpid()))
            time.sleep(judged(job))
            connection.execute(_INSERT, (job.id, job.attempts, "end", os.getpid()))
    except psycopg.Error as e:
        raise LedgerUnreachable(type(e).__name__) from None


HANDLERS: dict[str, Callable[..., Any]] = {"loop": loop, "thread": thread, "settle": settle, "process": process}
for _type in _told["types"]:
    worker.handler(_type, backoff=SOON, isolation="process" if _type == "process" else None)(HANDLERS[_type])


def _go_with(parent: int) -> None:
    """Ends this process when the run that started it is gone: nothing is left behind by a run that was killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


if os.getppid() == _told["parent"]:  # in the worker itself, not in its handlers' processes
    threading.Thread(target=_go_with, args=[_told["parent"]], daemon=True).start()
    may_jump(_told["seed"])
