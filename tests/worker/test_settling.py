"""A handler that completes its job in a transaction of its own, and takes its time over the commit."""

import asyncio
from datetime import timedelta

import psycopg

from marian_jobs import Context, Job, PostgresStore, Status, Worker, new_job
from marian_jobs.job import FINISHED


async def test_a_slow_commit_costs_neither_its_run_nor_the_ones_beside_it_their_lease(database: str) -> None:
    worker = Worker(PostgresStore(database), lease=timedelta(seconds=1), poll=timedelta(seconds=0.1))
    went_on: list[str] = []

    @worker.handler("settles")
    async def settles(job: Job, context: Context) -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await context.complete(connection)
            await asyncio.sleep(2.5)
        await asyncio.sleep(1.5)  # the lease ends with the commit, and nobody minds
        went_on.append(job.type)

    @worker.handler("beside")
    async def beside(job: Job) -> None:
        await asyncio.sleep(3)
        went_on.append(job.type)

    async with PostgresStore(database) as store:
        made = await store.enqueue([new_job("settles"), new_job("beside")])
        running = asyncio.create_task(worker.run(signals=False))
        async with asyncio.timeout(30):
            while len(went_on) < 2:
                await asyncio.sleep(0.05)
            jobs = [await store.get(job.id) for job in made]
            while not all(job is not None and job.status in FINISHED for job in jobs):
                await asyncio.sleep(0.05)
                jobs = [await store.get(job.id) for job in made]
        worker.stop()
        await running
    await worker.close()
    assert [(job.status, job.attempts) for job in jobs if job] == [(Status.SUCCEEDED, 1)] * 2
    assert sorted(went_on) == ["beside", "settles"]
