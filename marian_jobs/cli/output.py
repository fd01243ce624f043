"""What the commands print: tables for people, JSON for programs, one line for an error."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Table
from rich.text import Text

from marian_jobs.errors import MarianError
from marian_jobs.job import Job, Status
from marian_jobs.redaction import redact
from marian_jobs.store import Stat, TypeLimit

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
    errors.print(f"marian: {redact(str(error))}", style="red", markup=False, highlight=False, soft_wrap=True)
    if isinstance(error, MarianError) and error.hint:
        errors.print(error.hint, markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document on one line; records as objects, moments in ISO 8601, durations in seconds."""
    print(
        json.dumps(value, default=_plain, ensure_ascii=not _speaks_unicode()), flush=True
    )  # dev goes on: a pipe waits


def print_list(records: Iterable[Any]) -> None:
    """JSON lines, a record a line."""
    for record in records:
        print_json(as_dict(record))


def as_dict(record: Any) -> dict[str, Any]:
    """The record's fields by name; not copied, since a payload may be nested deeper than a copy could follow."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def print_jobs(jobs: Sequence[Job]) -> None:
    """A table, a job a line; a narrow terminal shows less of each."""
    columns = {name: column for name, column in _COLUMNS.items() if console.width >= _WIDE or name in _NARROW}
    table = Table(box=None, pad_edge=False)
    for heading in columns:
        table.add_column(heading, no_wrap=heading not in _FREE, overflow="fold")
    for job in jobs:
        table.add_row(*(column(job) for column in columns.values()))
    console.print(table)


def print_job(job: Job) -> None:
    """Every field of a job, a line each."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in as_dict(job).items():
        text = json.dumps(value, ensure_ascii=False) if name == "payload" else "" if value is None else str(value)
        table.add_row(name, shown(text))
    console.print(table)


def print_stats(stats: Sequence[Stat]) -> None:
    """A table, a type and status a line."""
    table = Table(box=None, pad_edge=False)
    for heading in ("type", "status", "count", "oldest due", "expired leases"):
        table.add_column(heading, justify="right" if heading in ("count", "expired leases") else "left")
    for stat in stats:
        due = "" if stat.oldest_due_age is None else f"{stat.oldest_due_age.total_seconds():.1f} s"
        table.add_row(shown(stat.type), _status(stat.status), str(stat.count), due, str(stat.expired_leases or ""))
    console.print(table)


def print_limits(limits: Sequence[TypeLimit]) -> None:
    """A table, a type a line: whether it is paused, and of each limit how much is used."""
    table = Table(box=None, pad_edge=False)
    for heading in ("type", "paused", "running", "started"):
        table.add_column(heading)
    for limit in limits:
        running = str(limit.running) if limit.max_running is None else f"{limit.running} of {limit.max_running}"
        started = "" if limit.per is None else f"{limit.started} of {limit.rate} in {limit.per.total_seconds():g} s"
        table.add_row(shown(limit.type), "paused" if limit.paused else "", running, started)
    console.print(table)


def _status(status: Status) -> Text:
    return Text(status, _COLOURS[status])


def shown(text: str) -> Text:
    """A job's text as text: neither markup nor control characters in it reach the terminal."""
    return Text("".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text))


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


_COLUMNS: dict[str, Callable[[Job], Text]] = {
    "id": lambda job: Text(str(job.id)),
    "type": lambda job: shown(job.type),
    "status": lambda job: _status(job.status),
    "attempts": lambda job: Text(f"{job.attempts}/{job.max_attempts}"),
    "priority": lambda job: Text(str(job.priority)),
    "due": lambda job: Text(f"{job.run_after:%Y-%m-%d %H:%M:%S}"),
    "key": lambda job: shown(job.idempotency_key or ""),
    "error": lambda job: shown((job.error or "").partition("\n")[0]),
}
_FREE = {"type", "key", "error"}  # as long as their writers liked
_NARROW = {"id", "type", "status", "attempts", "error"}
_WIDE = 120


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"not a JSON value: {type(value).__name__}")
