"""The worker: claims jobs, runs their handlers, records what became of them.

    feed ──claims──▶ slots ──outcomes──▶ recorder ──▶ store
      ▲                                     │
      └────────── room for more ◀───────────┘        keeper: leases of long runs, from a thread of its own

`tick` is one turn of this for one job, by hand; `run` is all of it until stopped.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeVar

from marian_jobs import checks, clock
from marian_jobs.backoff import Backoff
from marian_jobs.errors import LeaseLost, MarianError, StoreUnavailable
from marian_jobs.job import Job
from marian_jobs.machine import LEASE
from marian_jobs.store import MOST_CLAIMED, Alarm, Poll, Store
from marian_jobs.worker.handlers import Function, Handlers
from marian_jobs.worker.keeper import Keeper
from marian_jobs.worker.outage import LONGEST, SHORTEST, Outage
from marian_jobs.worker.outcomes import Lost, Outcome, Settled
from marian_jobs.worker.recorder import Recorder
from marian_jobs.worker.run import Run, Why
from marian_jobs.worker.share import Share
from marian_jobs.worker.slots import Slots

logger = logging.getLogger("marian_jobs.worker")

F = TypeVar("F", bound=Function)

SHORTEST_POLL = 0.05
REST_OF_TURN = 1.0
LISTENING_POLL = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick did: how many leases it reclaimed, and the job it ran with its outcome, or None."""

    reclaimed: int
    job: Job | None
    outcome: Outcome | None


class WorkerExhausted(MarianError):
    """Too many handlers would not stop when told to: the process should be restarted by its supervisor."""


