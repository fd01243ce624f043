"""What every call must answer, and what must stand in the table after it: by `marian_jobs.machine`'s pure rules.

Where the contract leaves a choice (which of several expired jobs a bounded reclaim takes, which old rows a bounded
prune deletes), the oracle takes the choice that was seen, if it was a permitted one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from uuid import UUID

from marian_jobs import Enqueued, Job, JobFilter, KeyConflict, NewJob, RetryRefused, Status, machine
from marian_jobs.job import FINISHED, RUNNABLE, Held
from marian_jobs.store import MOST_CLAIMED, Failure, Limit, Poll, Stat

LOOK_AGAIN = timedelta(seconds=0.5)
MICROSECOND = timedelta(microseconds=1)


class Oracle:
    """The queue as the contract has it; `see` tells it the time and what came of the call it is asked about next."""

    def __init__(self) -> None:
        self.jobs: dict[UUID, Job] = {}
        self._paused: set[str] = set()
        self._limits: dict[str, Limit] = {}
        self._starts: defaultdict[str, list[datetime]] = defaultdict(list)
        self._ever_limited: set[str] = set()

    def see(self, now: datetime, rows: Mapping[UUID, Job], answer: object) -> None:
        """The moment of the call, the rows after it, and its answer: only free choices are read from these."""
        self._now, self._seen, self._said = now, rows, answer

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        after, answers = dict(self.jobs), []
        for n, new in enumerate(jobs):
            job = after.get(new.id) or _live(after.values(), new.idempotency_key)
            if job is None:
                job = after[new.id] = self._made(new, n)
            elif job.user_id != new.user_id or (job.id == new.id and _identity(job) != _identity(new)):
                raise KeyConflict("expected")
            answers.append(Enqueued(**{f.name: getattr(job, f.name) for f in fields(Job)}, created=job.id == new.id))
        self.jobs = after
        return answers

    def claim(
        self, limit: int, types: Collection[str] | None, lease: timedelta, room: Mapping[str, int] | None = None
    ) -> list[Job]:
        left: defaultdict[str, int] = defaultdict(lambda: limit, room or {})
        claimed: list[Job] = []
        for job in sorted(self.jobs.values(), key=machine.claim_order):
            if (
                machine.is_runnable(job, self._now)
                and (types is None or job.type in types)
                and len(claimed) < limit
                and left[job.type] > 0
                and self._has_room(job.type)
            ):
                left[job.type] -= 1
                if self._limits.get(job.type, Limit()).rate is not None:
                    self._starts[job.type].append(self._now)
                claimed.append(self._keep(machine.claim(job, now=self._now, lease=lease)))
        return claimed

    def poll(self, limit: int, types: Collection[str], lease: timedelta, room: Mapping[str, int] | None = None) -> Poll:
        reclaimed = self.reclaim()
        jobs = self.claim(limit, types, lease, room)
        return Poll(jobs, len(reclaimed), self._due_in(types) if len(jobs) < limit or not limit else None)

    def complete(self, held: Sequence[Held]) -> set[Held]:
        repeated = {t for t in held if t.id in self.jobs and machine.was_completed_by(self.jobs[t.id], t.attempt)}
        now = {t for t in held if self._is_held(t)}
        for token in now:
            self._keep(machine.complete(self.jobs[token.id], now=self._now))
        return repeated | now

    def fail(self, failures: Sequence[Failure]) -> list[Job]:
        accepted: dict[UUID, Job] = {}
        for f in failures:
            job = self.jobs.get(f.id)
            if job is not None and machine.is_held(job, f.attempt):
                failed = machine.fail(job, now=self._now, error=f.error, backoff=f.retry_in, permanent=f.dead)
                accepted[f.id] = self._keep(failed)
            elif job is not None and machine.was_failed_by(job, f.attempt, f.error):
                accepted[f.id] = job
        return _by_id(accepted.values())

    def extend(self, held: Sequence[Held], lease: timedelta) -> set[Held]:
        now = {t for t in held if self._is_held(t)}
        for token in now:
            self._keep(machine.extend(self.jobs[token.id], now=self._now, lease=lease))
        return now

    def release(self, held: Sequence[Held], delay: timedelta = timedelta(0)) -> list[Job]:
        now = {t for t in held if self._is_held(t)}
        return _by_id([self._keep(machine.release(self.jobs[t.id], now=self._now, delay=delay)) for t in now])

    def reclaim(self, limit: int = MOST_CLAIMED) -> list[Job]:
        expired = [j for j in self.jobs.values() if machine.is_expired(j, self._now)]
        if len(expired) > limit:  # those over longest; among equals whichever
            expired.sort(key=lambda j: (j.lease_until or self._now, self._seen.get(j.id) == j))
        return _by_id([self._keep(machine.reclaim(j, now=self._now)) for j in expired[:limit]])

    def cancel(self, job_id: UUID) -> Job | None:
        job = self.jobs.get(job_id)
        if job is None or job.status in FINISHED:
            return None
        return self._keep(machine.cancel(job, now=self._now))

    def retry(self, job_id: UUID, max_attempts: int | None = None) -> Job | None:
        job = self.jobs.get(job_id)
        if job is None or job.status is not Status.DEAD:
            return None
        if _live(self.jobs.values(), job.idempotency_key):
            raise RetryRefused("expected")
        return self._keep(machine.retry(job, now=self._now, max_attempts=max_attempts))

    def prune(self, succeeded_older: timedelta | None, dead_older: timedelta | None, limit: int = 10_000) -> int:
        ages = {Status.SUCCEEDED: succeeded_older, Status.DEAD: dead_older}
        old = [
            j for j in self.jobs.values() if (age := ages.get(j.status)) is not None and j.updated_at < self._now - age
        ]
        old.sort(key=lambda j: j.id in self._seen)  # which of them: whichever
        for job in old[:limit]:
            del self.jobs[job.id]
        return len(old[:limit])

    def pause(self, type: str) -> None:
        self._paused.add(type)
        self._ever_limited.add(type)

    def resume(self, type: str) -> None:
        self._paused.discard(type)

    def limit(self, type: str, limit: Limit) -> None:
        self._limits[type] = limit
        self._ever_limited.add(type)
        if limit.rate is None:
            self._starts[type].clear()

    def get(self, job_id: UUID) -> Job | None:
        return self.jobs.get(job_id)

    def find(self, which: JobFilter) -> list[Job]:
        found = [
            j for j in self.jobs.values()
            if which.status in (None, j.status) and which.type in (None, j.type) and which.user_id in (None, j.user_id)
            and which.idempotency_key in (None, j.idempotency_key)
            and (which.before is None or (j.created_at, j.id) < which.before)
        ]  # fmt: skip
        return sorted(found, key=lambda j: (j.created_at, j.id), reverse=True)[: which.limit]

    def stats(self) -> list[Stat]:
        groups: defaultdict[tuple[str, Status], list[Job]] = defaultdict(list)
        for job in self.jobs.values():
            groups[job.type, job.status].append(job)
        return [
            Stat(
                type, status, len(jobs),
                max((self._now - j.run_after for j in jobs if machine.is_runnable(j, self._now)), default=None),
                sum(machine.is_expired(j, self._now) for j in jobs),
            )
            for (type, status), jobs in sorted(groups.items())
        ]  # fmt: skip

    def _made(self, new: NewJob, n: int) -> Job:
        job = Job(
            id=new.id, user_id=new.user_id, type=new.type, status=Status.QUEUED, payload=new.payload,
            idempotency_key=new.idempotency_key, attempts=0, max_attempts=new.max_attempts, priority=new.priority,
            run_after=new.run_after or self._now + (new.delay or timedelta(0)), lease_until=None, error=None,
            created_at=self._now + n * MICROSECOND, updated_at=self._now,
        )  # fmt: skip
        seen = self._seen.get(new.id)  # a batch may count its microseconds from 0 or from 1
        later = job.created_at + MICROSECOND
        return replace(job, created_at=later) if seen is not None and seen.created_at == later else job

    def _has_room(self, type: str) -> bool:
        limit = self._limits.get(type, Limit())
        running = [j for j in self.jobs.values() if j.type == type and j.lease_until and j.lease_until > self._now]
        return (
            type not in self._paused
            and (limit.max_running is None or len(running) < limit.max_running)
            and (limit.rate is None or limit.per is None or self._started_within(type, limit.per) < limit.rate)
        )

    def _started_within(self, type: str, per: timedelta) -> int:
        return sum(start > self._now - per for start in self._starts[type])

    def _due_in(self, types: Collection[str]) -> timedelta | None:
        """How long until there is more to do; a limited type may be looked for when its limit lets it."""
        leases = [j.lease_until for j in self.jobs.values() if j.lease_until is not None]
        waiting = [j for j in self.jobs.values() if j.status in RUNNABLE and j.type in types]
        soon = self._earliest([*leases, *(j.run_after for j in waiting)])
        late = self._earliest([*leases, *(self._looked_for(j) for j in waiting)])
        said = self._said.due_in if isinstance(self._said, Poll) else None
        if soon is None or late is None or said is None:
            return soon
        return said if soon <= said <= late else soon

    def _looked_for(self, job: Job) -> datetime:
        if job.type not in self._ever_limited:
            return job.run_after
        limit, starts = self._limits.get(job.type, Limit()), self._starts[job.type]
        is_full = limit.rate is not None and limit.per is not None and len(starts) >= limit.rate
        frees = starts[-limit.rate] + limit.per if is_full else self._now  # type: ignore[operator]
        return max(job.run_after, self._now + LOOK_AGAIN, frees)

    def _earliest(self, moments: Iterable[datetime]) -> timedelta | None:
        earliest = min(moments, default=None)
        return None if earliest is None else max(earliest - self._now, timedelta(0))

    def _is_held(self, token: Held) -> bool:
        return token.id in self.jobs and machine.is_held(self.jobs[token.id], token.attempt)

    def _keep(self, job: Job) -> Job:
        self.jobs[job.id] = job
        return job


def _live(jobs: Iterable[Job], key: str | None) -> Job | None:
    return next((j for j in jobs if key is not None and j.idempotency_key == key and j.status is not Status.DEAD), None)


def _identity(job: Job | NewJob) -> tuple[str, str | None]:
    return job.type, job.idempotency_key


def _by_id(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: job.id)
