"""Background jobs for AI applications on Supabase: one Postgres table is the queue."""

from marian_jobs.backoff import Backoff
from marian_jobs.checks import new_job
from marian_jobs.errors import (
    InvalidArgument,
    InvalidTransition,
    IsolationConflict,
    KeyConflict,
    MarianError,
    NotSupported,
    RetryRefused,
    StoreRefused,
    StoreUnavailable,
)
from marian_jobs.job import Enqueued, Held, Job, NewJob, Status
from marian_jobs.queue import Queue, SyncQueue
from marian_jobs.store import JobFilter, Stat, Store
from marian_jobs.stores.memory import MemoryStore
from marian_jobs.stores.postgres import PostgresStore
from marian_jobs.worker import Context, Dead, Retry, Snooze, Worker, WorkerExhausted

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Context",
    "Dead",
    "Enqueued",
    "Held",
    "InvalidArgument",
    "InvalidTransition",
    "IsolationConflict",
    "Job",
    "JobFilter",
    "KeyConflict",
    "MarianError",
    "MemoryStore",
    "NewJob",
    "NotSupported",
    "PostgresStore",
    "Queue",
    "Retry",
    "RetryRefused",
    "Snooze",
    "Stat",
    "Status",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "SyncQueue",
    "Worker",
    "WorkerExhausted",
    "new_job",
]
