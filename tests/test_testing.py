"""What users of the library are given for their own tests."""

import asyncio
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import entry_points
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from marian_jobs import Backoff, CallNext, Context, Dead, Job, PostgresStore, Retry, Snooze, Status, Worker
from marian_jobs.testing import TooManyTurns, VirtualClock, VirtualQueue
from marian_jobs.worker import Failed, Released, Succeeded
from tests.worker.fleet import until
from tests.worker.isolated import work

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))


@pytest.fixture
def queue() -> VirtualQueue:
    return VirtualQueue(start=START)


@pytest.fixture
def worker(queue: VirtualQueue) -> Worker:
    return queue.worker()


class TestTime:
    async def test_retries_take_their_backoff_on_the_clock_and_no_time_at_all(
        self, queue: VirtualQueue, worker: Worker
    ) -> None:
        begun = time.monotonic()
        starts: list[timedelta] = []

        @worker.handler("t")
        async def handle(job: Job) -> None:
            starts.append(queue.clock() - START)
            raise ValueError("boom")

        job = await queue.enqueue("t", max_attempts=11)
        ran = await queue.run_until_empty(worker)
        waits = [b - a for a, b in pairwise(starts)]
        assert waits == [timedelta(seconds=s) for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 300)]
        assert [(run.job.attempts, type(run.outcome)) for run in ran] == [(n, Failed) for n in range(1, 12)]
        dead = await queue.get(job.id)
        assert dead is not None
        assert dead.status is Status.DEAD
        assert time.monotonic() - begun < 10

    async def test_jobs_run_when_they_are_due_and_not_before(self, queue: VirtualQueue, worker: Worker) -> None:
        seen: dict[str, timedelta] = {}
        worker.handler("t")(lambda job: seen.update({job.payload["name"]: queue.clock() - START}))
        await queue.enqueue("t", {"name": "at"}, run_after=START + DAY)
        await queue.enqueue("t", {"name": "later"}, delay=HOUR)
        await queue.enqueue("t", {"name": "now"})
        await queue.run_until_empty(worker)
        assert seen == {"now": 0 * SECOND, "later": HOUR, "at": DAY}

    async def test_a_while_goes_by_and_what_is_due_later_stays(self, queue: VirtualQueue, worker: Worker) -> None:
        worker.handler("t")(lambda job: None)
        soon, late = await queue.enqueue("t", delay=MINUTE), await queue.enqueue("t", delay=HOUR)
        assert [run.job.id for run in await queue.run_for(10 * MINUTE, worker)] == [soon.id]
        assert queue.clock() == START + 10 * MINUTE
        assert [job.id for job in await queue.jobs(status="queued")] == [late.id]

    async def test_a_lease_that_nobody_extends_runs_out_on_the_clock(self, queue: VirtualQueue, worker: Worker) -> None:
        worker.handler("t")(lambda job: None)
        await queue.enqueue("t")
        (lost,) = await queue.store.claim(1, ["t"], 30 * SECOND)  # by a worker that dies of it
        (run,) = await queue.run_until_empty(worker)
        assert (run.job.id, run.job.attempts, queue.clock()) == (lost.id, 2, START + 30 * SECOND)

    async def test_a_snooze_and_a_retry_after_take_the_time_they_ask_for(
        self, queue: VirtualQueue, worker: Worker
    ) -> None:
        @worker.handler("t")
        async def handle(job: Job) -> None:
            if job.attempts == 1:
                raise Snooze(DAY)
            if job.attempts == 2:
                raise Retry(after=HOUR)

        await queue.enqueue("t")
        first, second, third = await queue.run_until_empty(worker)
        assert first.outcome == Released(DAY)
        assert second.outcome == Failed("retry", HOUR)
        assert third.outcome == Succeeded()
        assert queue.clock() == START + DAY + HOUR

    async def test_a_rate_spreads_jobs_over_the_clock(self, queue: VirtualQueue, worker: Worker) -> None:
        starts: list[timedelta] = []
        worker.handler("t")(lambda job: starts.append(queue.clock() - START))
        await queue.limit("t", rate=2, per=DAY)
        for _ in range(5):
            await queue.enqueue("t")
        await queue.run_until_empty(worker)
        assert starts == [0 * DAY, 0 * DAY, DAY, DAY, 2 * DAY]

    def test_the_clock_stands_and_goes_on_and_never_back(self) -> None:
        clock = VirtualClock(START)
        assert (clock(), clock.advance(HOUR), clock()) == (START, START + HOUR, START + HOUR)
        assert clock.move_to(START.astimezone(ZoneInfo("Asia/Tokyo")) + 2 * HOUR) == START + 2 * HOUR
        with pytest.raises(ValueError, match=r"moment: 2026-01-01T00:00:00\+00:00 is past, it is 2026-01-01T02"):
            clock.move_to(START)
        with pytest.raises(ValueError, match="by: must be between"):
            clock.advance(-SECOND)
        with pytest.raises(ValueError, match="moment: must have a time zone"):
            clock.move_to(START.replace(tzinfo=None))
        assert clock() == START + 2 * HOUR

    async def test_a_queue_starts_at_the_present(self) -> None:
        assert abs(VirtualQueue().clock() - datetime.now(UTC)) < MINUTE


