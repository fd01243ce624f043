"""What a Supabase project's API answers, rows from JSON, and refusals in this package's words."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import httpx

from marian_jobs.errors import BY_SQLSTATE, InvalidArgument, MarianError, StoreRefused, StoreUnavailable
from marian_jobs.job import Enqueued, Job, NewJob, Status
from marian_jobs.store import Poll, Stat, TypeLimit

NAMES: Final = [f.name for f in fields(Job)]
BUSY: Final = frozenset({429, 502, 503, 504})
# A function or table that is not there, or not there yet as far as the API knows.
UNKNOWN: Final = frozenset({"PGRST202", "PGRST205", "42883", "42P01"})
# A column was added to the table while the call waited for that: it was rolled back, and the next one works.
ALTERED: Final = "42804"
# Connections, resources, an operator's hand, a standby: the database is there, but not now.
PASSING: Final = ("08", "25006", "53", "57")
# PostgREST passes on that its session was cut (terminated, or a crash) as an HTTP 400 with this and nothing else.
_NO_SQLSTATE: Final = ""
_BROKEN_OFF: Final = "08006"

_INTERVAL = re.compile(r"(?:(-?\d+) days? ?)?(?:(-)?(\d+):(\d\d):(\d\d(?:\.\d+)?))?")


class Refusal(Exception):
    """An answer that is an error: its HTTP status, the database's or the API's code, and what it says."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None) -> None:
        super().__init__(f"HTTP {status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after

    @property
    def is_busy(self) -> bool:
        """Whether the API could not answer now; whether the call had its effect is not known."""
        return self.status in BUSY or self.code == _BROKEN_OFF

    @property
    def is_unknown(self) -> bool:
        """Whether the API knows nothing of what was called; it may be about to."""
        return self.code in UNKNOWN

    @property
    def had_no_effect(self) -> bool:
        """Whether the call surely was not carried out, and may be sent again whatever it is."""
        return self.status == 429 or self.is_unknown or self.code == ALTERED

    def explained(self) -> MarianError:
        """The error to raise in its place."""
        if self.code in BY_SQLSTATE:
            return BY_SQLSTATE[self.code](self.message)
        if self.code == "23503":
            return InvalidArgument("user_id: no such user in auth.users")
        if self.code.startswith(("22", "23")):
            return InvalidArgument(self.message)
        if self.is_unknown:
            return StoreRefused(
                "the API does not know the queue's functions: run the migrations (supabase db push); "
                "if they have just run, the API has not reloaded its schema yet"
            )
        if self.code == "42501" or self.status == 403:
            return StoreRefused(f"{self.message}: workers need the service_role key or an sb_secret_ key")
        if self.status == 401:
            return StoreRefused(f"the API refused the key or the token: {self.message}")
        if self.is_busy or self.status >= 500 or self.code.startswith(PASSING) or self.code == ALTERED:
            return StoreUnavailable(f"the API could not answer (HTTP {self.status}): {self.message}")
        if not self.code:
            return StoreRefused(f"no Supabase API answers at this URL (HTTP {self.status}): check the project's URL")
        return StoreRefused(f"the API refused the call (HTTP {self.status}): {self.message}")


async def raise_refusal(response: httpx.Response) -> None:
    """A hook for httpx: raises what is no answer in JSON, before supabase-py folds it into an error without status."""
    kind = response.headers.get("content-type", "")
    if response.is_success and (not kind or "json" in kind):
        return
    await response.aread()
    try:
        body = response.json()
    except ValueError:
        body = None
    raise refusal(response.status_code, body, response.headers.get("retry-after"))


def refusal(status: int, body: Any, retry_after: str | None) -> Refusal:
    """The refusal that an answer is which is an error or not in JSON."""
    said = body if isinstance(body, Mapping) else {}
    if said.get("code") == _NO_SQLSTATE:
        said = {"code": _BROKEN_OFF, "message": said.get("message") or "its session with the database broke off"}
    try:
        seconds = None if retry_after is None else float(retry_after)
    except ValueError:
        seconds = None  # a date: our own back-off serves as well
    return Refusal(status, str(said.get("code") or ""), str(said.get("message") or "no reason given")[:500], seconds)


def to_job(row: Mapping[str, Any]) -> Job:
    """The job of a row as JSON."""
    return Job(
        id=UUID(row["id"]),
        user_id=None if row["user_id"] is None else UUID(row["user_id"]),
        type=row["type"],
        status=Status(row["status"]),
        payload=row["payload"],
        idempotency_key=row["idempotency_key"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        priority=row["priority"],
        run_after=datetime.fromisoformat(row["run_after"]),
        lease_until=None if row["lease_until"] is None else datetime.fromisoformat(row["lease_until"]),
        error=row["error"],
        created_at=datetime.fromisoformat(row["created_at"]),
        updated_at=datetime.fromisoformat(row["updated_at"]),
    )


def to_enqueued(row: Mapping[str, Any], new: NewJob) -> Enqueued:
    """The answer to enqueueing `new`."""
    job = to_job(row)
    return Enqueued(**{name: getattr(job, name) for name in NAMES}, created=job.id == new.id)


def to_poll(found: Sequence[Mapping[str, Any]]) -> Poll:
    """What `marian_jobs_poll` answered."""
    jobs = [to_job(row) for row in found if row["id"] is not None]
    return Poll(jobs, found[0]["reclaimed"], to_duration(found[-1]["due_in"]))


def to_stat(row: Mapping[str, Any]) -> Stat:
    """A line of `job_stats()`."""
    return Stat(
        row["type"], Status(row["status"]), row["count"], to_duration(row["oldest_due_age"]), row["expired_leases"]
    )


def to_type_limit(row: Mapping[str, Any]) -> TypeLimit:
    """A line of `job_limits()`."""
    return TypeLimit(**{**row, "per": to_duration(row["per"])})


def to_duration(text: str | None) -> timedelta | None:
    """An interval as Postgres writes it: `1 day 02:03:04.5`."""
    if text is None:
        return None
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise StoreRefused(f"the API answered an interval in an unknown style: {text[:40]!r}")
    days, minus, hours, minutes, seconds = match.groups()
    time = timedelta(hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0))
    return timedelta(days=int(days or 0)) + (-time if minus else time)


def from_duration(duration: timedelta | None) -> str | None:
    """An interval as Postgres reads it."""
    return None if duration is None else f"{duration.total_seconds():.6f} seconds"
