"""A reply that is lost after the commit: K52 and K53 over Postgres."""

import asyncio
from datetime import timedelta

import pytest

from marian_jobs import JobFilter, PostgresStore, Status, StoreUnavailable, Worker, new_job
from marian_jobs.store import Failure
from tests.fix_proxy import Proxy

LEASE = timedelta(seconds=30)


async def test_a_lost_reply_to_enqueue_makes_one_row(proxied: tuple[Proxy, str]) -> None:
    proxy, dsn = proxied
    async with PostgresStore(dsn) as store:
        for key in ("k", None):
            proxy.cut_reply_to(b"enqueue_job")
            (job,) = await store.enqueue([new_job("t", {"key": key}, key=key)])
            assert job.created
        assert len(await store.find(JobFilter())) == 2
    assert proxy.cuts == 2


async def test_a_lost_reply_to_complete_is_answered_as_the_first_was(proxied: tuple[Proxy, str]) -> None:
    proxy, dsn = proxied
    async with PostgresStore(dsn) as store:
        await store.enqueue([new_job("t")])
        (job,) = await store.claim(1, None, LEASE)
        proxy.cut_reply_to(b"marian_jobs_settle")
        assert await store.complete([job.held]) == {job.held}
        assert proxy.cuts == 1
        assert await store.fail([Failure(*job.held, "late")]) == []


async def test_a_lost_reply_to_fail_counts_once(proxied: tuple[Proxy, str]) -> None:
    proxy, dsn = proxied
    async with PostgresStore(dsn) as store:
        await store.enqueue([new_job("t")])
        (job,) = await store.claim(1, None, LEASE)
        proxy.cut_reply_to(b"fail_jobs")
        (failed,) = await store.fail([Failure(*job.held, "boom")])
        assert proxy.cuts == 1
        assert (failed.status, failed.attempts, failed.error) == (Status.RETRYING, 1, "boom")


async def test_a_claim_whose_reply_is_lost_is_not_sent_again(proxied: tuple[Proxy, str]) -> None:
    proxy, dsn = proxied
    async with PostgresStore(dsn) as store:
        await store.enqueue([new_job("t"), new_job("t")])
        proxy.cut_reply_to(b"marian_jobs_take")
        with pytest.raises(StoreUnavailable):
            await store.claim(1, None, LEASE)
        assert len(await store.find(JobFilter(status=Status.RUNNING))) == 1


async def test_a_job_claimed_into_the_void_runs_once_when_its_lease_is_over(proxied: tuple[Proxy, str]) -> None:
    proxy, dsn = proxied
    lease = timedelta(seconds=1)
    starts: list[float] = []
    async with PostgresStore(dsn) as store:
        worker = Worker(store, lease=lease, poll=timedelta(seconds=0.2))
        loop = asyncio.get_running_loop()
        worker.handler("t")(lambda job: starts.append(loop.time()))
        (job,) = await store.enqueue([new_job("t")])
        proxy.cut_reply_to(b"marian_jobs_poll")
        begun = loop.time()
        running = asyncio.create_task(worker.run(signals=False))
        async with asyncio.timeout(10):
            while (now := await store.get(job.id)) is None or now.status is not Status.SUCCEEDED:
                await asyncio.sleep(0.05)
        worker.stop()
        await running
    assert proxy.cuts == 1
    assert len(starts) == 1
    assert now.attempts == 2
    assert starts[0] - begun <= 1 + 2
