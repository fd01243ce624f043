"""A store in memory, for tests and first steps: the rules are `marian_jobs.machine`'s, the clock is the caller's."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from marian_jobs import clock, machine
from marian_jobs.checks import json_copy
from marian_jobs.errors import KeyConflict, NotSupported, RetryRefused
from marian_jobs.failure import storable
from marian_jobs.job import FINISHED, RUNNABLE, Enqueued, Held, Job, NewJob, Status
from marian_jobs.store import MOST_CLAIMED, Failure, Floors, JobFilter, Limit, Poll, Stat, TypeLimit
from marian_jobs.stores.limits import Limits

_COLUMNS = [f.name for f in fields(Job)]


class MemoryStore:
    """Keeps jobs in a dict; gone when the process ends. `clock` is any function that returns an aware datetime."""

    def __init__(self, clock: clock.Clock = clock.utc_now) -> None:
        self._clock = clock
        self._jobs: dict[UUID, Job] = {}
        self._live: dict[str, UUID] = {}
        self._alarms: set[MemoryAlarm] = set()
        self._limits = Limits()
        self._lock = threading.Lock()  # a sync queue calls from its own thread

    async def open(self) -> None:
        """Nothing to make ready."""

    async def close(self) -> None:
        """Nothing to give back; the jobs stay until the store itself is gone."""

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: object | None = None) -> list[Enqueued]:
        """See `Store.enqueue`; there is no transaction to be part of."""
        if connection is not None:
            raise NotSupported("MemoryStore has no transactions: enqueue without connection=")
        with self._lock:
            now = self._clock()
            self._refuse_foreign(jobs)
            answers = [self._insert(job, now, n) for n, job in enumerate(jobs)]
        self._ring({job.type for job in jobs})
        return answers

    async def load(self, jobs: Sequence[NewJob]) -> int:
        """See `Store.load`."""
        return sum(answer.created for answer in await self.enqueue(jobs))

    async def claim(
        self,
        limit: int,
        types: Collection[str] | None,
        lease: timedelta,
        room: Mapping[str, int] | None = None,
        floors: Floors | None = None,
    ) -> list[Job]:
        """See `Store.claim`; overlooks nothing."""
        with self._lock:
            now = self._clock()
            due = [j for j in self._of_types(types) if machine.is_runnable(j, now)]
            left = {type: self._limits.room(type, self._jobs.values(), now) for type in {j.type for j in due}}
            for type, most in (room or {}).items():
                left[type] = min(most, left.get(type, most))
            claimed: list[Job] = []
            for job in sorted(due, key=machine.claim_order):
                if len(claimed) < limit and left[job.type] > 0:
                    left[job.type] -= 1
                    self._limits.count_start(job.type, now)
                    claimed.append(self._keep(machine.claim(job, now=now, lease=lease)))
            return claimed

    async def complete(self, held: Sequence[Held], *, connection: object | None = None) -> set[Held]:
        """See `Store.complete`; there is no transaction to be part of."""
        if connection is not None:
            raise NotSupported("MemoryStore has no transactions: complete without a connection")
        with self._lock:
            now = self._clock()
            done = {token for token, job in self._known(held) if machine.was_completed_by(job, token.attempt)}
            for token, job in self._held(held):
                self._keep(machine.complete(job, now=now))
                done.add(token)
            return done

    async def fail(self, failures: Sequence[Failure]) -> list[Job]:
        """See `Store.fail`."""
        with self._lock:
            now = self._clock()
            answers: dict[UUID, Job] = {}
            for failure in failures:
                job = self._jobs.get(failure.id)
                error = storable(failure.error)
                if job is not None and machine.is_held(job, failure.attempt):
                    answers[job.id] = self._keep(
                        machine.fail(job, now=now, error=error, backoff=failure.retry_in, permanent=failure.dead)
                    )
                elif job is not None and machine.was_failed_by(job, failure.attempt, error):
                    answers[job.id] = job
        self._ring({job.type for job in answers.values() if job.status is Status.RETRYING})
        return list(answers.values())

    async def extend(self, held: Sequence[Held], lease: timedelta) -> set[Held]:
        """See `Store.extend`."""
        with self._lock:
            now = self._clock()
            return {self._keep(machine.extend(j, now=now, lease=lease)).held for _, j in self._held(held)}

    async def release(self, held: Sequence[Held], delay: timedelta = timedelta(0)) -> list[Job]:
        """See `Store.release`."""
        with self._lock:
            now = self._clock()
            released = [self._keep(machine.release(j, now=now, delay=delay)) for _, j in self._held(held)]
        self._ring({job.type for job in released})
        return released

    async def reclaim(self, limit: int = MOST_CLAIMED) -> list[Job]:
        """See `Store.reclaim`."""
        with self._lock:
            now = self._clock()
            expired = [j for j in self._jobs.values() if machine.is_expired(j, now)]
            expired.sort(key=lambda j: j.lease_until or now)
            reclaimed = [self._keep(machine.reclaim(j, now=now)) for j in expired[:limit]]
        self._ring({job.type for job in reclaimed})
        return reclaimed

    async def poll(
        self, limit: int, types: Collection[str], lease: timedelta, room: Mapping[str, int] | None = None
    ) -> Poll:
        """See `Store.poll`."""
        reclaimed = await self.reclaim()
        jobs = await self.claim(limit, types, lease, room)
        return Poll(jobs, len(reclaimed), self._due_in(types) if len(jobs) < limit or not limit else None)

    async def cancel(self, job_id: UUID) -> Job | None:
        """See `Store.cancel`."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.status in FINISHED:
                return None
            return self._keep(machine.cancel(job, now=self._clock()))

    async def retry(self, job_id: UUID, max_attempts: int | None = None) -> Job | None:
        """See `Store.retry`."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.status is not Status.DEAD:
                return None
            owner = self._live.get(job.idempotency_key) if job.idempotency_key is not None else None
            if owner is not None:
                raise RetryRefused(f"retry: job {owner} owns the key of job {job_id}")
            queued = self._keep(machine.retry(job, now=self._clock(), max_attempts=max_attempts))
        self._ring({queued.type})
        return queued

    async def get(self, job_id: UUID) -> Job | None:
        """See `Store.get`."""
        return self._jobs.get(job_id)

    async def find(self, which: JobFilter) -> Sequence[Job]:
        """See `Store.find`."""
        with self._lock:
            found = [j for j in self._jobs.values() if _matches(j, which)]
        found.sort(key=lambda j: (j.created_at, j.id), reverse=True)
        return found[: which.limit]

    def listed(self) -> list[Job]:
        """Every job, in the order in which they were made."""
        with self._lock:
            return list(self._jobs.values())

    async def pause(self, type: str) -> None:
        """See `Store.pause`."""
        self._limits.paused.add(type)

    async def resume(self, type: str) -> None:
        """See `Store.resume`."""
        self._limits.paused.discard(type)
        self._ring({type})

    async def limit(self, type: str, limit: Limit) -> None:
        """See `Store.limit`."""
        self._limits.set(type, limit)
        self._ring({type})

    async def limits(self) -> Sequence[TypeLimit]:
        """See `Store.limits`."""
        with self._lock:
            return self._limits.listed(self._jobs.values(), self._clock())

    async def prune(self, succeeded_older: timedelta | None, dead_older: timedelta | None, limit: int = 10_000) -> int:
        """See `Store.prune`."""
        ages = {Status.SUCCEEDED: succeeded_older, Status.DEAD: dead_older}
        with self._lock:
            now = self._clock()
            old = [j for j in self._jobs.values() if _is_older(j, ages.get(j.status), now)][:limit]
            for job in old:
                del self._jobs[job.id]
                if job.status is Status.SUCCEEDED and job.idempotency_key is not None:
                    del self._live[job.idempotency_key]
        return len(old)

    async def stats(self) -> Sequence[Stat]:
        """See `Store.stats`."""
        with self._lock:
            now = self._clock()
            groups: defaultdict[tuple[str, Status], list[Job]] = defaultdict(list)
            for job in self._jobs.values():
                groups[job.type, job.status].append(job)
        return [_stat(type, status, jobs, now) for (type, status), jobs in sorted(groups.items())]

    def for_another_loop(self) -> "MemoryStore":
        """See `Store.for_another_loop`."""
        return self

    def alarm(self, types: Collection[str]) -> "MemoryAlarm":
        """See `Store.alarm`."""
        return MemoryAlarm(frozenset(types), self._alarms)

    def _due_in(self, types: Collection[str]) -> timedelta | None:
        with self._lock:
            leases = [j.lease_until for j in self._jobs.values() if j.lease_until is not None]
            now = self._clock()
            due = [self._limits.not_before(j, now) for j in self._of_types(types) if j.status in RUNNABLE]
            return max(min(leases + due) - now, timedelta(0)) if leases or due else None

    def _ring(self, types: Collection[str]) -> None:
        for alarm in list(self._alarms):
            alarm.ring(types)

    def _insert(self, new: NewJob, now: datetime, n: int) -> Enqueued:
        owner = self._jobs.get(new.id) or self._owner(new)
        if owner is not None:
            return Enqueued(**_columns(owner), created=owner.id == new.id)
        job = Job(
            id=new.id,
            user_id=new.user_id,
            type=new.type,
            status=Status.QUEUED,
            payload=json_copy(new.payload),
            idempotency_key=new.idempotency_key,
            attempts=0,
            max_attempts=new.max_attempts,
            priority=new.priority,
            run_after=new.run_after or now + (new.delay or timedelta(0)),
            lease_until=None,
            error=None,
            created_at=now + timedelta(microseconds=n),
            updated_at=now,
        )
        return Enqueued(**_columns(self._keep(job)), created=True)

    def _owner(self, new: NewJob) -> Job | None:
        owner = self._live.get(new.idempotency_key) if new.idempotency_key is not None else None
        return None if owner is None else self._jobs[owner]

    def _refuse_foreign(self, jobs: Sequence[NewJob]) -> None:
        """Refuses a batch where an id is another job's, or a key's live job, there or in the batch, another owner's."""
        ids: dict[UUID, Job | NewJob] = {}
        owners: dict[str, UUID | None] = {}
        for new in jobs:
            known = self._jobs.get(new.id) or ids.setdefault(new.id, new)
            if (known.user_id, known.type, known.idempotency_key) != (new.user_id, new.type, new.idempotency_key):
                raise KeyConflict("enqueue: another job has this id")
            if new.id in self._jobs or new.idempotency_key is None:
                continue
            owner = self._owner(new)
            if owners.setdefault(new.idempotency_key, owner.user_id if owner else new.user_id) != new.user_id:
                raise KeyConflict("enqueue: this idempotency key belongs to another owner")

    def _keep(self, job: Job) -> Job:
        self._jobs[job.id] = job
        if job.idempotency_key is not None:
            if job.status is not Status.DEAD:
                self._live[job.idempotency_key] = job.id
            elif self._live.get(job.idempotency_key) == job.id:
                del self._live[job.idempotency_key]
        return job

    def _of_types(self, types: Collection[str] | None) -> Iterable[Job]:
        return (j for j in self._jobs.values() if types is None or j.type in types)

    def _known(self, held: Iterable[Held]) -> list[tuple[Held, Job]]:
        return [(token, self._jobs[token.id]) for token in dict.fromkeys(held) if token.id in self._jobs]

    def _held(self, held: Iterable[Held]) -> list[tuple[Held, Job]]:
        return [(token, job) for token, job in self._known(held) if machine.is_held(job, token.attempt)]


