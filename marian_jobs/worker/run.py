"""One run of one job: from the claim to the outcome, and whatever may stop it in between."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum
from typing import Any, Protocol

from marian_jobs import clock
from marian_jobs.errors import LeaseLost
from marian_jobs.failure import describe, presentable
from marian_jobs.job import Job
from marian_jobs.trace import detach
from marian_jobs.worker.context import Context, names
from marian_jobs.worker.handlers import Handler
from marian_jobs.worker.middleware import Middleware, wrapped
from marian_jobs.worker.outcomes import (
    LOST,
    SETTLED,
    SUCCEEDED,
    Dead,
    Failed,
    Outcome,
    Released,
    Retry,
    Snooze,
    name_of,
)
from marian_jobs.worker.processes import HandlerProcesses
from marian_jobs.worker.threads import DaemonThreads

logger = logging.getLogger("marian_jobs.worker")


class Why(Enum):
    """Why a run was told to stop."""

    TIMEOUT = "timeout"
    LOST = "its lease was lost"
    SHUTDOWN = "the worker stops"


PATIENCE = 0.5  # seconds a cancelled handler gets to end before it is left behind


class Home(Protocol):
    """Where a run lives: the worker."""

    def give_up(self, run: "Run") -> None:
        """The run's handler was told to stop and would not: its slot must go on without it."""

    @property
    def middlewares(self) -> Sequence[Middleware]:
        """What is wrapped around every handler, the first outermost."""

    @property
    def resources(self) -> Any:
        """What the worker's lifespan has yielded."""

    async def extend(self, run: "Run", lease: timedelta | None) -> bool:
        """Extends the run's lease; false when the job is not ours any more."""

    async def complete(self, run: "Run", connection: object) -> None:
        """Completes the run's job in the handler's transaction; `LeaseLost` when it is not ours any more."""


class Run:
    """A claimed job in this process, started or not yet. Lives in the event loop that performs it."""

    __slots__ = (
        "_context",
        "abandoned",
        "ended",
        "handler",
        "held",
        "home",
        "job",
        "leased_at",
        "settled",
        "started",
        "task",
        "trace",
        "why",
    )

    def __init__(self, job: Job, handler: Handler, leased_at: float, home: Home) -> None:
        self.job, self.trace = detach(job)
        self.held = job.held
        self.handler = handler
        self.home = home
        self.leased_at = leased_at  # monotonic, not after the database's own moment
        self.started = 0.0
        self.task: asyncio.Task[Any] | None = None
        self.why: Why | None = None
        self.settled = False
        self.abandoned = False
        self.ended = False
        self._context: Context | None = None

    @property
    def context(self) -> Context:
        """What the handler may know, made when it is first asked for."""
        if self._context is None:
            self._context = Context(
                self.job, self.handler.timeout, self._extend, self._complete, self.home.resources, self.trace
            )
            if self.why is not None:
                self._context.stop()
        return self._context

    @property
    def names(self) -> dict[str, Any]:
        """What a log record says of the job."""
        return names(self.job)

    @property
    def took(self) -> timedelta:
        """How long the handler has had; nothing before it is called."""
        return timedelta(seconds=clock.monotonic() - self.started if self.started else 0.0)

    async def _extend(self, lease: timedelta | None) -> bool:
        return await self.home.extend(self, lease)

    async def _complete(self, connection: object) -> None:
        await self.home.complete(self, connection)
        self.settled = True

    def stop(self, why: Why) -> None:
        """Asks the handler to stop: cancels an async one, raises the flag for any. The first reason stands."""
        if self.ended or self.why is not None:
            return
        self.why = why
        if self._context is not None:
            self._context.stop()
        if self.task is not None and (self.handler.runs_in != "thread" or why is not Why.LOST):
            self.task.cancel()
            self.task.get_loop().call_later(PATIENCE, self._abandon)

    def _abandon(self) -> None:
        if not self.ended:
            self.abandoned = True
            self.home.give_up(self)

    async def perform(self, task: "asyncio.Task[Any]", threads: DaemonThreads, processes: HandlerProcesses) -> Outcome:
        """The outcome, whatever the handler does; only the cancellation of `task`, the performer, passes through."""
        self.started = clock.monotonic()
        self.task = task
        timer = None
        if self.handler.timeout is not None:
            seconds = self.handler.timeout.total_seconds()
            timer = asyncio.get_running_loop().call_later(seconds, self.stop, Why.TIMEOUT)
        try:
            if self.why is not None:
                return self.stopped()
            if self.home.middlewares:
                await wrapped(self.home.middlewares, self.context, lambda: self._call(threads, processes))
            elif self.handler.runs_in == "loop":
                await self.handler.call(self)
            else:
                await self._call(threads, processes)
            if self.settled:
                return SETTLED
            return SUCCEEDED if self.why is None else self._returned()
        except BaseException as e:
            return self._judge(e)
        finally:
            if timer is not None:
                timer.cancel()
            if task.cancelling() and self.why is not None and not self.abandoned:
                await _absorb(task)

    async def _call(self, threads: DaemonThreads, processes: HandlerProcesses) -> Any:
        """What the handler returns; nothing of one that runs in a process of its own."""
        if self.handler.runs_in == "process":
            argument = self.handler.argument(self.job)
            return await processes.run(self.handler.function, argument, self.handler.memory_limit)
        if self.handler.runs_in == "loop":
            return await self.handler.call(self)
        result = await threads.run(self.handler.call, self)
        return await result if asyncio.iscoroutine(result) else result

    def _returned(self) -> Outcome:
        """A handler that returns although it was told to stop: a timeout stands, a shutdown does not matter."""
        return SUCCEEDED if self.why is Why.SHUTDOWN else self.stopped()

    def _judge(self, error: BaseException) -> Outcome:
        if isinstance(error, asyncio.CancelledError):
            if self.why is not None:
                return self.stopped()
            if self.task is not None and self.task.cancelling():
                raise error  # not the handler's: the performer itself is being cancelled
        if self.why is Why.TIMEOUT:
            return self.stopped()
        if isinstance(error, LeaseLost):
            return LOST
        if isinstance(error, Snooze):
            return Released(error.delay)
        if isinstance(error, Dead):
            return Failed(presentable(str(error)), dead=True)
        if isinstance(error, Retry):
            return Failed(presentable(str(error)), retry_in=self._delay() if error.after is None else error.after)
        logger.warning(
            "job failed: %s",
            type(error).__name__,
            exc_info=error,
            extra=self.names,
        )
        return Failed(describe(error), retry_in=self._delay())

    def stopped(self) -> Outcome:
        """What becomes of a run that was told to stop."""
        if self.why is Why.LOST:
            return LOST
        if self.why is Why.SHUTDOWN:
            return Released()
        seconds = (self.handler.timeout or timedelta(0)).total_seconds()
        return Failed(f"timeout: the handler took longer than {seconds:g} s", retry_in=self._delay())

    def tell(self, outcome: Outcome) -> None:
        """Logs what became of the job, and how long the handler took."""
        if logger.isEnabledFor(logging.INFO):
            seconds = round(self.took.total_seconds(), 6)
            logger.info("job %s", name_of(outcome, self.job), extra={**self.names, "duration": seconds})

    def _delay(self) -> timedelta:
        return self.handler.backoff.spread_delay(self.job.attempts)


async def _absorb(task: "asyncio.Task[Any]") -> None:
    """Takes back a cancellation that was meant for the handler, delivered or not, so that its task can go on."""
    while task.cancelling():
        task.uncancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # a cancellation still on its way arrives here
