"""For tests of your own handlers: a queue in memory, whose time you move.

    async def test_an_invoice_is_sent_again_when_the_mail_server_is_away():
        queue = VirtualQueue()
        await queue.enqueue("send", {"invoice": 1})
        ran = await queue.run_until_empty(worker)   # your own worker, with its handlers, over this queue
        assert [run.outcome for run in ran] == [...]

No database, no waiting: when nothing is due, the clock moves to where something is. The queue's clock decides on
`run_after`, delays, retries, leases, rates and the slots of schedules. Handlers run for real, one after the other, and
what they take and their `timeout=` is real time.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from marian_jobs import checks, clock
from marian_jobs.errors import MarianError
from marian_jobs.job import Job, Status
from marian_jobs.queue import Queue
from marian_jobs.stores.memory import MemoryStore
from marian_jobs.worker import Outcome, Worker

MOST_TURNS = 10_000
_LEASE = timedelta(seconds=1)  # for a poll that claims nothing


class TooManyTurns(MarianError):
    """The jobs do not end: they make each other, or put themselves off, without end."""


class VirtualClock:
    """A clock that stands still until it is moved, and never goes back; called, it says its time."""

    def __init__(self, start: datetime) -> None:
        self._now = checks.instant("start", start)

    def __call__(self) -> datetime:
        return self._now

    def advance(self, by: timedelta) -> datetime:
        """Moves on by a while and returns the new time; `ValueError` for a negative one."""
        return self.move_to(self._now + checks.duration("by", by))

    def move_to(self, moment: datetime) -> datetime:
        """Moves to a moment and returns it; `ValueError` for one that is past."""
        moment = checks.instant("moment", moment)
        if moment < self._now:
            raise ValueError(f"moment: {moment.isoformat()} is past, it is {self._now.isoformat()}")
        self._now = moment
        return moment


class Ran(NamedTuple):
    """One attempt: the job as it was claimed, and what became of it (`Succeeded()`, `Failed(…)`, `Released(…)`)."""

    job: Job
    outcome: Outcome


class VirtualQueue(Queue):
    """A `Queue` in memory with a clock of its own, which starts at `start` (default: the present, in whole seconds).

    `queue.store` is its store, for code that takes one; `queue.clock` its clock.
    """

    def __init__(self, *, start: datetime | None = None, largest_payload: int = checks.LARGEST_PAYLOAD) -> None:
        self.clock = VirtualClock(clock.utc_now().replace(microsecond=0) if start is None else start)
        self.store = MemoryStore(clock=self.clock)
        super().__init__(self.store, largest_payload=largest_payload)

    def worker(self, **options: Any) -> Worker:
        """A worker of this queue, to register handlers with; options as `Worker`'s."""
        return Worker(self.store, now=self.clock, **options)

    async def jobs(self, *, type: str | None = None, status: Status | str | None = None) -> list[Job]:
        """The jobs there are, of a type, in a state, in the order in which they were made."""
        wanted = None if status is None else Status(status)
        return [
            job
            for job in self.store.listed()
            if (type is None or job.type == type) and (wanted is None or job.status is wanted)
        ]

    async def run_until_empty(self, worker: Worker, *, most_turns: int = MOST_TURNS) -> list[Ran]:
        """Runs jobs one by one until the worker has none left, moving the clock to when the next is due; says what ran.

        Any worker will do, whatever its store: its handlers, schedules, middleware and lifespan are used over this
        queue. Jobs of types that it does not know, or that are paused, are left. Slots of schedules come as time goes
        by; it does not wait for them. Raises `TooManyTurns` where after `most_turns` there are still jobs left.
        """
        return await self._work(worker, None, most_turns)

    async def run_for(self, duration: timedelta, worker: Worker, *, most_turns: int = MOST_TURNS) -> list[Ran]:
        """Lets time go by, with a worker that runs what comes due, slots of its schedules too; says what ran.

        As with any worker that starts, the latest slot before now is made up, if it lies within its `look_back`.
        """
        return await self._work(worker, self.clock() + checks.duration("duration", duration), most_turns)

    async def _work(self, worker: Worker, until: datetime | None, most_turns: int) -> list[Ran]:
        # One of its own each time: it may be another event loop that runs us now.
        mine = worker.over(self.store, now=self.clock)
        ran: list[Ran] = []
        try:
            for _ in range(most_turns):
                tick = await mine.tick()
                if tick.job is not None and tick.outcome is not None:
                    ran.append(Ran(tick.job, tick.outcome))
                elif (coming := await self._coming(mine, until)) is not None:
                    self.clock.move_to(coming)
                else:
                    self.clock.move_to(until or self.clock())
                    return ran
        finally:
            await mine.close()
        raise TooManyTurns(await self._unfinished(most_turns, ran))

    async def _coming(self, worker: Worker, until: datetime | None) -> datetime | None:
        """When there is more to do; None where nothing is left, or nothing before `until`."""
        now, slot = self.clock(), worker.next_slot()
        paused = {limit.type for limit in await self.store.limits() if limit.paused}
        due_in = (await self.store.poll(0, [type for type in worker.types if type not in paused], _LEASE)).due_in
        if until is None and due_in is None:
            return None
        moments = [*([] if due_in is None else [now + due_in]), *([] if slot is None else [slot])]
        return min((moment for moment in moments if until is None or moment <= until), default=None)

    async def _unfinished(self, turns: int, ran: list[Ran]) -> str:
        left = [job for job in await self.jobs() if job.status in (Status.QUEUED, Status.RETRYING, Status.RUNNING)]
        types = ", ".join(sorted({job.type for job in left}))
        last = f"; the last that ran was {ran[-1].job.type!r}: {ran[-1].outcome}" if ran else ""
        return f"after {turns} turns, at {self.clock().isoformat()}, {len(left)} jobs are left, of {types}{last}"
