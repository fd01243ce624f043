"""The worker: claims jobs, runs their handlers, records what became of them.

    feed ──claims──▶ slots ──outcomes──▶ recorder ──▶ store
      ▲                                     │
      └────────── room for more ◀───────────┘        keeper: leases of long runs, from a thread of its own
                                                     scheduler: makes the jobs of schedules when they are due

`tick` is one turn of this for one job, by hand; `run` is all of it until stopped.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from marian_jobs import checks, clock
from marian_jobs.errors import LeaseLost, MarianError
from marian_jobs.job import Job
from marian_jobs.machine import LEASE
from marian_jobs.store import MOST_CLAIMED, Store
from marian_jobs.worker.duties import Duties
from marian_jobs.worker.feed import LISTENING_POLL, Feed
from marian_jobs.worker.keeper import Keeper
from marian_jobs.worker.life import Life, Lifespan, stopped_by_signals
from marian_jobs.worker.middleware import Middleware
from marian_jobs.worker.outage import Outage
from marian_jobs.worker.outcomes import LOST, SETTLED, Outcome
from marian_jobs.worker.recorder import Recorder
from marian_jobs.worker.run import Run, Why
from marian_jobs.worker.scheduler import Scheduler
from marian_jobs.worker.share import Share
from marian_jobs.worker.slots import Slots
from marian_jobs.worker.vitals import Vitals

logger = logging.getLogger("marian_jobs.worker")


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick did: how many leases it reclaimed, and the job it ran with its outcome, or None."""

    reclaimed: int
    job: Job | None
    outcome: Outcome | None


class WorkerExhausted(MarianError):
    """Too many handlers would not stop when told to: the process should be restarted by its supervisor."""


