"""Outcomes on their way into the store: in batches that form by themselves.

While one batch is being recorded the next outcomes gather; an outcome that comes alone is recorded at once, a thousand
that come together cost one call. So nothing lingers, and the busier it gets the larger the batches.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from marian_jobs.errors import MarianError, StoreUnavailable
from marian_jobs.job import Held
from marian_jobs.store import Failure, Store
from marian_jobs.worker.outage import Outage
from marian_jobs.worker.outcomes import Failed, Outcome, Released, Succeeded

logger = logging.getLogger("marian_jobs.worker")

LARGEST_BATCH = 500


class Recorder:
    """Records outcomes, and calls `recorded` after each batch, and `refused` for each attempt that came too late.

    A batch that the store refuses for good is told and dropped; its leases run out.
    """

    def __init__(
        self, store: Store, outage: Outage, recorded: Callable[[], None], refused: Callable[[Held], None]
    ) -> None:
        self._store = store
        self._recorded = recorded
        self._refused = refused
        self._outage = outage
        self._waiting: list[tuple[Held, Outcome]] = []
        self._recording = 0
        self._wake = asyncio.Event()
        self._done = asyncio.Event()

    @property
    def backlog(self) -> int:
        """How many outcomes are not recorded yet."""
        return len(self._waiting) + self._recording

    def put(self, held: Held, outcome: Outcome) -> None:
        """Takes an outcome to be recorded as soon as may be."""
        self._waiting.append((held, outcome))
        self._wake.set()

    async def serve(self) -> None:
        """Records until cancelled, riding out outages."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._outage.ride_out(self.flush)
            self._done.set()

    async def drain(self) -> None:
        """Returns when everything taken so far is recorded."""
        while self.backlog:
            self._done.clear()
            await self._done.wait()

    async def flush(self) -> None:
        """Records one batch; on `StoreUnavailable` it is kept, to be sent again, which is harmless."""
        batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
        self._recording = len(batch)
        try:
            await self._record(batch)
        except StoreUnavailable:
            self._waiting = batch + self._waiting
            raise
        except MarianError as e:
            logger.error("results refused by the store, their leases will run out: %s", e)
        finally:
            self._recording = 0
            self._recorded()

    async def _record(self, batch: Sequence[tuple[Held, Outcome]]) -> None:
        succeeded: list[Held] = []
        failed: list[Failure] = []
        released: defaultdict[timedelta, list[Held]] = defaultdict(list)
        for held, outcome in batch:
            match outcome:
                case Succeeded():
                    succeeded.append(held)
                case Failed(error, retry_in, dead):
                    failed.append(Failure(held.id, held.attempt, error, retry_in, dead))
                case Released(delay):
                    released[delay].append(held)
        if succeeded:
            accepted = await self._store.complete(succeeded)
            if len(accepted) < len(succeeded):
                self._tell_refused("complete", set(succeeded) - accepted)
        if failed:
            known = {job.id for job in await self._store.fail(failed)}
            self._tell_refused("fail", {Held(f.id, f.attempt) for f in failed if f.id not in known})
        for delay, tokens in released.items():
            await self._store.release(tokens, delay)

    def _tell_refused(self, move: str, late: Iterable[Held]) -> None:
        for held in late:
            logger.warning(
                "late %s refused: the job has moved on",
                move,
                extra={"job_id": str(held.id), "attempt": held.attempt},
            )
            self._refused(held)
