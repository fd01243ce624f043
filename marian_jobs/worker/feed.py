"""The feed: claims jobs for the free slots, and sleeps when there is nothing to claim."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from marian_jobs import clock
from marian_jobs.errors import StoreUnavailable
from marian_jobs.job import Job
from marian_jobs.store import Alarm, Poll, Store
from marian_jobs.worker.frontier import Frontier
from marian_jobs.worker.outage import LONGEST, SHORTEST, Outage
from marian_jobs.worker.share import Share

logger = logging.getLogger("marian_jobs.worker")

SHORTEST_POLL = 0.05
REST_OF_TURN = 1.0
LISTENING_POLL = timedelta(seconds=10)


class Slots(Protocol):
    """For whom the feed claims: the worker, with its slots and what waits to be recorded."""

    def room(self) -> int:
        """How many jobs may be claimed now."""

    def is_idle(self) -> bool:
        """Whether nothing runs and everything is recorded."""

    def start(self, jobs: Sequence[Job], leased_at: float) -> None:
        """Runs the jobs, leased not before the monotonic moment `leased_at`."""

    def reclaimed(self, count: int) -> None:
        """Hears of expired leases that were found, whosever they were."""


class Feed:
    """Keeps the slots full. `freed` is set by the worker whenever there may be more room."""

    def __init__(
        self,
        store: Store,
        slots: Slots,
        share: Share,
        outage: Outage,
        *,
        concurrency: int,
        lease: timedelta,
        poll: timedelta,
        freed: asyncio.Event,
    ) -> None:
        self._store = store
        self._slots = slots
        self._share = share
        self._outage = outage
        self._concurrency = concurrency
        self._lease = lease
        self._poll = poll
        self._freed = freed
        self._busy = False
        self._rang = False
        self._frontier = Frontier()
        self._polled_at = 0.0
        self.asked_at: float | None = None  # monotonic; None while no answer is waited for

    async def serve(self, types: Sequence[str], stopped: Callable[[], bool], *, drain: bool) -> None:
        """Claims until `stopped`, or with `drain` until nothing is due and nothing runs."""
        alarm = self._store.alarm(types)
        if not alarm.can_ring:
            logger.info("this store cannot wake the worker: it looks for work every %g s", self._poll.total_seconds())
        pause = SHORTEST_POLL
        try:
            while not stopped():
                self._freed.clear()  # before looking, so that what is freed while we look is not missed
                if (room := await self._settled_room()) <= 0:
                    await alarm.disarm()
                    await self._freed.wait()
                    continue
                jobs, due_in = await self._claim(room)
                if jobs:
                    pause = SHORTEST_POLL
                if len(jobs) == room:
                    continue
                if drain and not jobs and self._slots.is_idle():
                    return
                if await alarm.arm():
                    continue
                longest = (LISTENING_POLL if alarm.rings else self._poll).total_seconds()
                self._rang = await self._rest(alarm, _pause(min(pause, longest), due_in))
                if self._rang:
                    pause = SHORTEST_POLL
                elif not jobs:
                    pause = min(pause * 2, longest)
        finally:
            await alarm.close()

    async def _rest(self, alarm: Alarm, pause: timedelta) -> bool:
        """Sleeps until there may be work: true when the alarm rang, or a type that was at its limit has room again."""
        closed = self._share.closed
        if not closed:
            return await alarm.wait(pause)
        end = clock.monotonic() + pause.total_seconds()
        while (left := end - clock.monotonic()) > 0:
            if await alarm.wait(timedelta(seconds=min(left, SHORTEST_POLL))):
                return True
            if self._share.closed < closed:
                return True
        return False

    async def _settled_room(self) -> int:
        """The room, once it has stopped growing or half the slots are free: quick jobs end by the dozen, and are best
        replaced by the hundred; slow ones end alone, and are replaced at once."""
        room = self._slots.room()
        while 0 < room < self._concurrency // 2:
            await asyncio.sleep(0)
            if (grown := self._slots.room()) <= room:
                break
            room = grown
        return room

    async def _claim(self, room: int) -> tuple[Sequence[Job], timedelta | None]:
        pause = SHORTEST
        self.asked_at = clock.monotonic()
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
            self.asked_at = None
            if answer.reclaimed:
                logger.warning("reclaimed %d expired leases", answer.reclaimed)
                self._slots.reclaimed(answer.reclaimed)
            self._slots.start(answer.jobs, asked_at)
            return answer.jobs, answer.due_in

    async def _turn(self, room: int, now: float) -> Poll:
        """A claim alone when the alarm rang and while work abounds, else, and once a second, a whole turn."""
        if self._rang or (self._busy and now < self._polled_at + REST_OF_TURN):
            jobs = await self._store.claim(
                room, self._share.open_types(), self._lease, self._share.room(), self._frontier.floors()
            )
            if len(jobs) == room:
                self._frontier.note(jobs)
                return Poll(jobs, 0, None)
            self._busy = self._rang = False
            if jobs:
                return Poll(jobs, 0, timedelta(0))
        self._polled_at = now
        answer = await self._store.poll(room, self._share.open_types(), self._lease, self._share.room())
        self._busy = len(answer.jobs) == room
        if not self._busy:
            self._frontier.forget()
        return answer


def _pause(pause: float, due_in: timedelta | None) -> timedelta:
    """How long to sleep: the pause, spread, but not beyond the moment when something is due."""
    seconds = pause * (1 + clock.chance() / 4)
    if due_in is not None:
        seconds = min(seconds, max(due_in.total_seconds(), SHORTEST_POLL / 10))
    return timedelta(seconds=seconds)
