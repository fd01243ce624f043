"""Background jobs for AI applications on Supabase: one Postgres table is the queue."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from marian_jobs.backoff import Backoff
from marian_jobs.checks import new_job
from marian_jobs.errors import (
    InvalidArgument,
    InvalidTransition,
    IsolationConflict,
    KeyConflict,
    LeaseLost,
    MarianError,
    NotSupported,
    RetryRefused,
    StoreRefused,
    StoreUnavailable,
)
from marian_jobs.job import Enqueued, Held, Job, NewJob, Status
from marian_jobs.queue import Queue, SyncQueue
from marian_jobs.store import JobFilter, Limit, Stat, Store, TypeLimit
from marian_jobs.stores.memory import MemoryStore
from marian_jobs.stores.postgres import PostgresStore
from marian_jobs.stream import Streamed
from marian_jobs.worker import CallNext, Context, Dead, Middleware, Retry, Snooze, Worker, WorkerExhausted

__version__ = "0.1.0"

if TYPE_CHECKING:
    from marian_jobs.stores.supabase import SupabaseStore
    from marian_jobs.users import Page, UserJobs

_LATE = {"SupabaseStore": "marian_jobs.stores.supabase", "UserJobs": "marian_jobs.users", "Page": "marian_jobs.users"}


def __getattr__(name: str) -> Any:
    """What needs supabase-py is imported when it is first asked for: that takes a second."""
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Backoff",
    "CallNext",
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
    "LeaseLost",
    "Limit",
    "MarianError",
    "MemoryStore",
    "Middleware",
    "NewJob",
    "NotSupported",
    "Page",
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
    "Streamed",
    "SupabaseStore",
    "SyncQueue",
    "TypeLimit",
    "UserJobs",
    "Worker",
    "WorkerExhausted",
    "new_job",
]
