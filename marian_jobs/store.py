"""What a queue needs of a place that keeps jobs: one protocol, the same answers from every store.

Each method is one move (see `marian_jobs.machine`) for a batch, decided by the store's clock. A late report is an
ordinary answer: it is left out of what comes back. What a store raises is a `MarianError`, never its driver's own:
`StoreUnavailable` when the call may or may not have had its effect, `StoreRefused` when it surely had none.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

from marian_jobs import checks
from marian_jobs.job import Enqueued, Held, Job, NewJob, Status

MOST_CLAIMED = 1000

# For a (type, priority) the place, run_after and created_at, below which a caller's last claims have left nothing.
Floors = Mapping[tuple[str, int], tuple[datetime, datetime]]


class Failure(NamedTuple):
    """A failed attempt to record: `retry_in` None means the default backoff, `dead` that no retry makes sense."""

    id: UUID
    attempt: int
    error: str
    retry_in: timedelta | None = None
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Stat:
    """How the jobs of one type and status stand; `oldest_due_age` is None where none is due."""

    type: str
    status: Status
    count: int
    oldest_due_age: timedelta | None
    expired_leases: int


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list, newest first; `before` continues behind the last job of a page.

    What no job could have is refused with `ValueError` or `TypeError`.
    """

    status: Status | None = None
    type: str | None = None
    user_id: UUID | None = None
    idempotency_key: str | None = None
    before: tuple[datetime, UUID] | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        if self.status is not None:
            Status(self.status)
        if self.type is not None:
            checks.text("type", self.type, longest=128)
        if self.user_id is not None:
            checks.uuid("user_id", self.user_id)
        if self.idempotency_key is not None:
            checks.text("idempotency_key", self.idempotency_key, longest=512)
        checks.integer("limit", self.limit, 1, checks.INT32[1])


class Poll(NamedTuple):
    """A worker's turn: the jobs claimed, how many were reclaimed, and when to come again (None: nothing foreseen)."""

    jobs: Sequence[Job]
    reclaimed: int
    due_in: timedelta | None


@dataclass(frozen=True, slots=True)
class Limit:
    """What bounds a job type over all workers: jobs running at once, and starts (`rate`) in any stretch of `per`."""

    max_running: int | None = None
    rate: int | None = None
    per: timedelta | None = None


@dataclass(frozen=True, slots=True)
class TypeLimit:
    """A type that is paused or limited, and how much of the limit is used: live leases, starts within `per`."""

    type: str
    paused: bool
    max_running: int | None
    rate: int | None
    per: timedelta | None
    running: int
    started: int


class Alarm(Protocol):
    """What wakes a worker that found nothing to do."""

    @property
    def can_ring(self) -> bool:
        """Whether new work can wake this alarm at all, or time alone."""

    @property
    def rings(self) -> bool:
        """Whether new work would wake it now: armed, and its connection there."""

    async def arm(self) -> bool:
        """From now on new work rings; true when work may have come in just before, so that one must look again."""

    async def wait(self, timeout: timedelta) -> bool:
        """True as soon as new work rings, false after `timeout`. May wake needlessly, and may miss work."""

    async def disarm(self) -> None:
        """New work need not ring any more."""

    async def close(self) -> None:
        """Gives back whatever the alarm holds; it is not used again."""


class Store(Protocol):
    """A place that keeps jobs. See the module's text for what all methods share."""

    async def open(self) -> None:
        """Makes the store ready and checks that it may be used: `StoreRefused` says what is missing."""

    async def close(self) -> None:
        """Gives back connections; what was handed in by the caller stays the caller's."""

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: object | None = None) -> list[Enqueued]:
        """One answer per job, in order, all or nothing; raises `KeyConflict`. Safe to send again with the same ids.

        `connection` makes it part of the caller's transaction, or raises `NotSupported`.
        """

    async def load(self, jobs: Sequence[NewJob]) -> int:
        """`enqueue` for many: how many jobs were made (by this call, or by the same call before its reply was lost)."""

    async def claim(
        self,
        limit: int,
        types: Collection[str] | None,
        lease: timedelta,
        room: Mapping[str, int] | None = None,
        floors: Floors | None = None,
    ) -> list[Job]:
        """At most `limit` (1 to 1000) due jobs in claim order, each running and leased; `types` None means any.

        `room` bounds single types; pauses and limits of the store's own bound them besides. The store may overlook
        what lies below `floors`: rows that came in late, which the next claim without floors finds.
        """

    async def complete(self, held: Sequence[Held], *, connection: object | None = None) -> set[Held]:
        """The tokens accepted, whose jobs are now (or were already, by this very attempt) succeeded.

        `connection` makes it part of the caller's transaction, or raises `NotSupported`.
        """

    async def fail(self, failures: Sequence[Failure]) -> list[Job]:
        """The jobs accepted, in their new state: retrying or dead."""

    async def extend(self, held: Sequence[Held], lease: timedelta) -> set[Held]:
        """The tokens still held, their leases now ending at now + lease."""

    async def release(self, held: Sequence[Held], delay: timedelta = timedelta(0)) -> list[Job]:
        """The jobs given back, queued again after `delay`."""

    async def reclaim(self, limit: int = MOST_CLAIMED) -> list[Job]:
        """The jobs whose lease was over, now retrying or dead."""

    async def poll(
        self, limit: int, types: Collection[str], lease: timedelta, room: Mapping[str, int] | None = None
    ) -> Poll:
        """What a worker's turn needs, in one call: reclaims, then claims; and when it could not fill `limit`, says
        how long until a job of these types is due or any lease ends."""

    async def cancel(self, job_id: UUID) -> Job | None:
        """The job, now dead; None when it is finished or not there."""

    async def retry(self, job_id: UUID, max_attempts: int | None = None) -> Job | None:
        """The job, queued again; None when it is not dead. Raises `RetryRefused` when a live job owns its key."""

    async def get(self, job_id: UUID) -> Job | None:
        """The job as it stands, or None."""

    async def find(self, which: JobFilter) -> Sequence[Job]:
        """A page of jobs, newest first."""

    async def pause(self, type: str) -> None:
        """No job of the type is claimed any more, by any worker; those that run go on."""

    async def resume(self, type: str) -> None:
        """Jobs of the type are claimed again."""

    async def limit(self, type: str, limit: Limit) -> None:
        """Sets what bounds the type over all workers; an empty `Limit` frees it."""

    async def limits(self) -> Sequence[TypeLimit]:
        """Every type that is paused or limited, by type."""

    async def prune(self, succeeded_older: timedelta | None, dead_older: timedelta | None, limit: int = 10_000) -> int:
        """How many finished jobs older than that this one call deleted; None keeps the kind."""

    async def stats(self) -> Sequence[Stat]:
        """Every (type, status) there is, by type."""

    def for_another_loop(self) -> "Store":
        """The same jobs for another thread's event loop, by connections of its own; the caller opens and closes it."""

    def alarm(self, types: Collection[str]) -> Alarm:
        """An alarm for new work of these types."""
