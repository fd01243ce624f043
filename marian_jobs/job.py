"""The record everything else passes around: one row of `public.marian_jobs`, frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

JsonObject = Mapping[str, Any]

_new_tuple = tuple.__new__


class Status(StrEnum):
    """The five states of a job; the text is what the table stores."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"


RUNNABLE = frozenset({Status.QUEUED, Status.RETRYING})
FINISHED = frozenset({Status.SUCCEEDED, Status.DEAD})


class Held(NamedTuple):
    """A claim's fencing token: the job, and the attempt that the claim began."""

    id: UUID
    attempt: int


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the table holds it: the 14 columns, times aware, payload a JSON object.

    `payload` stays out of the repr: it is the user's data and may hold secrets.
    """

    id: UUID
    user_id: UUID | None
    type: str
    status: Status
    payload: JsonObject = field(repr=False)
    idempotency_key: str | None
    attempts: int
    max_attempts: int
    priority: int
    run_after: datetime
    lease_until: datetime | None
    error: str | None
    created_at: datetime
    updated_at: datetime

    @property
    def held(self) -> Held:
        """The token under which this job's present attempt is held."""
        return _new_tuple(Held, (self.id, self.attempts))  # half of what `Held(...)` takes, once for every job

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure of the present attempt ends the job."""
        return self.attempts >= self.max_attempts


@dataclass(frozen=True, slots=True)
class Enqueued(Job):
    """A job as enqueueing answers it; `created` is false where a live job already owned the key."""

    created: bool


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a caller asks for, already checked: due at `run_after`, or `delay` after the store's now, or at once."""

    id: UUID
    type: str
    payload: JsonObject = field(repr=False)
    user_id: UUID | None = None
    idempotency_key: str | None = None
    priority: int = 0
    max_attempts: int = 3
    run_after: datetime | None = None
    delay: timedelta | None = None
    size: int = field(default=0, repr=False, compare=False)  # bytes of the payload as JSON, or a few more