class TestSchedules:
    async def test_slots_come_as_time_goes_by(self, queue: VirtualQueue, worker: Worker) -> None:
        slots: list[datetime | None] = []

        @worker.schedule("0 3 * * *", tz="Asia/Tokyo")
        async def report(job: Job, context: Context) -> None:
            assert context.slot == queue.clock()
            slots.append(context.slot)

        await queue.run_for(3 * DAY, worker)
        assert slots == [START + 18 * HOUR + n * DAY for n in range(3)]

    async def test_the_hour_that_a_night_has_twice_runs_once(self) -> None:
        queue = VirtualQueue(start=datetime(2026, 10, 24, 12, tzinfo=UTC))
        worker = queue.worker()
        worker.schedule("30 2 * * *", tz="Europe/Berlin", name="n")(worker.handler("t")(lambda job: None))
        ran = await queue.run_for(2 * DAY, worker)
        assert [f"{run.job.run_after:%d %H:%M}" for run in ran] == ["25 00:30", "26 01:30"]

    async def test_an_empty_queue_does_not_wait_for_the_next_slot(self, queue: VirtualQueue, worker: Worker) -> None:
        worker.schedule("0 3 * * *", name="n")(worker.handler("t")(lambda job: None))
        assert await queue.run_until_empty(worker) == []
        assert queue.clock() == START

    async def test_a_slot_comes_also_between_a_failure_and_its_retry(self, queue: VirtualQueue, worker: Worker) -> None:
        @worker.handler("flaky", backoff=Backoff(base=2 * HOUR, max=2 * HOUR))
        async def flaky(job: Job) -> None:
            if job.attempts == 1:
                raise ValueError

        worker.schedule("30 * * * *", name="n", look_back=0 * SECOND)(worker.handler("t")(lambda job: None))
        await queue.enqueue("flaky")
        assert [run.job.type for run in await queue.run_until_empty(worker)] == ["flaky", "t", "t", "flaky"]


class TestWorkers:
    async def test_a_worker_of_another_store_is_used_as_it_is_and_its_store_is_left_alone(
        self, queue: VirtualQueue
    ) -> None:
        seen: list[object] = []

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[str]:
            seen.append("enter")
            yield "shared"
            seen.append("leave")

        worker = Worker(PostgresStore("postgresql://nobody@127.0.0.1:1/nothing"), lifespan=lifespan)

        @worker.middleware
        async def around(context: Context, call_next: CallNext) -> object:
            seen.append("before")
            return await call_next()

        @worker.handler("t")
        def handle(job: Job, context: Context) -> None:
            seen.append(context.resources)

        await queue.enqueue("t")
        await queue.run_until_empty(worker)
        assert seen == ["enter", "before", "shared", "leave"]

    def test_each_run_may_have_an_event_loop_of_its_own(self, queue: VirtualQueue, worker: Worker) -> None:
        worker.handler("t")(lambda job: None)
        for _ in range(3):
            asyncio.run(queue.enqueue("t"))
            assert len(asyncio.run(queue.run_until_empty(worker))) == 1

    async def test_jobs_that_make_jobs_are_run_to_the_last(self, queue: VirtualQueue, worker: Worker) -> None:
        @worker.handler("tree")
        async def tree(job: Job) -> None:
            for _ in range(2 if job.payload["depth"] else 0):
                await queue.enqueue("tree", {"depth": job.payload["depth"] - 1})

        await queue.enqueue("tree", {"depth": 3})
        assert len(await queue.run_until_empty(worker)) == 15

    async def test_jobs_of_types_without_handler_and_of_paused_types_are_left(
        self, queue: VirtualQueue, worker: Worker
    ) -> None:
        for type in ("a", "b"):
            worker.handler(type)(lambda job: None)
        await queue.pause("b")
        for type in ("a", "b", "c"):
            await queue.enqueue(type)
        assert [run.job.type for run in await queue.run_until_empty(worker)] == ["a"]
        assert [job.type for job in await queue.jobs(status=Status.QUEUED)] == ["b", "c"]
        await queue.resume("b")
        assert [run.job.type for run in await queue.run_until_empty(worker)] == ["b"]

    async def test_handlers_may_run_in_processes(self, queue: VirtualQueue) -> None:
        worker = queue.worker(concurrency=1)
        worker.handler("t", isolation="process")(work)
        await queue.enqueue("t", {"do": "dead"})
        (run,) = await queue.run_until_empty(worker)
        assert run.outcome == Failed("bad input", dead=True)
        await until(lambda: multiprocessing.active_children() == [], 10)  # told to end, they may take a moment

    async def test_a_timeout_is_real_time(self, queue: VirtualQueue, worker: Worker) -> None:
        @worker.handler("t", timeout=0.05)
        async def handle(job: Job) -> None:
            queue.clock.advance(HOUR)
            await asyncio.sleep(30)

        await queue.enqueue("t", max_attempts=1)
        (run,) = await queue.run_until_empty(worker)
        assert isinstance(run.outcome, Failed)
        assert run.outcome.error == "timeout: the handler took longer than 0.05 s"
        assert queue.clock() == START + HOUR

    async def test_three_hundred_jobs_leave_no_threads_behind(self, queue: VirtualQueue, worker: Worker) -> None:
        @worker.handler("t")
        async def handle(job: Job) -> None: ...

        for _ in range(300):
            await queue.enqueue("t")
        assert len(await queue.run_until_empty(worker)) == 300
        end = time.monotonic() + 5
        while left := [thread for thread in threading.enumerate() if thread.name == "marian-jobs-leases"]:
            assert time.monotonic() < end, f"{len(left)} threads"
            await asyncio.sleep(0.01)


