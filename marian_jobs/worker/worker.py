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
from datetime import timedelta
from typing import Any, Literal, TypeVar
from uuid import UUID

from marian_jobs import checks, clock
from marian_jobs.backoff import Backoff
from marian_jobs.cron import LOOK_BACK, Schedule
from marian_jobs.errors import LeaseLost, MarianError
from marian_jobs.job import Job, JsonObject
from marian_jobs.machine import LEASE
from marian_jobs.store import MOST_CLAIMED, Store
from marian_jobs.worker.feed import Feed
from marian_jobs.worker.handlers import Function, Handlers
from marian_jobs.worker.keeper import Keeper
from marian_jobs.worker.life import Life, Lifespan, stopped_by_signals
from marian_jobs.worker.middleware import Middleware
from marian_jobs.worker.outage import Outage
from marian_jobs.worker.outcomes import Lost, Outcome, Settled
from marian_jobs.worker.recorder import Recorder
from marian_jobs.worker.run import Run, Why
from marian_jobs.worker.scheduler import Scheduler
from marian_jobs.worker.share import Share
from marian_jobs.worker.slots import Slots

logger = logging.getLogger("marian_jobs.worker")

F = TypeVar("F", bound=Function)


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

    `lifespan` makes an async context manager, entered before the first job and left after the last one: what it
    yields (a client, a model, a pool) is every handler's `context.resources`. `middleware` wraps every handler, the
    first outermost (see `Middleware`).
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
    ) -> None:
        self._store = store
        self._opened = False
        self._life = Life(lifespan)
        self.middlewares: list[Middleware] = []
        for each in middleware:
            self.middleware(each)
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
        self._scheduler = Scheduler(store, outage=self._outage)
        self._slots = Slots(concurrency, self._finished)
        self._feed = Feed(
            store,
            self,
            self._share,
            self._outage,
            concurrency=concurrency,
            lease=self._lease,
            poll=self._poll,
            freed=self._room_freed,
        )
        self._stopping = asyncio.Event()
        self._abandoned: set[Run] = set()
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

    def schedule(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str = "",
        payload: JsonObject | None = None,
        user_id: UUID | str | None = None,
        priority: int = 0,
        max_attempts: int = 3,
        look_back: timedelta = LOOK_BACK,
    ) -> Callable[[F], F]:
        """Has a job of the decorated handler's type made at each time of a cron expression (five fields, or six with
        the seconds first) in a time zone, once however many workers there are.

        A function that is no handler yet becomes the handler of the type that bears its name. `name` (default: the
        type) tells schedules apart; a slot missed within `look_back` is made up once. See `marian_jobs.cron.Schedule`.
        """

        def register(function: F) -> F:
            types = self._handlers.types_of(function)
            if not types:
                types = [function.__name__]
                self.handler(types[0])(function)
            for type in types:
                self._scheduler.add(
                    Schedule(
                        expression,
                        type,
                        tz=tz,
                        name=name or type,
                        payload={} if payload is None else payload,
                        user_id=user_id,
                        priority=priority,
                        max_attempts=max_attempts,
                        look_back=look_back,
                    )
                )
            return function

        return register

    def middleware(self, function: Middleware) -> Middleware:
        """Registers the decorated async function as middleware, inside those registered before."""
        if not callable(function):
            raise TypeError(f"middleware: expected a function of a context and call_next, got {function!r}")
        self.middlewares.append(function)
        return function

    async def tick(self) -> Tick:
        """Makes the jobs of due schedules, reclaims expired leases, runs at most one due job to its end and records
        it; returns what it did."""
        self._need_handlers()
        await self._open()
        await self._scheduler.turn(clock.utc_now())
        answer = await self._store.poll(1, self._handlers.types, self._lease)
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
        """Leaves the lifespan that `tick` has entered, and closes the store."""
        await self._life.leave()
        self._opened = False
        await self._store.close()

    @property
    def answered_at(self) -> float | None:
        """The monotonic moment at which the store last answered a look for work; None before the first answer."""
        return self._feed.answered_at

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
            await self._outage.ride_out(lambda: self._scheduler.turn(clock.utc_now()))
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
        run.tell(outcome)
        if not isinstance(outcome, Lost | Settled):
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