class Worker(Duties):
    """Runs handlers for the jobs of a store. Claims no more than it has free slots, and only types it has handlers for.

    `concurrency` is the number of slots; `lease` how long a job is this worker's without being extended; `poll` the
    longest pause between two looks for work where the store cannot wake it (with LISTEN it looks every 10 s besides
    being woken); `grace` how long handlers may go on after a stop was asked for; `most_abandoned` how many handlers
    that would not stop are left behind before `run` gives up with `WorkerExhausted`.

    `lifespan` makes an async context manager, entered before the first job and left after the last one: what it
    yields (a client, a model, a pool) is every handler's `context.resources`. `middleware` wraps every handler, the
    first outermost (see `Middleware`). `now` is the clock by which the slots of schedules come; the store's decides all
    else.
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
        lifespan: Lifespan | None = None,
        middleware: Sequence[Middleware] = (),
        now: clock.Clock = clock.utc_now,
    ) -> None:
        self._outage = Outage()
        super().__init__(Scheduler(store, now=now, outage=self._outage), middleware)
        self._store = store
        self._opened = False
        self._life = Life(lifespan)
        self._concurrency = checks.integer("concurrency", concurrency, 1, 100_000)
        self._lease = checks.lease("lease", lease)
        self._poll = checks.lease("poll", poll)
        self._grace = checks.duration("grace", grace)
        self._most_abandoned = checks.integer("most_abandoned", most_abandoned, 0, 100_000)
        self._share = Share(self._handlers)
        self._runs: set[Run] = set()
        self._room_freed = asyncio.Event()
        self._recorder = Recorder(store, self._outage, recorded=self._room_freed.set, refused=self._observers.refused)
        self._stopping = asyncio.Event()
        self._abandoned: set[Run] = set()
        self._last_outcome: Outcome | None = None
        self._set_up()

    def _set_up(self) -> None:
        """Makes the parts that the options size."""
        self._keeper = Keeper(self._store, self._lease, lambda: list(self._runs))
        self._slots = Slots(self._concurrency, self._finished)
        self._feed = Feed(
            self._store,
            self,
            self._share,
            self._outage,
            concurrency=self._concurrency,
            lease=self._lease,
            poll=self._poll,
            freed=self._room_freed,
        )

    def tune(
        self,
        *,
        concurrency: int | None = None,
        lease: timedelta | None = None,
        poll: timedelta | None = None,
        grace: timedelta | None = None,
    ) -> None:
        """Changes options before the worker runs; `None` leaves one as it is. `MarianError` once it has run."""
        if self._opened:
            raise MarianError("the worker has run already: tune it before")
        self._concurrency, self._lease, self._poll, self._grace = (  # all of them, or none
            self._concurrency if concurrency is None else checks.integer("concurrency", concurrency, 1, 100_000),
            self._lease if lease is None else checks.lease("lease", lease),
            self._poll if poll is None else checks.lease("poll", poll),
            self._grace if grace is None else checks.duration("grace", grace),
        )
        self._set_up()

    def over(self, store: Store, *, now: clock.Clock = clock.utc_now) -> "Worker":
        """A worker that does the same over another store: what is registered so far, and the options."""
        other = Worker(
            store,
            concurrency=self._concurrency,
            lease=self._lease,
            poll=self._poll,
            grace=self._grace,
            most_abandoned=self._most_abandoned,
            lifespan=self._life.lifespan,
            now=now,
        )
        other.take_on(self)
        return other

    def next_slot(self) -> datetime | None:
        """When the next slot of its schedules comes; None without schedules."""
        return self._scheduler.next_slot()

    async def tick(self) -> Tick:
        """Makes the jobs of due schedules, reclaims expired leases, runs at most one due job to its end and records
        it; returns what it did."""
        self._need_handlers()
        await self._open()
        await self._scheduler.turn()
        answer = await self._store.poll(1, self._handlers.types, self._lease)
        if answer.reclaimed:
            self.reclaimed(answer.reclaimed)
        if not answer.jobs:
            return Tick(answer.reclaimed, None, None)
        job = answer.jobs[0]
        self._keeper.start()
        try:
            self.start([job], clock.monotonic())
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
        with stopped_by_signals(self.stop, listen=signals):
            stopping = asyncio.create_task(self._stopping.wait())
            opening = asyncio.create_task(self._outage.ride_out(self._open), name="marian-jobs-open")
            try:
                await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if opening.done():
                    await opening
                    await self._run(drain, stopping)
            finally:
                await _end(opening)
                await self._life.leave()
                stopping.cancel()
                self._stopping.clear()
        self._fail_if_exhausted()

    async def _run(self, drain: bool, stopping: "asyncio.Task[Any]") -> None:
        recording = asyncio.create_task(self._recorder.serve(), name="marian-jobs-recorder")
        scheduling = asyncio.create_task(self._scheduler.serve(), name="marian-jobs-scheduler")
        feeding = asyncio.create_task(self._serve_feed(drain), name="marian-jobs-feed")
        self._keeper.start()
        try:
            ends = {feeding, stopping, scheduling} if self._scheduler else {feeding, stopping}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await _end(feeding)
            await _end(scheduling)
            await self._let_end(self._grace)
        except asyncio.CancelledError:
            if task := asyncio.current_task():
                task.uncancel()  # else the time limits below would take the cancellation for their own
            await _end(feeding)
            # Whoever cancels us will not wait, but nothing is kept until its lease ends.
            await self._let_end(timedelta(0))
            raise
        finally:
            self._keeper.stop()
            for task in (recording, scheduling, feeding):
                task.cancel()
            await self._slots.close()
        for task in (feeding, scheduling):
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    def stop(self) -> None:
        """Asks `run` to stop; called a second time, at once. For other threads: `loop.call_soon_threadsafe`."""
        if self._stopping.is_set():
            self._stop_runs()
        self._stopping.set()

    async def close(self) -> None:
        """Leaves the lifespan that `tick` has entered, ends what it runs handlers in, and closes the store."""
        await self._life.leave()
        await self._slots.close()
        self._opened = False
        await self._store.close()

    @property
    def answered_at(self) -> float | None:
        """The monotonic moment at which the store last answered; None before the first answer."""
        moments = (self._outage.answered_at, self._keeper.answered_at)
        return max((moment for moment in moments if moment is not None), default=None)

    @property
    def store(self) -> Store:
        """Where its jobs are."""
        return self._store

    def vitals(self) -> Vitals:
        """How the worker is; may be asked from any thread."""
        longest_pause = max(LISTENING_POLL, self._poll, self._lease / 3)
        return Vitals(
            answered_at=self.answered_at,
            asked_at=self._feed.asked_at,
            longest_silence=2 * longest_pause + timedelta(seconds=5),
            running=len(self._runs),
            concurrency=self._concurrency,
            abandoned=self.abandoned,
            is_stopping=self._stopping.is_set(),
        )

    async def _open(self) -> None:
        if not self._opened:
            await self._store.open()
            self._opened = True
        await self._life.enter()

    @property
    def resources(self) -> Any:
        """What the lifespan has yielded; None outside of it."""
        return self._life.resources

    async def _serve_feed(self, drain: bool) -> None:
        if drain:
            await self._outage.ride_out(self._scheduler.turn)
        await self._feed.serve(self._handlers.types, self._should_end, drain=drain)

    def _should_end(self) -> bool:
        self._fail_if_exhausted()
        return self._stopping.is_set()

    def room(self) -> int:
        """How many jobs may be claimed now: free slots, as long as what is done gets recorded."""
        unrecorded = self._recorder.backlog
        return min(MOST_CLAIMED, self._concurrency - len(self._runs) - max(0, unrecorded - self._concurrency))

    def is_idle(self) -> bool:
        """Whether nothing runs and everything is recorded."""
        return not self._runs and not self._recorder.backlog

    def _need_handlers(self) -> None:
        if not self._handlers:
            raise MarianError("the worker has no handlers: register one with @worker.handler(TYPE)")

    def start(self, jobs: Sequence[Job], leased_at: float) -> None:
        """Runs claimed jobs, leased not before the monotonic moment `leased_at`."""
        runs = [Run(job, self._handlers[job.type], leased_at, self) for job in jobs]
        self._runs.update(runs)
        self._share.began([job.type for job in jobs])
        if logger.isEnabledFor(logging.DEBUG):
            for run in runs:
                logger.debug("job claimed", extra=run.names)
        if self._observers:
            for run in runs:
                self._observers.began(run.job)
        self._slots.start(runs)

    def reclaimed(self, count: int) -> None:
        """Hears of expired leases that were found, whosever they were."""
        self._observers.reclaimed(count)

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
        run.tell(outcome)
        if self._observers:
            self._observers.ended(run.job, outcome, run.took)
        if outcome is not LOST and outcome is not SETTLED:
            self._recorder.put(run.held, outcome)
        self._room_freed.set()

    def give_up(self, run: Run) -> None:
        """Leaves a run behind whose handler would not stop."""
        logger.error(
            "handler would not stop and is left behind (%s)",
            run.why.value if run.why else "?",
            extra=run.names,
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


async def _end(task: "asyncio.Task[Any]") -> None:
    """Ends a task wherever it waits; what it raised before stays with it."""
    task.cancel()
    await asyncio.wait({task})
