"""Code around every handler: in order, and transparent to all that a handler may do."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from marian_jobs import Backoff, CallNext, Context, Dead, Job, MemoryStore, Retry, Snooze, Status, Worker, new_job
from marian_jobs.testing import VirtualQueue
from marian_jobs.worker import Failed, Outcome, Released, Succeeded
from tests.worker.isolated import work

Around = Callable[[Context, CallNext], Awaitable[Any]]


async def attempt(function: Callable[..., object], *middleware: Around, **options: Any) -> Outcome:
    """What becomes of the one attempt that a job of the handler has."""
    queue = VirtualQueue()
    payload = options.pop("payload", {})
    worker = queue.worker(concurrency=1, middleware=middleware)
    worker.handler("t", **options)(function)
    await queue.enqueue("t", payload, max_attempts=1)
    return (await queue.run_for(timedelta(0), worker))[0].outcome


class Noting:
    """Middleware that notes what passes, and lets it pass."""

    def __init__(self) -> None:
        self.told: list[object] = []

    async def __call__(self, context: Context, call_next: CallNext) -> object:
        try:
            result = await call_next()
        except BaseException as e:
            self.told.append(type(e).__name__)
            raise
        self.told.append(result)
        return result


async def test_the_first_is_outermost_and_decorated_ones_come_inside() -> None:
    told: list[str] = []

    def layer(name: str) -> Around:
        async def around(context: Context, call_next: CallNext) -> object:
            told.append(name)
            result = await call_next()
            told.append(f"/{name}")
            return result

        return around

    queue = VirtualQueue()
    worker = queue.worker(middleware=[layer("a"), layer("b")])
    worker.middleware(layer("c"))
    worker.handler("t")(lambda job: told.append("handler"))
    await queue.enqueue("t")
    await queue.run_until_empty(worker)
    assert told == ["a", "b", "c", "handler", "/c", "/b", "/a"]


def raising(error: BaseException, kind: str) -> Callable[[Job], object]:
    async def handle(job: Job) -> None:
        raise error

    def plain(job: Job) -> None:
        raise error

    return handle if kind == "loop" else plain


@pytest.mark.parametrize("kind", ["loop", "thread"])
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Retry("busy", after=timedelta(seconds=7)), Failed("busy", timedelta(seconds=7))),
        (Snooze(timedelta(hours=1)), Released(timedelta(hours=1))),
        (Dead("bad input"), Failed("bad input", dead=True)),
        (asyncio.CancelledError(), None),
        (ValueError("boom"), None),
        (KeyboardInterrupt(), None),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_a_handler_raises_passes_through(error: BaseException, outcome: Outcome | None, kind: str) -> None:
    noting = Noting()
    became = await attempt(raising(error, kind), noting)
    assert noting.told == [type(error).__name__]
    assert became == outcome if outcome else isinstance(became, Failed)


async def test_it_sees_what_the_handler_returns() -> None:
    async def loop(job: Job) -> int:
        return 1

    def thread(job: Job) -> int:
        return 2

    noting = Noting()
    await attempt(loop, noting)
    await attempt(thread, noting)
    assert noting.told == [1, 2]


@pytest.mark.parametrize(
    ("do", "outcome"),
    [("return", Succeeded()), ("dead", Failed("bad input", dead=True))],
)
async def test_it_stands_around_a_handler_in_a_process_too(do: str, outcome: Outcome) -> None:
    noting = Noting()
    assert await attempt(work, noting, isolation="process", payload={"do": do}) == outcome
    assert noting.told == [None if do == "return" else "Dead"]


async def test_a_payload_that_does_not_fit_passes_through_as_dead() -> None:
    @dataclass
    class Document:
        id: int

    async def take(document: Document) -> None: ...

    take.__annotations__["document"] = Document  # a class of this function is not found by its name
    noting = Noting()
    became = await attempt(take, noting, payload={"id": "x"})
    assert isinstance(became, Failed)
    assert became.dead
    assert became.error.startswith("the payload is no Document: id: ")
    assert noting.told == ["Dead"]


async def test_one_that_does_not_go_on_takes_the_handlers_place() -> None:
    ran: list[str] = []

    async def skip(context: Context, call_next: CallNext) -> None:
        return None

    async def refuse(context: Context, call_next: CallNext) -> None:
        raise Dead(f"no jobs of {context.job.type}")

    assert await attempt(lambda job: ran.append("handler"), skip) == Succeeded()
    assert await attempt(lambda job: ran.append("handler"), refuse) == Failed("no jobs of t", dead=True)
    assert ran == []


async def test_what_it_raises_is_as_if_the_handler_had() -> None:
    async def broken(context: Context, call_next: CallNext) -> None:
        await call_next()
        raise ValueError("in the middleware")

    became = await attempt(lambda job: None, broken, backoff=Backoff(base=timedelta(seconds=3)))
    assert isinstance(became, Failed)
    assert (became.error.splitlines()[0], became.retry_in) == ("ValueError: in the middleware", timedelta(seconds=3))


@pytest.mark.parametrize("kind", ["loop", "thread"])
async def test_a_timeout_cancels_through_it(kind: str) -> None:
    async def loop(job: Job, context: Context) -> None:
        await asyncio.sleep(60)

    def thread(job: Job, context: Context) -> None:
        context.wait_stop(timedelta(seconds=60))

    noting = Noting()
    became = await attempt(loop if kind == "loop" else thread, noting, timeout=0.1)
    assert isinstance(became, Failed)
    assert became.error == "timeout: the handler took longer than 0.1 s"
    assert noting.told == ["CancelledError"]


async def test_a_stopping_worker_releases_what_waits_behind_it() -> None:
    store, noting, started = MemoryStore(), Noting(), asyncio.Event()
    worker = Worker(store, grace=timedelta(0), middleware=[noting])

    @worker.handler("t")
    async def handle(job: Job) -> None:
        started.set()
        await asyncio.sleep(60)

    (job,) = await store.enqueue([new_job("t")])
    running = asyncio.create_task(worker.run(signals=False))
    await asyncio.wait_for(started.wait(), 5)
    worker.stop()
    await asyncio.wait_for(running, 10)
    left = await store.get(job.id)
    assert left is not None
    assert (left.status, left.max_attempts, noting.told) == (Status.QUEUED, 4, ["CancelledError"])


def test_what_is_no_middleware_is_refused() -> None:
    with pytest.raises(TypeError, match="middleware: expected a function"):
        Worker(MemoryStore(), middleware=["no"])  # type: ignore[list-item]


async def test_each_attempt_has_a_line_with_what_became_of_it_and_how_long_it_took(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def slow(job: Job) -> None:
        await asyncio.sleep(0.05)
        raise Dead("no")

    with caplog.at_level(logging.INFO, "marian_jobs.worker"):
        await attempt(slow)
    (line,) = [record for record in caplog.records if hasattr(record, "duration")]
    assert line.levelno == logging.INFO
    assert (line.job_type, line.attempt) == ("t", 1)  # type: ignore[attr-defined]
    assert 0.05 <= line.duration < 5


class TestSchedule:
    async def test_a_function_becomes_the_handler_of_the_type_that_bears_its_name(self) -> None:
        worker = VirtualQueue().worker()

        @worker.schedule("* * * * *")
        async def report(job: Job) -> None: ...

        assert worker.types == ["report"]

    async def test_above_a_handler_it_makes_jobs_of_the_handlers_types(self) -> None:
        queue = VirtualQueue()
        worker = queue.worker()

        @worker.schedule("* * * * *", payload={"n": 1}, max_attempts=9)
        @worker.handler("a")
        @worker.handler("b")
        async def both(job: Job) -> None: ...

        await queue.run_for(timedelta(0), worker)
        made = [(job.type, job.payload, job.max_attempts) for job in await queue.jobs()]
        assert sorted(made, key=str) == [("a", {"n": 1}, 9), ("b", {"n": 1}, 9)]

    async def test_two_of_one_function_need_names(self) -> None:
        worker = VirtualQueue().worker()

        @worker.schedule("0 * * * *")
        async def report(job: Job) -> None: ...

        with pytest.raises(ValueError, match="one named 'report' already; give the second a name="):
            worker.schedule("30 * * * *")(report)
        worker.schedule("30 * * * *", name="half past")(report)

    def test_what_is_no_expression_is_refused_where_it_is_written(self) -> None:
        with pytest.raises(ValueError, match="expression: 'every day' is not a cron expression"):
            VirtualQueue().worker().schedule("every day")(lambda job: None)
