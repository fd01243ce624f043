"""Sleeping costs little and waking is prompt: idle cost, notifications, poolers; K57."""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from marian_jobs import Job, JobFilter, PostgresStore, Status, Worker, new_job
from marian_jobs.job import FINISHED
from tests.worker.test_worker import running

STATEMENTS = """
select coalesce(sum(calls), 0) from extensions.pg_stat_statements s join pg_database d on d.oid = s.dbid
 where d.datname = current_database() and toplevel and query not like '%pg_stat_statements%'
"""


def one(dsn: str, text: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(text).fetchone()
    assert row is not None
    return row[0]


def idler(store: PostgresStore, **options: timedelta) -> tuple[Worker, list[float]]:
    worker = Worker(store, **options)  # type: ignore[arg-type]
    started: list[float] = []

    @worker.handler("t")
    async def handle(job: Job) -> None:
        started.append(time.monotonic())

    return worker, started


async def test_an_idle_worker_that_listens_asks_at_most_thirty_times_a_minute(database: str) -> None:
    async with PostgresStore(database) as store:
        worker, _ = idler(store)
        async with running(worker):
            await asyncio.sleep(4)  # the first looks come quicker than the later ones
            before = one(database, STATEMENTS)
            await asyncio.sleep(10)
            asked = one(database, STATEMENTS) - before
    assert asked <= 5


async def test_an_idle_worker_that_cannot_listen_says_so_and_asks_once_a_poll(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with PostgresStore(database, pooler=True) as store:
        worker, _ = idler(store, poll=timedelta(seconds=0.5))
        async with running(worker):
            await asyncio.sleep(1.5)
            assert "cannot wake the worker: it looks for work every 0.5 s" in caplog.text
            before = one(database, STATEMENTS)
            await asyncio.sleep(4)
            asked = one(database, STATEMENTS) - before
    assert 4 <= asked <= 9


async def test_new_work_wakes_an_idle_worker_at_once(database: str) -> None:
    async with PostgresStore(database) as store:
        worker, started = idler(store, poll=timedelta(seconds=30))
        async with running(worker):
            await asyncio.sleep(1.5)
            for _ in range(5):
                enqueued = time.monotonic()
                await store.enqueue([new_job("t")])
                async with asyncio.timeout(5):
                    while not started or started[-1] < enqueued:
                        await asyncio.sleep(0.001)
                assert started[-1] - enqueued < 0.5
                await asyncio.sleep(0.1)


async def test_a_job_enqueued_for_later_wakes_a_sleeper_when_it_is_due(database: str) -> None:
    async with PostgresStore(database) as store:
        worker, started = idler(store, poll=timedelta(seconds=30))
        async with running(worker):
            await asyncio.sleep(1.5)
            due = time.monotonic() + 1
            await store.enqueue([new_job("t", delay=timedelta(seconds=1))])
            async with asyncio.timeout(5):
                while not started:
                    await asyncio.sleep(0.01)
    assert -0.05 <= started[0] - due < 0.5


async def test_a_notification_that_is_lost_costs_a_poll_and_no_more(database: str) -> None:
    async with PostgresStore(database) as store:
        worker, started = idler(store)
        async with running(worker):
            await asyncio.sleep(0.5)
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute("insert into public.marian_jobs (type) values ('t')")  # past the function: no notice
            async with asyncio.timeout(13):
                while not started:
                    await asyncio.sleep(0.05)


async def test_nobody_is_notified_while_nobody_sleeps(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as listener:
        listener.execute("listen marian_jobs")
        async with PostgresStore(database) as store:
            for _ in range(20):
                await store.enqueue([new_job("t")])
        assert list(listener.notifies(timeout=0.2)) == []


def test_waking_leaves_enqueueing_most_of_its_speed(database: str) -> None:
    def rate(call: str) -> float:
        def load(_: int) -> None:
            with psycopg.connect(database, autocommit=True) as connection:
                for _ in range(150):
                    connection.execute(call)

        begun = time.monotonic()
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(load, range(8)))
        return 8 * 150 / (time.monotonic() - begun)

    bare = "insert into public.marian_jobs (type) values ('t')"
    ratios = [rate("select id from public.enqueue_job('t')") / rate(bare) for _ in range(3)]
    assert sorted(ratios)[1] >= 0.5


async def test_everything_but_listening_works_behind_a_transaction_mode_pooler(transaction_pooled: str) -> None:
    async with PostgresStore(transaction_pooled, pooler=True, max_connections=4) as store:
        worker, started = idler(store, poll=timedelta(seconds=0.1), lease=timedelta(seconds=1))
        worker.handler("slow")(lambda job: time.sleep(1.5))
        jobs = await store.enqueue([*(new_job("t", key=f"k{n}") for n in range(50)), new_job("slow")])
        async with running(worker), asyncio.timeout(15):
            while not all(job.status in FINISHED for job in await store.find(JobFilter(limit=100))):
                await asyncio.sleep(0.05)
        last = await store.get(jobs[-1].id)
        assert last is not None
        assert (last.status, last.attempts) == (Status.SUCCEEDED, 1)
        assert len(started) == 50


def test_supabases_transaction_port_is_recognised() -> None:
    assert PostgresStore("postgresql://u:p@h:6543/postgres").pooler
    assert not PostgresStore("postgresql://u:p@h:5432/postgres").pooler
