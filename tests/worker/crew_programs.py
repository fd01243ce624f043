"""What the processes of a crew run: workers whose handlers keep the ledger."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import psycopg
from psycopg_pool import AsyncConnectionPool

from marian_jobs import Context, Job, PostgresStore, Worker
from marian_jobs.worker.scheduler import Scheduler

NOTE = "insert into run_log (job_id, attempt, type, what, pid, claimed) values (%s, %s, %s, %s, %s, %s)"
LIMITED = ("capped", "rated", "pausable", "held")


def limited(dsn: str, lease: timedelta) -> None:
    """A worker whose handlers note their starts and ends."""

    @asynccontextmanager
    async def ledger() -> AsyncIterator[AsyncConnectionPool]:
        async with AsyncConnectionPool(dsn, min_size=1, max_size=4, kwargs={"autocommit": True}) as pool:
            async with pool.connection() as connection:
                await connection.execute("insert into run_log (what, pid) values ('ready', %s)", [os.getpid()])
            yield pool

    worker = Worker(PostgresStore(dsn), concurrency=4, lease=lease, poll=timedelta(seconds=0.2), lifespan=ledger)

    async def handle(job: Job, context: Context) -> None:
        async def note(what: str) -> None:
            async with context.resources.connection() as connection:
                await connection.execute(NOTE, (job.id, job.attempts, job.type, what, os.getpid(), job.updated_at))

        await note("start")
        await asyncio.sleep(job.payload["seconds"] if job.attempts == 1 else 0)
        await note("end")

    for type in LIMITED:
        worker.handler(type)(handle)
    asyncio.run(worker.run())


def scheduled(dsn: str, zero: datetime, began: float, speed: int) -> None:
    """A worker with a schedule for each second of a clock that goes `speed` times as fast and showed `zero` at `began`.

    It notes the moment of its scheduler's first turn: from there on it misses no slot. A slot's line in the ledger and
    its job's completion are one transaction.
    """

    turns: list[datetime] = []

    def now() -> datetime:
        turns.append(zero + timedelta(seconds=(time.time() - began) * speed))
        return turns[-1]

    async def sleep(seconds: float) -> None:
        if not ready.is_set():
            ready.set()
            async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
                await connection.execute("insert into ready_log (pid, at) values (%s, %s)", (os.getpid(), turns[0]))
        await asyncio.sleep(seconds / speed)

    ready = asyncio.Event()

    @asynccontextmanager
    async def ledger() -> AsyncIterator[AsyncConnectionPool]:
        async with AsyncConnectionPool(dsn, min_size=1, max_size=2) as pool:
            yield pool

    store = PostgresStore(dsn)
    worker = Worker(store, concurrency=4, lease=timedelta(seconds=5), poll=timedelta(seconds=0.2), lifespan=ledger)
    worker._scheduler = Scheduler(store, now=now, sleep=sleep)

    @worker.schedule("* * * * * *", name="each-second")
    async def slot(job: Job, context: Context) -> None:
        async with context.resources.connection() as connection:
            await connection.execute("insert into slot_log (slot, pid) values (%s, %s)", (context.slot, os.getpid()))
            await context.complete(connection)

    asyncio.run(worker.run())