class TestNoEnd:
    async def test_jobs_without_end_are_told_with_what_they_are(self, queue: VirtualQueue, worker: Worker) -> None:
        @worker.handler("again")
        async def again(job: Job) -> None:
            raise Snooze(HOUR)

        await queue.enqueue("again")
        with pytest.raises(
            TooManyTurns, match=r"after 50 turns, at 2026-01-02T.*, 1 jobs are left, of again; .*Released"
        ):
            await queue.run_until_empty(worker, most_turns=50)

    async def test_a_worker_that_knows_nothing_is_refused(self, queue: VirtualQueue) -> None:
        with pytest.raises(Exception, match="no handlers"):
            await queue.run_until_empty(queue.worker())


async def test_jobs_are_listed_in_the_order_they_were_made_by_type_and_state(
    queue: VirtualQueue, worker: Worker
) -> None:
    @worker.handler("bad")
    async def bad(job: Job) -> None:
        raise Dead("no")

    for n in range(60):  # more than a page
        await queue.enqueue("good", {"n": n})
    await queue.enqueue("bad")
    await queue.run_until_empty(worker)
    assert [job.payload["n"] for job in await queue.jobs(type="good", status="queued")] == list(range(60))
    assert [job.error for job in await queue.jobs(status="dead")] == ["no"]
    assert len(await queue.jobs()) == 61
    with pytest.raises(ValueError, match="is not a valid Status"):
        await queue.jobs(status="done")


USERS_TESTS = """
import asyncio
from datetime import timedelta

def test_it(marian_queue, marian_worker):
    @marian_worker.handler("greet")
    def greet(job):
        assert job.payload == {"name": "Ada"}

    asyncio.run(marian_queue.enqueue("greet", {"name": "Ada"}, delay=timedelta(days=1)))
    (run,) = asyncio.run(marian_queue.run_until_empty(marian_worker))
    assert type(run.outcome).__name__ == "Succeeded"

def test_each_has_its_own(marian_queue):
    assert asyncio.run(marian_queue.jobs()) == []
"""


class TestPlugin:
    def test_its_fixtures_are_there_and_need_no_other_plugin(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(USERS_TESTS)
        done = pytester.runpytest_subprocess("-p", "no:asyncio", "-p", "no:anyio", "-q")
        done.assert_outcomes(passed=2)

    def test_it_can_be_left_out(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(USERS_TESTS)
        done = pytester.runpytest_subprocess("-p", "no:marian_jobs", "-q")
        done.assert_outcomes(errors=2)
        done.stdout.fnmatch_lines(["*fixture 'marian_queue' not found*"])

    def test_it_is_found_by_its_entry_point(self) -> None:
        (found,) = [point for point in entry_points(group="pytest11") if point.name == "marian_jobs"]
        assert found.value == "marian_jobs_pytest"

    def test_starting_pytest_loads_nothing_of_the_package_and_the_package_does_not_load_pytest(self) -> None:
        for loaded, not_loaded in (("marian_jobs_pytest", "marian_jobs"), ("marian_jobs.testing", "pytest")):
            program = f"import sys, {loaded}; sys.exit({not_loaded!r} in sys.modules)"
            assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
