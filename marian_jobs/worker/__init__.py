"""Runs handlers for jobs."""

from marian_jobs.worker.context import Context
from marian_jobs.worker.middleware import CallNext, Middleware
from marian_jobs.worker.observers import Observer
from marian_jobs.worker.outcomes import Dead, Failed, Lost, Outcome, Released, Retry, Settled, Snooze, Succeeded
from marian_jobs.worker.worker import Tick, Worker, WorkerExhausted

__all__ = [
    "CallNext",
    "Context",
    "Dead",
    "Failed",
    "Lost",
    "Middleware",
    "Observer",
    "Outcome",
    "Released",
    "Retry",
    "Settled",
    "Snooze",
    "Succeeded",
    "Tick",
    "Worker",
    "WorkerExhausted",
]
