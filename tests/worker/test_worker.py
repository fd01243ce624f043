"""What a handler may do, and what becomes of its job; over every store, in this process."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg
import pytest
from pydantic import BaseModel

from marian_jobs import (
    Backoff,
    Context,
    Dead,
    Enqueued,
    Job,
    MarianError,
    MemoryStore,
    PostgresStore,
    Queue,
    Retry,
    Snooze,
    Status,
    Store,
    Worker,
    new_job,
)
from marian_jobs.job import FINISHED

NOW = Backoff(base=timedelta(0), max=timedelta(0))


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else PostgresStore(request.getfixturevalue("database"))
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run(signals=False))
    try:
        yield
    finally:
        worker.stop()
        await asyncio.wait_for(task, 10)


async def ended(store: Store, job: Job, within: float = 5) -> Job:
    async with asyncio.timeout(within):
        while True:
            now = await store.get(job.id)
            assert now is not None
            if now.status in FINISHED:
                return now
            await asyncio.sleep(0.01)


async def put(store: Store, type: str = "t", **options: object) -> Enqueued:
    return (await store.enqueue([new_job(type, {}, **options)]))[0]  # type: ignore[arg-type]


async def outcome(store: Store, function: Callable[..., object], *, max_attempts: int = 1, **options: object) -> Job:
    """What becomes of one job whose handler is `function`."""
    worker = Worker(store, concurrency=2, grace=timedelta(0))
    worker.handler("t", **{"backoff": NOW, **options})(function)  # type: ignore[arg-type]
    job = await put(store, max_attempts=max_attempts)
    async with running(worker):
        return await ended(store, job)


class TestTick:
    async def test_a_tick_runs_one_job_and_says_so(self, store: Store) -> None:
        worker = Worker(store)
        seen: list[object] = []

        @worker.handler("t")
        async def handle(job: Job) -> None:
            seen.append(job.payload["n"])

        await store.enqueue([new_job("t", {"n": 1}), new_job("t", {"n": 2})])
        tick = await worker.tick()
        assert (seen, tick.job is not None and tick.job.payload["n"], tick.reclaimed) == ([1], 1, 0)
        await worker.tick()
        assert (await worker.tick()).job is None
        assert seen == [1, 2]

    async def test_a_tick_reclaims_first(self, store: Store) -> None:
        worker = Worker(store)
        worker.handler("t")(lambda job: None)
        job = await put(store)
        await store.claim(1, ["t"], timedelta(milliseconds=10))
        await asyncio.sleep(0.03)
        tick = await worker.tick()
        assert tick.reclaimed == 1
        assert (await ended(store, job)).attempts == 2


class TestOutcomes:
    async def test_what_a_handler_returns_does_not_matter(self, store: Store) -> None:
        async def handle(job: Job) -> object:
            return object()

        assert (await outcome(store, handle)).status is Status.SUCCEEDED

    @pytest.mark.parametrize(
        "error",
        [
            ValueError("boom"), TimeoutError("mine"), KeyboardInterrupt("no"), SystemExit(3), GeneratorExit(),
            StopIteration(1), StopAsyncIteration(), asyncio.CancelledError(), MemoryError(), BaseException(object()),
        ],
        ids=lambda e: type(e).__name__,
    )  # fmt: skip
    @pytest.mark.parametrize("kind", ["async", "plain"])
    async def test_whatever_a_handler_raises_fails_its_job_and_not_the_worker(
        self, store: Store, error: BaseException, kind: str
    ) -> None:
        async def handle(job: Job) -> None:
            raise error

        def plain(job: Job) -> None:
            raise error

        job = await outcome(store, handle if kind == "async" else plain)
        assert job.status is Status.DEAD
        assert job.error is not None

    async def test_a_handler_that_recurses_to_death_fails(self, store: Store) -> None:
        def handle(job: Job) -> None:
            handle(job)

        job = await outcome(store, handle)
        assert (job.error or "").startswith("RecursionError")

    async def test_an_error_that_cannot_be_stored_is_made_storable(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.CRITICAL)  # the test runner, too, cannot send it

        async def handle(job: Job) -> None:
            raise ValueError("a\0b\ud800")

        job = await outcome(store, handle)
        assert (job.error or "").startswith("ValueError: a\ufffdb\ufffd")

    async def test_local_variables_stay_out_of_the_row(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        async def handle(job: Job) -> None:
            password = "S3CRET-1"
            raise ValueError(len(password))

        job = await outcome(store, handle)
        assert "S3CRET-1" not in (job.error or "")

    async def test_the_traceback_goes_to_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        async def handle(job: Job) -> None:
            raise ValueError("boom")

        with caplog.at_level(logging.WARNING):
            await outcome(MemoryStore(), handle)
        assert any(record.exc_info for record in caplog.records)

    async def test_dead_ends_the_job_after_one_start(self, store: Store) -> None:
        async def handle(job: Job) -> None:
            raise Dead("bad input")

        job = await outcome(store, handle, max_attempts=5)
        assert (job.status, job.attempts, job.error) == (Status.DEAD, 1, "bad input")

    async def test_retry_waits_as_long_as_it_says(self, store: Store) -> None:
        async def handle(job: Job) -> None:
            if job.attempts == 1:
                raise Retry("busy", after=timedelta(seconds=0.4))

        started = time.monotonic()
        job = await outcome(store, handle, max_attempts=3)
        assert (job.status, job.attempts) == (Status.SUCCEEDED, 2)
        assert 0.4 <= time.monotonic() - started < 2

    async def test_snooze_costs_no_attempt(self, store: Store) -> None:
        async def handle(job: Job) -> None:
            if job.attempts <= 3:
                raise Snooze(timedelta(milliseconds=10))

        job = await outcome(store, handle, max_attempts=1)
        assert (job.status, job.attempts, job.max_attempts) == (Status.SUCCEEDED, 4, 4)

    @pytest.mark.parametrize("budget", [1, 3])
    async def test_a_failing_job_starts_exactly_as_often_as_it_may(self, store: Store, budget: int) -> None:
        starts: list[int] = []

        async def handle(job: Job) -> None:
            starts.append(job.attempts)
            raise ValueError

        job = await outcome(store, handle, max_attempts=budget)
        assert (starts, job.status) == (list(range(1, budget + 1)), Status.DEAD)

    async def test_an_async_callable_object_is_awaited(self, store: Store) -> None:
        class Handler:
            async def __call__(self, job: Job) -> None:
                await asyncio.sleep(0)
                raise Dead("called")

        assert (await outcome(store, Handler())).error == "called"


class TestTimeout:
    async def test_a_handler_beyond_its_timeout_fails(self, store: Store) -> None:
        async def handle(job: Job) -> None:
            await asyncio.sleep(60)

        job = await outcome(store, handle, timeout=0.1)
        assert (job.status, job.error) == (Status.DEAD, "timeout: the handler took longer than 0.1 s")

    async def test_a_handler_that_swallows_its_cancellation_still_timed_out(self, store: Store) -> None:
        async def handle(job: Job) -> None:
            try:
                await asyncio.sleep(60)
            except BaseException:
                return

        assert "timeout" in ((await outcome(store, handle, timeout=0.1)).error or "")

    async def test_a_timeout_error_of_its_own_is_an_ordinary_failure(self, store: Store) -> None:
        async def handle(job: Job) -> None:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)

        assert ((await outcome(store, handle, timeout=5)).error or "").startswith("TimeoutError")

    @pytest.mark.parametrize("kind", ["thread", "loop"])
    async def test_a_handler_that_will_not_stop_is_left_behind_and_the_next_runs(self, store: Store, kind: str) -> None:
        worker = Worker(store, concurrency=1, grace=timedelta(0))
        release = asyncio.Event()
        free = False

        def hang(job: Job) -> None:
            while not free:
                time.sleep(0.01)

        async def swallow(job: Job) -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        worker.handler("t", timeout=0.1)(hang if kind == "thread" else swallow)

        @worker.handler("next")
        async def after(job: Job) -> None: ...

        job = await put(store, max_attempts=1)
        other = await put(store, "next")
        async with running(worker):
            assert "timeout" in ((await ended(store, job)).error or "")
            assert (await ended(store, other)).status is Status.SUCCEEDED
        free = True
        release.set()

    async def test_a_handler_may_run_on_after_one_that_was_cancelled_in_its_slot(self, store: Store) -> None:
        worker = Worker(store, concurrency=1)

        @worker.handler("slow", timeout=0.05)
        async def slow(job: Job) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)

        @worker.handler("t")
        async def quick(job: Job) -> None:
            await asyncio.sleep(0.02)

        slow_job = await put(store, "slow", max_attempts=1, priority=1)
        quick_job = await put(store)
        async with running(worker):
            assert (await ended(store, slow_job)).status is Status.DEAD
            assert (await ended(store, quick_job)).status is Status.SUCCEEDED

    async def test_too_many_left_behind_end_the_worker(self) -> None:
        from marian_jobs import WorkerExhausted

        store = MemoryStore()
        worker = Worker(store, most_abandoned=1, grace=timedelta(0))
        free = False

        @worker.handler("t", timeout=0.05)
        def hang(job: Job) -> None:
            while not free:
                time.sleep(0.01)

        for _ in range(3):
            await put(store, max_attempts=1)
        with pytest.raises(WorkerExhausted):
            await asyncio.wait_for(worker.run(signals=False), 10)
        free = True


class TestClaiming:
    async def test_only_known_types_are_claimed(self, store: Store) -> None:
        worker = Worker(store)
        worker.handler("a")(lambda job: None)
        other = await put(store, "b")
        job = await put(store, "a")
        async with running(worker):
            await ended(store, job)
        left = await store.get(other.id)
        assert left is not None
        assert (left.status, left.attempts) == (Status.QUEUED, 0)

    async def test_a_worker_without_handlers_refuses_to_start(self) -> None:
        with pytest.raises(MarianError, match="no handlers"):
            await Worker(MemoryStore()).run()
        with pytest.raises(MarianError, match="no handlers"):
            await Worker(MemoryStore()).tick()

    async def test_no_more_run_at_once_than_there_are_slots(self, store: Store) -> None:
        worker = Worker(store, concurrency=3)
        now, most = 0, 0

        @worker.handler("t")
        async def handle(job: Job) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.02)
            now -= 1

        jobs = await store.enqueue([new_job("t") for _ in range(20)])
        async with running(worker):
            for job in jobs:
                await ended(store, job)
        assert most == 3

    async def test_fresh_jobs_are_not_starved_by_failing_ones(self, store: Store) -> None:
        worker = Worker(store, concurrency=1)
        starts: list[str] = []

        @worker.handler("bad", backoff=Backoff(base=timedelta(microseconds=1), max=timedelta(microseconds=1)))
        async def bad(job: Job) -> None:
            starts.append("bad")
            raise ValueError

        @worker.handler("fresh")
        async def fresh(job: Job) -> None:
            starts.append("fresh")

        await store.enqueue([new_job("bad", max_attempts=20) for _ in range(10)])
        jobs = await store.enqueue([new_job("fresh") for _ in range(10)])
        async with running(worker):
            for job in jobs:
                await ended(store, job)
        assert [n for n, type in enumerate(starts) if type == "fresh"][-1] < 30

    async def test_failures_together_do_not_come_back_together(self, store: Store) -> None:
        worker = Worker(store, concurrency=100)

        @worker.handler("t", backoff=Backoff(base=timedelta(seconds=60), jitter=0.5))
        async def handle(job: Job) -> None:
            raise ValueError

        jobs = await store.enqueue([new_job("t") for _ in range(100)])
        await worker.run(drain=True, signals=False)
        rows = [row for job in jobs if (row := await store.get(job.id)) is not None]
        assert len({row.run_after for row in rows}) >= 50
        assert all(row.run_after - row.updated_at >= timedelta(seconds=60) for row in rows)
        assert all(row.run_after - row.updated_at <= timedelta(seconds=90.1) for row in rows)

    async def test_a_job_due_later_starts_when_it_is_due(self, store: Store) -> None:
        worker = Worker(store, poll=timedelta(seconds=30))
        started: list[float] = []

        @worker.handler("t")
        async def handle(job: Job) -> None:
            started.append(time.monotonic())

        async with running(worker):
            await asyncio.sleep(0.5)
            due = time.monotonic() + 0.7
            job = await put(store, delay=timedelta(seconds=0.7))
            await ended(store, job)
        assert -0.05 <= started[0] - due < 0.4


@dataclass
class Document:
    id: int
    tags: list[str] = field(default_factory=list)


class Page(BaseModel):
    url: str
    depth: int = 1


class TestTypedPayload:
    async def become(self, store: Store, function: Callable[..., object], payload: dict[str, object]) -> Job:
        worker = Worker(store)
        worker.handler("t")(function)
        (job,) = await store.enqueue([new_job("t", payload, max_attempts=5)])
        async with running(worker):
            return await ended(store, job)

    async def test_a_handler_gets_the_type_it_asks_for(self, store: Store) -> None:
        seen: list[object] = []

        async def take_document(document: Document, context: Context) -> None:
            seen.append((document, context.job.type))

        def take_page(page: Page) -> None:
            seen.append(page)

        await self.become(store, take_document, {"id": 1, "tags": ["a"]})
        await self.become(store, take_page, {"url": "https://a.example"})
        assert seen == [(Document(1, ["a"]), "t"), Page(url="https://a.example")]

    async def test_a_payload_that_does_not_fit_is_dead_at_once_and_its_reason_names_the_place(
        self, store: Store
    ) -> None:
        async def take_document(document: Document) -> None: ...

        dead = await self.become(store, take_document, {"id": "S3CRET-1", "tags": 5})
        assert (dead.status, dead.attempts) == (Status.DEAD, 1)
        assert (dead.error or "").startswith("the payload is no Document: id: ")
        assert "tags: " in (dead.error or "")
        assert "S3CRET" not in (dead.error or "")

    def test_what_no_payload_can_be_is_refused_when_it_is_registered(self) -> None:
        def take(payload: list[int]) -> None: ...

        with pytest.raises(TypeError, match="a Job, a dataclass or a Pydantic model"):
            Worker(MemoryStore()).handler("t")(take)


class TestLimit:
    async def test_a_handlers_limit_bounds_its_type_in_this_worker(self, store: Store) -> None:
        worker = Worker(store, concurrency=10)
        now: dict[str, int] = {"a": 0, "b": 0}
        most = dict(now)

        def handler(type: str) -> Callable[[Job], Awaitable[None]]:
            async def handle(job: Job) -> None:
                now[type] += 1
                most[type] = max(most[type], now[type])
                await asyncio.sleep(0.03)
                now[type] -= 1

            return handle

        worker.handler("a", limit=2)(handler("a"))
        worker.handler("b")(handler("b"))
        jobs = await store.enqueue([new_job(type) for type in "ab" * 12])
        started = time.monotonic()
        async with running(worker):
            for job in jobs:
                await ended(store, job)
        assert most["a"] == 2
        assert most["b"] > 2
        assert time.monotonic() - started < 3


class TestStop:
    async def test_a_stop_that_comes_before_the_start_is_not_lost(self, store: Store) -> None:
        worker = Worker(store)
        worker.handler("t")(lambda job: None)
        worker.stop()
        await asyncio.wait_for(worker.run(signals=False), 5)

    async def test_a_cancelled_worker_gives_back_what_it_holds(self, store: Store) -> None:
        worker = Worker(store)
        started = asyncio.Event()

        @worker.handler("t")
        async def handle(job: Job) -> None:
            started.set()
            await asyncio.sleep(60)

        job = await put(store)
        task = asyncio.create_task(worker.run(signals=False))
        await asyncio.wait_for(started.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        left = await store.get(job.id)
        assert left is not None
        assert (left.status, left.attempts, left.max_attempts) == (Status.QUEUED, 1, 4)

    async def test_a_worker_may_run_again(self, store: Store) -> None:
        worker = Worker(store)
        worker.handler("t")(lambda job: None)
        for _ in range(2):
            job = await put(store)
            async with running(worker):
                assert (await ended(store, job)).status is Status.SUCCEEDED


class TestRegistration:
    @pytest.mark.parametrize(
        "options", [{"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}, {"timeout": float("inf")}, {"limit": 0}]
    )
    def test_options_that_make_no_sense_are_refused(self, options: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=next(iter(options))):
            Worker(MemoryStore()).handler("t", **options)(lambda job: None)  # type: ignore[arg-type]

    def test_a_type_has_one_handler(self) -> None:
        worker = Worker(MemoryStore())
        worker.handler("t")(lambda job: None)
        with pytest.raises(ValueError, match="has a handler"):
            worker.handler("t")(lambda job: None)

    def test_a_handler_must_take_the_job(self) -> None:
        with pytest.raises(TypeError, match="job"):
            Worker(MemoryStore()).handler("t")(lambda: None)
        with pytest.raises(TypeError, match="nothing else"):
            Worker(MemoryStore()).handler("t")(lambda a, b, c: None)

    @pytest.mark.parametrize(
        "options", [{"concurrency": 0}, {"concurrency": True}, {"poll": timedelta(0)}, {"grace": timedelta(-1)}]
    )
    def test_a_worker_that_could_not_work_is_refused(self, options: dict[str, object]) -> None:
        with pytest.raises((ValueError, TypeError), match=next(iter(options))):
            Worker(MemoryStore(), **options)  # type: ignore[arg-type]


class TestContext:
    async def test_a_second_parameter_is_the_context(self, store: Store) -> None:
        seen: list[object] = []

        async def handle(job: Job, context: Context) -> None:
            seen.extend([context.attempt, context.is_last_attempt, context.job == job, context.should_stop])
            assert context.time_left is not None
            assert await context.extend(timedelta(minutes=1))
            context.logger.info("hello")

        assert (await outcome(store, handle, timeout=5)).status is Status.SUCCEEDED
        assert seen == [1, True, True, False]


class TestOwnTransaction:
    async def run_once(
        self, database: str, body: Callable[[psycopg.AsyncConnection, Context], Awaitable[None]]
    ) -> tuple[Job, int]:
        """The job after one run of a handler that writes and completes in one transaction, and how much it wrote."""
        async with PostgresStore(database) as store, await psycopg.AsyncConnection.connect(database) as mine:
            await mine.execute("create table written (n int)")
            await mine.commit()
            worker = Worker(store)

            @worker.handler("t", backoff=Backoff(base=timedelta(minutes=5)))
            async def handle(job: Job, context: Context) -> None:
                await mine.execute("insert into written values (1)")
                await body(mine, context)

            job = await put(store)
            await worker.tick()
            await mine.rollback()
            row = await (await mine.execute("select count(*) from written")).fetchone()
            after = await store.get(job.id)
            assert row is not None
            assert after is not None
            return after, row[0]

    async def test_result_and_writes_commit_together(self, database: str) -> None:
        async def body(mine: psycopg.AsyncConnection, context: Context) -> None:
            await context.complete(mine)
            await mine.commit()

        after, written = await self.run_once(database, body)
        assert (after.status, written) == (Status.SUCCEEDED, 1)

    async def test_an_error_after_completing_takes_both_back(self, database: str) -> None:
        async def body(mine: psycopg.AsyncConnection, context: Context) -> None:
            await context.complete(mine)
            await mine.rollback()
            raise ValueError("boom")

        after, written = await self.run_once(database, body)
        assert (after.status, written) == (Status.RETRYING, 0)

    async def test_a_transaction_that_is_never_committed_is_no_success(self, database: str) -> None:
        async def body(mine: psycopg.AsyncConnection, context: Context) -> None:
            await context.complete(mine)

        after, written = await self.run_once(database, body)
        assert (after.status, written) == (Status.RUNNING, 0)

    async def test_a_lost_lease_takes_the_writes_back(self, database: str) -> None:
        async def body(mine: psycopg.AsyncConnection, context: Context) -> None:
            async with PostgresStore(database) as other:
                await other.cancel(context.job.id)
            await context.complete(mine)
            await mine.commit()

        after, written = await self.run_once(database, body)
        assert (after.status, after.error, written) == (Status.DEAD, "cancelled", 0)


class TestQueue:
    async def test_any_number_of_first_calls_open_the_store_once(self) -> None:
        class Counting(MemoryStore):
            opened = 0

            async def open(self) -> None:
                self.opened += 1
                await asyncio.sleep(0.01)

        store = Counting()
        queue = Queue(store)
        await asyncio.gather(*(queue.enqueue("t") for _ in range(10)))
        assert store.opened == 1