class MemoryAlarm:
    """Rings across threads: each alarm remembers the loop it waits in."""

    can_ring = True

    @property
    def rings(self) -> bool:
        """See `Alarm.rings`."""
        return self in self._armed

    def __init__(self, types: frozenset[str], armed: "set[MemoryAlarm]") -> None:
        self._types = types
        self._armed = armed
        self._rung = asyncio.Event()
        self._wake: Callable[[], object] = self._rung.set

    async def arm(self) -> bool:
        """See `Alarm.arm`."""
        if self in self._armed:
            return False
        loop = asyncio.get_running_loop()
        self._wake = lambda: loop.call_soon_threadsafe(self._rung.set)
        self._rung.clear()
        self._armed.add(self)
        return True

    async def wait(self, timeout: timedelta) -> bool:
        """See `Alarm.wait`."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    async def disarm(self) -> None:
        """See `Alarm.disarm`."""
        self._armed.discard(self)

    async def close(self) -> None:
        """See `Alarm.close`."""
        self._armed.discard(self)

    def ring(self, types: Collection[str]) -> None:
        """Wakes whoever waits for one of these types."""
        if not self._types.isdisjoint(types):
            self._wake()


def _columns(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in _COLUMNS}


def _matches(job: Job, which: JobFilter) -> bool:
    return (
        (which.status is None or job.status is which.status)
        and (which.type is None or job.type == which.type)
        and (which.user_id is None or job.user_id == which.user_id)
        and (which.idempotency_key is None or job.idempotency_key == which.idempotency_key)
        and (which.before is None or (job.created_at, job.id) < which.before)
    )


def _is_older(job: Job, age: timedelta | None, now: datetime) -> bool:
    return age is not None and job.updated_at < now - age


def _stat(type: str, status: Status, jobs: Sequence[Job], now: datetime) -> Stat:
    due = [now - j.run_after for j in jobs if machine.is_runnable(j, now)]
    return Stat(
        type=type,
        status=status,
        count=len(jobs),
        oldest_due_age=max(due, default=None),
        expired_leases=sum(machine.is_expired(j, now) for j in jobs),
    )
