"""Metrics: per type and outcome, durations, waits, what runs, and the queue's depth."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from marian_jobs import Backoff, Dead, Job, MemoryStore, PostgresStore, Queue, Snooze, Store, Worker
from marian_jobs.job import Held
from tests.telemetry.conftest import Collected
from tests.worker.test_worker import running

SOON = Backoff(base=timedelta(0), max=timedelta(0))


def by(points: list[Any], *names: str) -> dict[tuple[Any, ...], Any]:
    """The points' values, or counts, by some of their attributes."""
    return {
        tuple(point.attributes.get(name) for name in names): getattr(point, "value", getattr(point, "count", None))
        for point in points
    }


TYPE, OUTCOME, ERROR = "messaging.destination.name", "messaging.marian_jobs.outcome", "error.type"


async def test_runs_are_counted_by_type_and_outcome(store: Store, collected: Collected) -> None:
    worker = Worker(store)
    collected.telemetry().watch(worker)
    queue = Queue(store)

    @worker.handler("good")
    async def good(job: Job) -> None:
        pass

    @worker.handler("bad", backoff=SOON)
    def bad(job: Job) -> None:
        raise ValueError("bad")

    @worker.handler("late")
    def late(job: Job) -> None:
        raise Snooze(timedelta(hours=1)) if job.payload else Dead("no")

    await queue.enqueue("good")
    await queue.enqueue("good")
    await queue.enqueue("bad", max_attempts=2)
    await queue.enqueue("late", {"a": 1})
    await queue.enqueue("late")
    while (await worker.tick()).job:
        pass
    expected = {
        ("good", "succeeded", None): 2,
        ("bad", "failed", "ValueError"): 1,
        ("bad", "dead", "ValueError"): 1,
        ("late", "released", None): 1,
        ("late", "dead", "marian_jobs.worker.outcomes.Dead"): 1,
    }
    assert by(collected.points("marian_jobs.runs"), TYPE, OUTCOME, ERROR) == expected
    assert by(collected.points("messaging.process.duration"), TYPE, OUTCOME, ERROR) == expected
    assert by(collected.points("messaging.client.consumed.messages"), TYPE) == {
        ("good",): 2, ("bad",): 2, ("late",): 2,
    }  # fmt: skip
    assert set(by(collected.points("marian_jobs.running"), TYPE).values()) == {0}


async def test_what_runs_is_a_gauge(collected: Collected) -> None:
    store = MemoryStore()
    worker = Worker(store)
    collected.telemetry().watch(worker)
    began, end = asyncio.Event(), asyncio.Event()

    @worker.handler("t")
    async def handle(job: Job) -> None:
        began.set()
        await end.wait()

    await Queue(store).enqueue("t")
    async with running(worker):
        await asyncio.wait_for(began.wait(), 5)
        assert by(collected.points("marian_jobs.running"), TYPE) == {("t",): 1}
        end.set()
    assert by(collected.points("marian_jobs.running"), TYPE) == {("t",): 0}


async def test_a_wait_is_from_due_to_claimed_by_the_stores_clock(collected: Collected) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    store = MemoryStore(clock=lambda: now)
    worker = Worker(store)
    collected.telemetry().watch(worker)
    worker.handler("t")(lambda job: None)
    await Queue(store).enqueue("t", delay=timedelta(seconds=10))
    now += timedelta(seconds=40)
    await worker.tick()
    [point] = collected.points("marian_jobs.wait.duration")
    assert (point.count, point.sum) == (1, 30)


async def test_enqueueings_are_counted_and_timed(store: Store, collected: Collected) -> None:
    queue = Queue(collected.telemetry().traced(store))
    await queue.enqueue("t", key="k")
    await queue.enqueue("t", key="k")
    assert by(collected.points("messaging.client.sent.messages"), TYPE) == {("t",): 2}
    assert by(collected.points("messaging.client.operation.duration"), TYPE) == {("t",): 2}


async def test_a_late_outcome_and_expired_leases_are_counted(collected: Collected) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    store = MemoryStore(clock=lambda: now)
    worker = Worker(store)
    collected.telemetry().watch(worker)
    held: list[Held] = []

    @worker.handler("t")
    async def handle(job: Job) -> None:
        nonlocal now
        if not held:
            held.append(job.held)
            now += timedelta(hours=1)
            await store.reclaim()

    await Queue(store).enqueue("t")
    await worker.tick()
    assert [point.value for point in collected.points("marian_jobs.refused")] == [1]
    await store.claim(1, ["t"], timedelta(seconds=1))
    now += timedelta(hours=1)
    await worker.tick()
    assert [point.value for point in collected.points("marian_jobs.reclaimed")] == [1]


async def test_the_queue_is_measured_from_whatever_thread_collects(database: str, collected: Collected) -> None:
    async with PostgresStore(database) as store, Queue(store) as queue:
        await queue.enqueue("a")
        await queue.enqueue("a", delay=timedelta(hours=1))
        await queue.enqueue("b")
        await store.claim(1, ["b"], timedelta(microseconds=1))
        collected.telemetry().measure(store)
        points = await asyncio.to_thread(
            lambda: {
                name: collected.points(f"marian_jobs.queue.{name}")
                for name in ("jobs", "oldest_due.age", "expired_leases")
            }
        )
    status = "messaging.marian_jobs.status"
    assert by(points["jobs"], TYPE, status) == {("a", "queued"): 2, ("b", "running"): 1}
    assert by(points["expired_leases"], TYPE) == {("b",): 1}
    assert list(by(points["oldest_due.age"], TYPE)) == [("a",)]


def test_a_database_that_is_not_there_leaves_gaps_and_one_line(collected: Collected, caplog: Any) -> None:
    store = PostgresStore("postgresql://nobody:S3CRET@127.0.0.1:1/none", deadline=timedelta(seconds=0.2))
    collected.telemetry().measure(store)
    assert collected.points("marian_jobs.queue.jobs") == []
    assert collected.points("marian_jobs.queue.jobs") == []
    assert caplog.text.count("the queue's figures cannot be read") == 1
    assert "S3CRET" not in caplog.text
