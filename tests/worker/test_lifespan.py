"""What is shared by all handlers: entered once before the first job, left once after the last."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from marian_jobs import Context, Job, MemoryStore, Status, StoreUnavailable, Worker, new_job


class Shared:
    """A lifespan that notes what happens to it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[str] = []
        self.resource = object()
        self._error = error

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[object]:
        self.told.append("enter")
        if self._error is not None:
            raise self._error
        try:
            yield self.resource
        finally:
            self.told.append("leave")


async def test_it_is_entered_once_and_left_after_the_last_job() -> None:
    store, shared = MemoryStore(), Shared()
    worker = Worker(store, lifespan=shared)

    @worker.handler("t")
    async def handle(job: Job) -> None:
        await asyncio.sleep(0.01)
        shared.told.append("job")

    await store.enqueue([new_job("t") for _ in range(3)])
    await worker.run(drain=True, signals=False)
    assert shared.told == ["enter", "job", "job", "job", "leave"]
    assert worker.resources is None


async def test_it_is_the_same_object_in_the_loop_and_in_threads() -> None:
    store, shared = MemoryStore(), Shared()
    worker = Worker(store, lifespan=shared)
    seen: list[object] = []

    @worker.handler("loop")
    async def loop(job: Job, context: Context) -> None:
        seen.append(context.resources)

    @worker.handler("thread")
    def thread(job: Job, context: Context) -> None:
        seen.append(context.resources)

    await store.enqueue([new_job("loop"), new_job("thread")])
    await worker.run(drain=True, signals=False)
    assert [resource is shared.resource for resource in seen] == [True, True]


async def test_a_lifespan_that_cannot_be_entered_stops_the_run_and_nothing_is_started() -> None:
    store, shared = MemoryStore(), Shared(ValueError("no model"))
    worker = Worker(store, lifespan=shared)
    worker.handler("t")(lambda job: None)
    (job,) = await store.enqueue([new_job("t")])
    with pytest.raises(ValueError, match="no model"):
        await worker.run(drain=True, signals=False)
    assert shared.told == ["enter"]
    left = await store.get(job.id)
    assert left is not None
    assert (left.status, left.attempts) == (Status.QUEUED, 0)


async def test_it_is_left_when_the_worker_is_stopped_cancelled_or_run_again() -> None:
    store, shared = MemoryStore(), Shared()
    worker = Worker(store, lifespan=shared, grace=timedelta(0))
    started = asyncio.Event()

    @worker.handler("t")
    async def handle(job: Job) -> None:
        started.set()
        await asyncio.sleep(60)

    await store.enqueue([new_job("t")])
    for end in (lambda task: worker.stop(), lambda task: task.cancel()):
        started.clear()
        running = asyncio.create_task(worker.run(signals=False))
        await asyncio.wait_for(started.wait(), 5)
        end(running)
        await asyncio.wait({running}, timeout=10)
        assert running.done()
    assert shared.told == ["enter", "leave"] * 2


async def test_ticks_share_one_until_the_worker_is_closed() -> None:
    store, shared = MemoryStore(), Shared()
    worker = Worker(store, lifespan=shared)
    worker.handler("t")(lambda job: shared.told.append("job"))
    await store.enqueue([new_job("t"), new_job("t")])
    await worker.tick()
    await worker.tick()
    await worker.close()
    assert shared.told == ["enter", "job", "job", "leave"]


class Away(MemoryStore):
    """Cannot be reached."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def open(self) -> None:
        self.asked.set()
        raise StoreUnavailable("gone")


async def test_a_stop_while_the_store_is_away_at_the_start_is_obeyed_and_nothing_was_entered() -> None:
    store, shared = Away(), Shared()
    worker = Worker(store, lifespan=shared)
    worker.handler("t")(lambda job: None)
    running = asyncio.create_task(worker.run(signals=False))
    await asyncio.wait_for(store.asked.wait(), 5)
    worker.stop()
    await asyncio.wait_for(running, 5)
    assert shared.told == []


def test_what_is_no_lifespan_is_refused() -> None:
    with pytest.raises(TypeError, match="lifespan: expected a function"):
        Worker(MemoryStore(), lifespan=object())  # type: ignore[arg-type]
