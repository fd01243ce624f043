"""What bounds job types in the memory store, as the table `marian_job_limits` does in the database."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from marian_jobs.job import Job
from marian_jobs.store import Limit, TypeLimit

UNBOUNDED = 2**31
LOOK_AGAIN = timedelta(seconds=0.5)


class Limits:
    """Pauses, limits and the recent starts of types that have a rate."""

    def __init__(self) -> None:
        self.paused: set[str] = set()
        self._limits: dict[str, Limit] = {}
        self._starts: defaultdict[str, list[datetime]] = defaultdict(list)

    def set(self, type: str, limit: Limit) -> None:
        """Sets a type's limit; an empty one frees it."""
        self._limits[type] = limit
        if limit == Limit():
            del self._limits[type]
        if limit.rate is None:
            self._starts.pop(type, None)

    def listed(self, jobs: Iterable[Job], now: datetime) -> list[TypeLimit]:
        """Every type that is paused or limited, by type, and how much of the limit is used."""
        running = Counter(j.type for j in jobs if _is_live(j, now))
        return [
            TypeLimit(
                type=type,
                paused=type in self.paused,
                max_running=limit.max_running,
                rate=limit.rate,
                per=limit.per,
                running=running[type],
                started=len(self._recent(type, limit, now)),
            )
            for type in sorted({*self.paused, *self._limits})
            for limit in [self._limits.get(type, Limit())]
        ]

    def room(self, type: str, jobs: Iterable[Job], now: datetime) -> int:
        """How many of the type may be claimed now; an expired lease holds no capacity."""
        if type in self.paused:
            return 0
        limit = self._limits.get(type, Limit())
        room = UNBOUNDED
        if limit.max_running is not None:
            room = min(room, limit.max_running - sum(1 for j in jobs if j.type == type and _is_live(j, now)))
        if limit.rate is not None:
            room = min(room, limit.rate - len(self._recent(type, limit, now)))
        return max(room, 0)

    def count_start(self, type: str, now: datetime) -> None:
        """Notes a start of a type that has a rate."""
        if self._limits.get(type, Limit()).rate is not None:
            self._starts[type].append(now)

    def _recent(self, type: str, limit: Limit, now: datetime) -> list[datetime]:
        """The starts of the type within its period; older ones are forgotten."""
        if limit.per is None:
            return []
        self._starts[type] = [start for start in self._starts[type] if start > now - limit.per]
        return self._starts[type]

    def not_before(self, job: Job, now: datetime) -> datetime:
        """When to look for the job again: a limit may keep what is due from being claimed."""
        if job.type not in self.paused and job.type not in self._limits:
            return job.run_after
        limit = self._limits.get(job.type, Limit())
        recent = self._recent(job.type, limit, now)
        if limit.rate is not None and limit.per is not None and len(recent) >= limit.rate:
            return max(job.run_after, recent[-limit.rate] + limit.per)
        return max(job.run_after, now + LOOK_AGAIN)


def _is_live(job: Job, now: datetime) -> bool:
    return job.lease_until is not None and job.lease_until > now
