"""Many new jobs as columns: the arguments of `marian_jobs_load`, and how its answer is read, without any IO.

Array literals by hand, and only for columns that are not all defaults: the driver's own would take longer than the
server takes for the rows.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from marian_jobs.checks import json_text
from marian_jobs.job import Enqueued, NewJob, Status
from marian_jobs.stores.rows import COLUMNS, Statement, to_enqueued

_US = timedelta(microseconds=1)
_LOAD = f"""
select n, {COLUMNS}
  from public.marian_jobs_load(%s::uuid[], %s::text[], %s, %s::uuid[], %s::text[], %s::int4[], %s::int4[],
                               %s::timestamptz[], %s::interval[])
"""


def load(jobs: Sequence[NewJob]) -> Statement:
    """A row with the moment of the call, then one for each job that met another."""
    return Statement(
        _LOAD,
        (
            _array([job.id.hex for job in jobs]),
            _array([_quoted_type(job.type) for job in jobs]),
            "\n".join([json_text(job.payload) for job in jobs]),
            _unless_default([job.user_id for job in jobs], None, str),
            _unless_default([job.idempotency_key for job in jobs], None, _quoted),
            _unless_default([job.priority for job in jobs], 0, str),
            _unless_default([job.max_attempts for job in jobs], 3, str),
            _unless_default([job.run_after for job in jobs], None, _moment),
            _unless_default([job.delay for job in jobs], None, _interval),
        ),
    )


def created(jobs: Sequence[NewJob], answers: Sequence[Sequence[Any]]) -> int:
    """How many jobs the call made, or made before when it is a repetition."""
    return len(jobs) - sum(1 for row in answers[1:] if row[1] != jobs[row[0] - 1].id)


def to_enqueueds(jobs: Sequence[NewJob], answers: Sequence[Sequence[Any]]) -> list[Enqueued]:
    """One answer per job: what was made is known but for its times, what it met came back."""
    now: datetime = answers[0][13]
    met = {row[0]: row[1:] for row in answers[1:]}
    return [to_enqueued(met[n], job) if n in met else _made(job, now, now + n * _US) for n, job in enumerate(jobs, 1)]


def _made(job: NewJob, now: datetime, created_at: datetime) -> Enqueued:
    return Enqueued(
        id=job.id,
        user_id=job.user_id,
        type=job.type,
        status=Status.QUEUED,
        payload=job.payload,
        idempotency_key=job.idempotency_key,
        attempts=0,
        max_attempts=job.max_attempts,
        priority=job.priority,
        run_after=job.run_after or (now if job.delay is None else now + job.delay),
        lease_until=None,
        error=None,
        created_at=created_at,
        updated_at=now,
        created=True,
    )


def _array(elements: Iterable[str]) -> str:
    return f"{{{','.join(elements)}}}"


def _unless_default(values: list[Any], default: object, text: Callable[[Any], str]) -> str | None:
    if values.count(default) == len(values):
        return None
    return _array("null" if value is None else text(value) for value in values)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_quoted_type = lru_cache(maxsize=1024)(_quoted)


def _moment(value: datetime) -> str:
    return f'"{value.isoformat()}"'


def _interval(value: timedelta) -> str:
    return f'"{value.total_seconds():.6f} seconds"'
