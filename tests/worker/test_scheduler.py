"""Each slot of a schedule makes one job, however many workers there are and whatever happens to them."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from marian_jobs import Dead, Job, JobFilter, MemoryStore, PostgresStore, Status, Store, StoreUnavailable, Worker
from marian_jobs.cron import Schedule, slot_of
from marian_jobs.job import Enqueued, NewJob
from marian_jobs.store import Failure
from marian_jobs.worker.scheduler import LONGEST_WAIT, Scheduler

SECOND = timedelta(seconds=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
EACH_SECOND = Schedule("* * * * * *", "t")


@pytest.fixture(params=["memory", "postgres"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[list[Store]]:
    """One store for each of five workers, over the same jobs."""
    if request.param == "memory":
        yield [MemoryStore()] * 5
        return
    dsn = request.getfixturevalue("database")
    stores: list[Store] = [PostgresStore(dsn) for _ in range(5)]
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


async def made(store: Store) -> list[datetime]:
    """The slots that have jobs, in order, as often as they have one."""
    jobs = await store.find(JobFilter(limit=1000))
    return sorted(slot for job in jobs if (slot := slot_of(job.idempotency_key)) is not None)


async def killed_in(task: "asyncio.Task[timedelta]", chance: random.Random) -> None:
    """Lets a turn get somewhere, and no further."""
    for _ in range(chance.randrange(40)):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("seed", [1, 2])
async def test_five_workers_make_each_of_fifty_slots_once(stores: list[Store], seed: int) -> None:
    chance = random.Random(seed)
    fleet = [Scheduler(store, [EACH_SECOND]) for store in stores]
    for n in range(50):
        slot = START + n * SECOND
        doomed = set(chance.sample(range(5), chance.randrange(5)))
        skew = [timedelta(milliseconds=chance.randrange(0, 900)) for _ in fleet]
        turns = [asyncio.create_task(s.turn(slot + late)) for s, late in zip(fleet, skew, strict=True)]
        await asyncio.gather(*(killed_in(turns[i], chance) if i in doomed else turns[i] for i in range(5)))
        for i in doomed:
            fleet[i] = Scheduler(stores[i], [EACH_SECOND])
        for job in await stores[0].claim(10, ["t"], timedelta(minutes=1)):
            await (chance.choice([succeed, die]))(stores[0], job)
    assert await made(stores[0]) == [START + n * SECOND for n in range(50)]


async def succeed(store: Store, job: Job) -> None:
    assert await store.complete([job.held])


async def die(store: Store, job: Job) -> None:
    assert await store.fail([Failure(job.id, job.attempts, "cannot", dead=True)])


async def test_a_dead_job_has_given_up_its_key_and_still_its_slot_is_not_made_again(stores: list[Store]) -> None:
    await Scheduler(stores[0], [EACH_SECOND]).turn(START)
    (job,) = await stores[0].claim(10, ["t"], timedelta(minutes=1))
    await die(stores[0], job)
    await Scheduler(stores[1], [EACH_SECOND]).turn(START)
    assert await made(stores[0]) == [START]
    assert [j.status for j in await stores[0].find(JobFilter())] == [Status.DEAD]


async def test_a_job_made_by_a_clock_that_is_fast_waits_for_its_slot(stores: list[Store]) -> None:
    now = datetime.now(UTC)
    await Scheduler(stores[0], [Schedule("* * * * *", "t")]).turn(now + timedelta(minutes=10))
    assert await stores[0].claim(10, ["t"], timedelta(minutes=1)) == []
    (job,) = await stores[0].find(JobFilter())
    assert job.run_after == slot_of(job.idempotency_key)
    assert job.run_after > now


async def test_a_job_has_all_that_its_schedule_says(stores: list[Store]) -> None:
    nightly = Schedule("0 3 * * *", "report", tz="Asia/Tokyo", name="n", payload={"a": 1}, priority=3, max_attempts=7)
    await Scheduler(stores[0], [nightly]).turn(datetime(2026, 5, 1, 18, 20, tzinfo=UTC))
    (job,) = await stores[0].find(JobFilter())
    assert (job.type, job.payload, job.priority, job.max_attempts) == ("report", {"a": 1}, 3, 7)
    assert job.idempotency_key == "schedule:n:2026-05-01T18:00:00Z"


async def test_two_versions_of_a_schedule_make_one_job(stores: list[Store], caplog: pytest.LogCaptureFixture) -> None:
    await Scheduler(stores[0], [Schedule("* * * * *", "old", name="n")]).turn(START)
    user = Schedule("* * * * *", "new", name="n", user_id=None)
    with caplog.at_level(logging.WARNING):
        await Scheduler(stores[1], [user, EACH_SECOND]).turn(START)
    assert await made(stores[0]) == [START, START]  # one of each name
    assert {j.type for j in await stores[0].find(JobFilter())} == {"old", "t"}
    assert isinstance(stores[0], MemoryStore) or "the job of 2026-01-01T00:00:00+00:00 was made" in caplog.text


async def test_a_turn_says_when_to_come_again() -> None:
    scheduler = Scheduler(MemoryStore(), [Schedule("*/5 * * * *", "t"), Schedule("30 0 * * *", "u")])
    assert await scheduler.turn(START + timedelta(minutes=4, seconds=50)) == 10 * SECOND
    assert await scheduler.turn(START + timedelta(minutes=5)) == LONGEST_WAIT
    assert await Scheduler(MemoryStore()).turn(START) == LONGEST_WAIT


async def test_two_schedules_of_one_name_are_refused() -> None:
    scheduler = Scheduler(MemoryStore(), [EACH_SECOND])
    with pytest.raises(ValueError, match=r"one named 't' already; give the second a name="):
        scheduler.add(Schedule("0 * * * *", "t"))


class Flaky(MemoryStore):
    """Cannot be reached for the first calls."""

    failures = 2

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: object | None = None) -> list[Enqueued]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("gone")
        return await super().enqueue(jobs, connection=connection)


async def test_a_slot_that_the_store_did_not_take_is_made_when_it_is_back() -> None:
    store = Flaky()
    scheduler = Scheduler(store, [EACH_SECOND])
    for n in range(2):
        with pytest.raises(StoreUnavailable):
            await scheduler.turn(START + n * SECOND)
    await scheduler.turn(START + 1 * SECOND)
    assert await made(store) == [START + 1 * SECOND]


async def test_serving_makes_jobs_as_time_goes_by_and_workers_run_them() -> None:
    store, seen = Flaky(), asyncio.Queue[datetime | None]()
    worker = Worker(store)

    @worker.handler("t")
    async def handle(job: Job) -> None:
        await seen.put(slot_of(job.idempotency_key))
        raise Dead("once is enough")

    serving = asyncio.create_task(Scheduler(store, [EACH_SECOND]).serve())
    running = asyncio.create_task(worker.run(signals=False))
    async with asyncio.timeout(10):
        first, second = await seen.get(), await seen.get()
    assert first is not None
    assert second == first + SECOND
    serving.cancel()
    worker.stop()
    await running
