"""Makes the jobs of schedules when their slots come. Every worker does: a slot's job has one id, so there is one.

This process's clock only says which slots have come; each job is due at its slot by the store's clock. A clock that is
fast makes a job early, and it still waits for its slot; one that is slow makes it late, unless another worker has.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

from marian_jobs import clock
from marian_jobs.cron import Schedule, due_slots, next_slot
from marian_jobs.errors import KeyConflict, MarianError
from marian_jobs.store import Store
from marian_jobs.worker.outage import Outage

logger = logging.getLogger("marian_jobs.worker")

LONGEST_WAIT = timedelta(seconds=30)  # so that a clock that was set, or a machine that slept, is noticed


class Scheduler:
    """The schedules of one worker; `now` is any function that returns an aware datetime, `sleep` lets seconds go by."""

    def __init__(
        self,
        store: Store,
        schedules: Iterable[Schedule] = (),
        now: clock.Clock = clock.utc_now,
        outage: Outage | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._now = now
        self._sleep = sleep
        self._outage = outage or Outage()
        self._schedules: dict[str, Schedule] = {}
        self._done_until: dict[str, datetime] = {}
        for schedule in schedules:
            self.add(schedule)

    def __bool__(self) -> bool:
        return bool(self._schedules)

    def add(self, schedule: Schedule) -> None:
        """Takes a schedule on; `ValueError` where another one has its name, by which slots are told apart."""
        if schedule.name in self._schedules:
            raise ValueError(f"schedule: there is one named {schedule.name!r} already; give the second a name=")
        self._schedules[schedule.name] = schedule

    @property
    def schedules(self) -> list[Schedule]:
        """The schedules taken on."""
        return list(self._schedules.values())

    def next_slot(self) -> datetime | None:
        """The first slot after now; None without schedules."""
        now = self._now()
        coming = [next_slot(schedule, now) for schedule in self.schedules]
        return min((slot for slot in coming if slot is not None), default=None)

    async def turn(self, now: datetime | None = None) -> timedelta:
        """Makes the jobs of all slots that have come by `now`; returns how long until the next one, at most 30 s.

        When the store refuses or cannot be reached, the slots not yet made stay for the next turn.
        """
        now = self._now() if now is None else now
        for name, schedule in self._schedules.items():
            for slot in due_slots(schedule, self._done_until.get(name), now):
                await self._make(schedule, slot)
                self._done_until[name] = slot
            self._done_until[name] = now
        coming = [next_slot(schedule, now) for schedule in self._schedules.values()]
        return min([LONGEST_WAIT, *(slot - now for slot in coming if slot is not None)])

    async def serve(self) -> None:
        """Makes each slot's job when it comes, until cancelled; rides out outages of the store, and tells what the
        store refuses: the slots stay to be made."""
        while self._schedules:
            try:
                wait = await self._outage.ride_out(self.turn)
            except MarianError as e:
                logger.error("jobs of schedules refused by the store: %s", e)
                wait = LONGEST_WAIT
            await self._sleep(wait.total_seconds())

    async def _make(self, schedule: Schedule, slot: datetime) -> None:
        try:
            await self._store.enqueue([schedule.job(slot)])
        except KeyConflict:
            # A worker of another version has made this slot's job, for another type or user. It stands.
            logger.warning("schedule %s: the job of %s was made differently elsewhere", schedule.name, slot.isoformat())
