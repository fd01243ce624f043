"""What a handler may know and ask while it runs."""

import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from marian_jobs import clock
from marian_jobs.cron import slot_of
from marian_jobs.job import Job
from marian_jobs.trace import NONE

logger = logging.getLogger("marian_jobs.handler")


class Context:
    """The job in the handler's hands: its attempt, its deadline, whether to stop, and a logger that names it.

    `resources` is what the worker's `lifespan` has yielded, the same object for every handler; `trace` the W3C trace
    context (`traceparent`) that the enqueuer has sent along, empty where it has not.
    """

    def __init__(
        self,
        job: Job,
        timeout: timedelta | None,
        extend: Callable[[timedelta | None], Awaitable[bool]],
        complete: Callable[[object], Awaitable[None]],
        resources: Any = None,
        trace: Mapping[str, str] = NONE,
    ) -> None:
        self.job = job
        self.resources = resources
        self.trace = trace
        self._complete = complete
        self._deadline = None if timeout is None else clock.monotonic() + timeout.total_seconds()
        self._extend = extend

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self.job.attempts

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure now ends the job."""
        return self.job.is_last_attempt

    @property
    def slot(self) -> datetime | None:
        """The moment of its schedule that this job was made for, in UTC; None for a job that no schedule made."""
        return slot_of(self.job.idempotency_key)

    @property
    def time_left(self) -> timedelta | None:
        """How long until the handler's timeout; None without one, never negative."""
        if self._deadline is None:
            return None
        return timedelta(seconds=max(0.0, self._deadline - clock.monotonic()))

    @property
    def should_stop(self) -> bool:
        """Whether the run is pointless: the job was cancelled or its lease lost, it timed out, or the worker stops."""
        return self._stopping.is_set()

    def wait_stop(self, timeout: timedelta) -> bool:
        """For plain functions: sleeps up to `timeout`; true, and at once, when the handler should stop."""
        return self._stopping.wait(timeout.total_seconds())

    async def extend(self, lease: timedelta | None = None) -> bool:
        """Extends the lease at once (the worker does so by itself in time); false when the job is no longer ours."""
        return await self._extend(lease)

    async def complete(self, connection: object) -> None:
        """Completes the job in the caller's transaction (psycopg): its result and the handler's writes commit together.

        The last thing a handler does before it commits. Raises `LeaseLost` when the job is not ours any more, so that
        the transaction rolls back; a job whose transaction was not committed is started again when its lease ends.
        """
        await self._complete(connection)

    @cached_property
    def logger(self) -> "logging.LoggerAdapter[Any]":
        """A logger whose records carry the job's id, type and attempt."""
        return logging.LoggerAdapter(logger, names(self.job))

    @cached_property
    def _stopping(self) -> threading.Event:
        return threading.Event()

    def stop(self) -> None:
        """Tells the handler that it should stop."""
        self._stopping.set()


def names(job: Job) -> dict[str, Any]:
    """What a log record says of a job: its id, type and attempt."""
    return {"job_id": str(job.id), "job_type": job.type, "attempt": job.attempts}
