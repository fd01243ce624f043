"""Keeps the leases of long runs alive, from a thread and a connection of its own.

A handler that blocks the event loop, or a pool that is busy, must not let a lease run out. So the extension shares
neither: a thread looks over the runs a few times per lease and extends, in one statement, all whose lease was last
granted a third of its length ago. A job that is shorter than that costs nothing. What is not held any more (reclaimed,
cancelled) is told to the run, whose handler is then stopped. A run whose handler has returned is left alone, and one
that has completed its job in a transaction of its own is not stopped: once that is committed there is nothing to hold.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta

from marian_jobs import clock
from marian_jobs.errors import MarianError, StoreUnavailable
from marian_jobs.store import Store
from marian_jobs.worker.outage import Outage
from marian_jobs.worker.run import Run, Why

logger = logging.getLogger("marian_jobs.worker")


class Keeper:
    """Extends the leases of `runs()` between `start` and `stop`; both are called from the runs' own loop."""

    def __init__(self, store: Store, lease: timedelta, runs: Callable[[], Sequence[Run]]) -> None:
        self._store = store
        self._lease = lease
        self._runs = runs
        self._outage = Outage()
        self._stopping: Future[None] = Future()

    @property
    def answered_at(self) -> float | None:
        """The monotonic moment at which the store last answered an extension; None before the first answer."""
        return self._outage.answered_at

    def start(self) -> None:
        """Starts the thread, which connects only when there is a lease to extend."""
        stopping = self._stopping = Future()  # each thread's own: the next start must not keep the last one's alive
        loop = asyncio.get_running_loop()
        threading.Thread(
            target=lambda: asyncio.run(self._serve(loop, stopping)), name="marian-jobs-leases", daemon=True
        ).start()

    def stop(self) -> None:
        """Asks the thread to end; it is a daemon and not waited for."""
        if not self._stopping.done():
            self._stopping.set_result(None)

    async def _serve(self, home: asyncio.AbstractEventLoop, stopping: "Future[None]") -> None:
        stopped = asyncio.wrap_future(stopping)
        store = self._store.for_another_loop()
        opened = False
        pause = min(1.0, self._lease.total_seconds() / 6)
        try:
            while not (await asyncio.wait({stopped}, timeout=pause))[0]:
                due = self._due(pause)
                if not due:
                    continue
                try:
                    if not opened:
                        await store.open()
                        opened = True
                    await self._extend(store, due, home)
                    self._outage.ended()
                except StoreUnavailable as e:
                    self._outage.began(e)
                except MarianError as e:
                    logger.error("leases could not be extended: %s", e)
        finally:
            if opened:
                await store.close()

    def _due(self, pause: float) -> list[Run]:
        """The runs due for an extension now or before the thread looks again: one statement serves them all."""
        before = clock.monotonic() - self._lease.total_seconds() / 3
        runs = [run for run in self._runs() if not run.ended and run.why is None]
        if not any(run.leased_at <= before for run in runs):
            return []
        return [run for run in runs if run.leased_at <= before + pause]

    async def _extend(self, store: Store, due: Sequence[Run], home: asyncio.AbstractEventLoop) -> None:
        asked_at = clock.monotonic()
        kept = await store.extend([run.held for run in due], self._lease)
        for run in due:
            if run.held in kept or run.settled:
                run.leased_at = asked_at
            elif not run.ended:
                home.call_soon_threadsafe(_lose, run)


def _lose(run: Run) -> None:
    if not (run.ended or run.settled) and run.why is None:
        logger.warning(
            "lease lost: the job was cancelled or reclaimed; stopping its handler",
            extra={"job_id": str(run.job.id), "job_type": run.job.type, "attempt": run.job.attempts},
        )
        run.stop(Why.LOST)