class Worker:
    """Runs handlers for the jobs of a store. Claims no more than it has free slots, and only types it has handlers for.

    `concurrency` is the number of slots; `lease` how long a job is this worker's without being extended; `poll` the
    longest pause between two looks for work where the store cannot wake it (with LISTEN it looks every 10 s besides
    being woken); `grace` how long handlers may go on after a stop was asked for; `most_abandoned` how many handlers
    that would not stop are left behind before `run` gives up with `WorkerExhausted`.
    """

    def __init__(
        self,
        store: Store,
        *,
        concurrency: int = 10,
        lease: timedelta = LEASE,
        poll: timedelta = timedelta(seconds=1),
        grace: timedelta = timedelta(seconds=20),
        most_abandoned: int = 10,
    ) -> None:
        self._store = store
        self._opened = False
        self._concurrency = checks.integer("concurrency", concurrency, 1, 100_000)
        self._lease = checks.lease("lease", lease)
        self._poll = checks.lease("poll", poll)
        self._grace = checks.duration("grace", grace)
        self._most_abandoned = checks.integer("most_abandoned", most_abandoned, 0, 100_000)
        self._handlers = Handlers()
        self._share = Share(self._handlers)
        self._runs: set[Run] = set()
        self._outage = Outage()
        self._room_freed = asyncio.Event()
        self._recorder = Recorder(store, self._outage, recorded=self._room_freed.set)
        self._keeper = Keeper(store, self._lease, lambda: list(self._runs))
        self._slots = Slots(concurrency, self._finished)
        self._stopping = asyncio.Event()
        self._abandoned: set[Run] = set()
        self._busy = False
        self._polled_at = 0.0
        self._last_outcome: Outcome | None = None

    def handler(
        self,
        type: str,
        *,
        timeout: timedelta | float | None = None,
        backoff: Backoff | None = None,
        limit: int | None = None,
        isolation: Literal["process"] | None = None,
        memory_limit: int | None = None,
    ) -> Callable[[F], F]:
        """Registers the decorated function, async or plain, as the handler of a job type.

        It takes the `Job`, and a `Context` too if it has a second parameter. It may raise `Retry`, `Snooze` or `Dead`;
        any other exception fails the attempt. `timeout` (timedelta or seconds) bounds it, `backoff` spaces its
        retries, `limit` bounds how many run at once in this worker. With `isolation="process"` it runs in a process
        of its own, which a timeout kills and which may crash, or exceed `memory_limit` bytes, without harm.
        """

        def register(function: F) -> F:
            self._handlers.register(
                type,
                function,
                timeout=timeout,
                backoff=backoff,
                limit=limit,
                isolation=isolation,
                memory_limit=memory_limit,
            )
            return function

        return register

    async def tick(self) -> Tick:
        """Reclaims expired leases, runs at most one due job to its end and records it; returns what it did."""
        self._need_handlers()
        await self._open()
        answer = await self._store.poll(1, self._handlers.types, self._lease)
        if not answer.jobs:
            return Tick(answer.reclaimed, None, None)
        job = answer.jobs[0]
        self._keeper.start()
        try:
            self._start([job], clock.monotonic())
            while self._runs:
                self._room_freed.clear()
                await self._room_freed.wait()
        finally:
            self._keeper.stop()
        await self._recorder.flush()
        return Tick(answer.reclaimed, job, self._last_outcome)

    async def run(self, *, drain: bool = False, signals: bool = True) -> None:
        """Works until `stop` is called, or SIGTERM or SIGINT comes (`signals`), or with `drain` until nothing is due.

        Then it claims no more, lets handlers end within `grace`, and releases what is left. A second signal ends the
        grace. Raises `StoreRefused` when the store may not be used, `WorkerExhausted` when handlers would not stop.
        """
        self._need_handlers()
        if signals:
            self._listen_to_signals()
        await self._outage.ride_out(self._open)
        recording = asyncio.create_task(self._recorder.serve(), name="marian-jobs-recorder")
        feeding = asyncio.create_task(self._feed(drain), name="marian-jobs-feed")
        stopping = asyncio.create_task(self._stopping.wait())
        self._keeper.start()
        try:
            await asyncio.wait({feeding, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await _end(feeding)
            await self._let_end(self._grace)
        except asyncio.CancelledError:
            if task := asyncio.current_task():
                task.uncancel()  # else the time limits below would take the cancellation for their own
            await _end(feeding)
            await self._let_end(
                timedelta(0)
            )  # whoever cancels us will not wait, but nothing is kept until its lease ends
            raise
        finally:
            self._keeper.stop()
            for task in (recording, stopping, feeding):
                task.cancel()
            await self._slots.close()
            self._stopping.clear()
            if signals:
                self._ignore_signals()
        if feeding.done() and not feeding.cancelled() and (error := feeding.exception()):
            raise error
        self._fail_if_exhausted()

    def stop(self) -> None:
        """Asks `run` to stop; called a second time, at once. For other threads: `loop.call_soon_threadsafe`."""
        if self._stopping.is_set():
            self._stop_runs()
        self._stopping.set()

    async def close(self) -> None:
        """Closes the store."""
        self._opened = False
        await self._store.close()

    async def _open(self) -> None:
        if not self._opened:
            await self._store.open()
            self._opened = True

    def _need_handlers(self) -> None:
        if not self._handlers:
            raise MarianError("the worker has no handlers: register one with @worker.handler(TYPE)")

    async def _feed(self, drain: bool) -> None:
        """Claims for the free slots, and sleeps when there is nothing to claim."""
        alarm = self._store.alarm(self._handlers.types)
        if not alarm.can_ring:
            logger.info("this store cannot wake the worker: it looks for work every %g s", self._poll.total_seconds())
        pause = SHORTEST_POLL
        try:
            while not self._stopping.is_set():
                self._fail_if_exhausted()
                self._room_freed.clear()  # before looking, so that what is freed while we look is not missed
                if (room := await self._settled_room()) <= 0:
                    await alarm.disarm()
                    await self._room_freed.wait()
                    continue
                jobs, due_in = await self._claim(room)
                if jobs:
                    pause = SHORTEST_POLL
                if len(jobs) == room:
                    continue
                if drain and not jobs and not self._runs and not self._recorder.backlog:
                    return
                if await alarm.arm():
                    continue
                longest = (LISTENING_POLL if alarm.rings else self._poll).total_seconds()
                if await self._rest(alarm, _pause(min(pause, longest), due_in)):
                    pause = SHORTEST_POLL
                elif not jobs:
                    pause = min(pause * 2, longest)
        finally:
            await alarm.close()

    async def _rest(self, alarm: Alarm, pause: timedelta) -> bool:
        """Sleeps until there may be work: true when the alarm rang, or a type that was at its limit has room again."""
        closed = len(self._handlers.types) - len(self._share.open_types())
        if not closed:
            return await alarm.wait(pause)
        end = clock.monotonic() + pause.total_seconds()
        while (left := end - clock.monotonic()) > 0:
            if await alarm.wait(timedelta(seconds=min(left, SHORTEST_POLL))):
                return True
            if len(self._handlers.types) - len(self._share.open_types()) < closed:
                return True
        return False

    def _room(self) -> int:
        """How many jobs may be claimed now: free slots, as long as what is done gets recorded."""
        unrecorded = self._recorder.backlog
        return min(MOST_CLAIMED, self._concurrency - len(self._runs) - max(0, unrecorded - self._concurrency))

    async def _settled_room(self) -> int:
        """The room, once it has stopped growing or half the slots are free: quick jobs end by the dozen, and are best
        replaced by the hundred; slow ones end alone, and are replaced at once."""
        room = self._room()
        while 0 < room < self._concurrency // 2:
            await asyncio.sleep(0)
            if (grown := self._room()) <= room:
                break
            room = grown
        return room

    async def _claim(self, room: int) -> tuple[Sequence[Job], timedelta | None]:
        pause = SHORTEST
        while True:
            asked_at = clock.monotonic()
            try:
                answer = await self._turn(room, asked_at)
            except StoreUnavailable as e:
                self._outage.began(e)
                await asyncio.sleep(pause * (0.5 + clock.chance() / 2))
                pause = min(pause * 2, LONGEST)
                continue
            self._outage.ended()
            if answer.reclaimed:
                logger.warning("reclaimed %d expired leases", answer.reclaimed)
            self._start(answer.jobs, asked_at)
            return answer.jobs, answer.due_in

    async def _turn(self, room: int, now: float) -> Poll:
        """A claim alone while work abounds, else (and once a second) all that belongs to a turn."""
        if self._busy and now < self._polled_at + REST_OF_TURN:
            jobs = await self._store.claim(room, self._share.open_types(), self._lease, self._share.room())
            if len(jobs) == room:
                return Poll(jobs, 0, None)
            self._busy = False
            if jobs:
                return Poll(jobs, 0, timedelta(0))
        self._polled_at = now
        answer = await self._store.poll(room, self._share.open_types(), self._lease, self._share.room())
        self._busy = len(answer.jobs) == room
        return answer

    def _start(self, jobs: Sequence[Job], leased_at: float) -> None:
        runs = [Run(job, self._handlers[job.type], leased_at, self) for job in jobs]
        self._runs.update(runs)
        for job in jobs:
            self._share.began(job.type)
        self._slots.start(runs)

    async def extend(self, run: Run, lease: timedelta | None) -> bool:
        """Extends a run's lease at once; false when the job is not this worker's any more."""
        return bool(
            await self._store.extend([run.held], self._lease if lease is None else checks.lease("lease", lease))
        )

    async def complete(self, run: Run, connection: object) -> None:
        """Completes a run's job in its handler's transaction; `LeaseLost` when it is not this worker's any more."""
        if not await self._store.complete([run.held], connection=connection):
            raise LeaseLost(f"job {run.job.id}: attempt {run.job.attempts} does not hold it any more")

    def _finished(self, run: Run, outcome: Outcome) -> None:
        self._runs.discard(run)
        self._share.ended(run.job.type)
        self._last_outcome = outcome
        if not isinstance(outcome, Lost | Settled):
            self._recorder.put(run.held, outcome)
        self._room_freed.set()

    def give_up(self, run: Run) -> None:
        """Leaves a run behind whose handler would not stop."""
        logger.error(
            "handler would not stop and is left behind (%s)",
            run.why.value if run.why else "?",
            extra={"job_id": str(run.job.id), "job_type": run.job.type, "attempt": run.job.attempts},
        )
        self._abandoned.add(run)
        if run.task is not None:
            run.task.add_done_callback(lambda _: self._abandoned.discard(run))
            # Its loop would wait for it for ever when it closes: forget it there, as we have.
            asyncio._unregister_task(run.task)
        self._slots.give_up(run)

    @property
    def abandoned(self) -> int:
        """How many handlers were told to stop, would not, and still run."""
        return len(self._abandoned) + self._slots.threads.abandoned

    def _fail_if_exhausted(self) -> None:
        if self.abandoned > self._most_abandoned:
            raise WorkerExhausted(f"{self.abandoned} handlers would not stop; restart the process")

    async def _let_end(self, grace: timedelta) -> None:
        """Lets handlers end within the grace, stops the others, and records what it can."""
        if self._runs and grace:
            logger.info("stopping: %d jobs may go on for %.1f s", len(self._runs), grace.total_seconds())
        await self._until(lambda: not self._runs, grace)
        self._stop_runs()
        await self._until(lambda: not self._runs, timedelta(seconds=2))
        try:
            async with asyncio.timeout(5):
                await self._recorder.drain()
        except TimeoutError:
            logger.error("%d results could not be recorded; their leases will run out", self._recorder.backlog)

    async def _until(self, done: Callable[[], bool], timeout: timedelta) -> None:
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                while not done():
                    self._room_freed.clear()
                    await self._room_freed.wait()
        except TimeoutError:
            pass

    def _stop_runs(self) -> None:
        for run in list(self._runs):
            run.stop(Why.SHUTDOWN)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    def _ignore_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _pause(pause: float, due_in: timedelta | None) -> timedelta:
    """How long to sleep: the pause, spread, but not beyond the moment when something is due."""
    seconds = pause * (1 + clock.chance() / 4)
    if due_in is not None:
        seconds = min(seconds, max(due_in.total_seconds(), SHORTEST_POLL / 10))
    return timedelta(seconds=seconds)


async def _end(task: "asyncio.Task[None]") -> None:
    """Ends a task wherever it waits; what it raised before stays with it."""
    task.cancel()
    await asyncio.wait({task})
