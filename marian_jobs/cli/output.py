"""What the commands print: tables for people, JSON for programs, one line for an error."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Table

from marian_jobs.errors import MarianError
from marian_jobs.job import Job, Status
from marian_jobs.store import Stat

# A pipe has no width: nothing is folded there.
console = Console(width=None if sys.stdout.isatty() else 250)
errors = Console(stderr=True)

_COLOURS = {
    Status.QUEUED: "cyan",
    Status.RUNNING: "yellow",
    Status.RETRYING: "magenta",
    Status.SUCCEEDED: "green",
    Status.DEAD: "red",
}


def complain(error: Exception) -> None:
    """The error on standard error, with what to do about it."""
    errors.print(f"marian: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    if isinstance(error, MarianError) and error.hint:
        errors.print(error.hint, markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document on one line; records as objects, moments in ISO 8601, durations in seconds."""
    print(json.dumps(value, default=_plain, ensure_ascii=False))


def as_dict(record: Any) -> dict[str, Any]:
    """The record's fields by name."""
    return asdict(record)


def print_jobs(jobs: Sequence[Job]) -> None:
    """A table, a job a line."""
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "type", "status", "attempts", "priority", "due", "key", "error"):
        table.add_column(heading, no_wrap=heading != "error", overflow="fold")
    for job in jobs:
        table.add_row(
            str(job.id),
            job.type,
            f"[{_COLOURS[job.status]}]{job.status}[/]",
            f"{job.attempts}/{job.max_attempts}",
            str(job.priority),
            f"{job.run_after:%Y-%m-%d %H:%M:%S}",
            job.idempotency_key or "",
            (job.error or "").splitlines()[0] if job.error else "",
        )
    console.print(table)


def print_job(job: Job) -> None:
    """Every field of a job, a line each."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in as_dict(job).items():
        shown = (
            json.dumps(value, ensure_ascii=False, indent=2)
            if name == "payload"
            else str("" if value is None else value)
        )
        table.add_row(name, shown)
    console.print(table, markup=False)


def print_stats(stats: Sequence[Stat]) -> None:
    """A table, a type and status a line."""
    table = Table(box=None, pad_edge=False)
    for heading in ("type", "status", "count", "oldest due", "expired leases"):
        table.add_column(heading, justify="right" if heading in ("count", "expired leases") else "left")
    for stat in stats:
        due = "" if stat.oldest_due_age is None else f"{stat.oldest_due_age.total_seconds():.1f} s"
        status = f"[{_COLOURS[stat.status]}]{stat.status}[/]"
        table.add_row(stat.type, status, str(stat.count), due, str(stat.expired_leases or ""))
    console.print(table)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"not a JSON value: {type(value).__name__}")
