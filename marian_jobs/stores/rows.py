"""Rows and statements of `public.marian_jobs`, without any IO: what is sent, and how what comes back is read.

Columns are spelled out everywhere: a prepared `select *` fails for good once a migration has added a column.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import UUID

from marian_jobs.checks import json_text
from marian_jobs.failure import storable
from marian_jobs.job import Enqueued, Held, Job, NewJob, Status
from marian_jobs.store import Failure, Floors, JobFilter, Limit, Poll, Stat, TypeLimit

COLUMNS = ", ".join(f.name for f in fields(Job))
_STATUS = {status.value: status for status in Status}
_PAGE_LIMIT = 1000


class Statement(NamedTuple):
    """SQL text with its parameters, in psycopg's notation."""

    text: str
    parameters: Sequence[Any]


class _OpenJob:
    """A job while it is filled in: a frozen dataclass's own way takes five times as long."""

    __slots__ = tuple(field.name for field in fields(Job))

    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None: ...


def to_job(row: Sequence[Any]) -> Job:
    """The job of a row whose columns are `COLUMNS`."""
    job = _OpenJob()
    (
        job.id,
        job.user_id,
        job.type,
        status,
        job.payload,
        job.idempotency_key,
        job.attempts,
        job.max_attempts,
        job.priority,
        job.run_after,
        job.lease_until,
        job.error,
        job.created_at,
        job.updated_at,
    ) = row
    job.status = _STATUS[status]
    job.__class__ = Job  # type: ignore[assignment]  # the same slots: from here on it is one, frozen
    return cast("Job", job)


def to_enqueued(row: Sequence[Any], new: NewJob) -> Enqueued:
    """The answer to enqueueing `new`: the row is its own, or the one that was there before."""
    return Enqueued(*(*row[:3], _STATUS[row[3]], *row[4:14], row[0] == new.id))


def to_stat(row: Sequence[Any]) -> Stat:
    """The line of `job_stats()`."""
    return Stat(row[0], _STATUS[row[1]], *row[2:5])


def enqueue(job: NewJob) -> Statement:
    """The job's row, or that of the live job that owns its key."""
    return Statement(
        f"select {COLUMNS} from public.enqueue_job(%s, %s::jsonb, %s, %s, %s, %s, %s, %s, %s)",
        (
            job.type,
            json_text(job.payload),
            job.user_id,
            job.idempotency_key,
            job.priority,
            job.max_attempts,
            job.run_after,
            job.id,
            job.delay,
        ),
    )


def element(job: NewJob) -> str:
    """The job as an element of `enqueue_jobs`; the payload's text goes in as it is, so that numbers stay exact."""
    fields: dict[str, Any] = {"id": str(job.id), "type": job.type}
    if job.user_id is not None:
        fields["user_id"] = str(job.user_id)
    if job.idempotency_key is not None:
        fields["idempotency_key"] = job.idempotency_key
    if job.priority:
        fields["priority"] = job.priority
    if job.run_after is not None:
        fields["run_after"] = job.run_after.isoformat()
    if job.delay is not None:
        fields["delay"] = f"{job.delay.total_seconds():.6f} seconds"
    fields["max_attempts"] = job.max_attempts
    return f'{json_text(fields)[:-1]},"payload":{json_text(job.payload)}}}'


Room = Mapping[str, int] | None


def claim(limit: int, types: Collection[str] | None, lease: object, room: Room, floors: Floors | None) -> Statement:
    """The claimed rows, in claim order."""
    named = None if types is None and room is None else list(types or room or ())
    bounds = None if room is None or named is None else [room.get(type) for type in named]
    return Statement(
        f"select {COLUMNS} from public.marian_jobs_take(%s, %s::text[], %s, %s::int4[],"
        " %s::text[], %s::int4[], %s::timestamptz[], %s::timestamptz[]) order by priority desc, run_after, created_at",
        (limit, named, lease, bounds, *_floors(floors)),
    )


def _floors(floors: Floors | None) -> tuple[Any, Any, Any, Any]:
    """Types, priorities, and the two columns of the place, in the order that the function asks for."""
    if not floors:
        return None, None, None, None
    places = sorted(floors.items(), key=lambda floor: (floor[0][0], -floor[0][1]))
    return (
        [type for (type, _), _ in places],
        [priority for (_, priority), _ in places],
        [due for _, (due, _) in places],
        [made for _, (_, made) in places],
    )


def rooms(types: Collection[str] | None, room: Mapping[str, int], lease: object) -> tuple[list[str], object, Any]:
    """Types, lease and, parallel to the types, what room each has (None: no bound of its own)."""
    named = list(room if types is None else types)
    return named, lease, [room.get(type) for type in named]


def complete(held: Sequence[Held]) -> Statement:
    """The id and attempt of each token refused: mostly none."""
    return Statement("select id, attempt from public.marian_jobs_settle(%s::uuid[], %s::int4[])", _tokens(held))


def fail(failures: Sequence[Failure]) -> Statement:
    """The rows accepted, in their new state."""
    ordered = sorted(failures, key=lambda f: f.id)
    return Statement(
        f"select {COLUMNS} from public.fail_jobs(%s::uuid[], %s::int4[], %s::text[], %s::interval[], %s::bool[])",
        (
            [f.id for f in ordered],
            [f.attempt for f in ordered],
            [storable(f.error) for f in ordered],
            [f.retry_in for f in ordered],
            [f.dead for f in ordered],
        ),
    )


def extend(held: Sequence[Held], lease: object) -> Statement:
    """The ids still held."""
    return Statement("select * from public.extend_leases(%s::uuid[], %s::int4[], %s)", (*_tokens(held), lease))


def release(held: Sequence[Held], delay: object) -> Statement:
    """The rows given back."""
    return Statement(f"select {COLUMNS} from public.release_jobs(%s::uuid[], %s::int4[], %s)", (*_tokens(held), delay))


def reclaim(limit: int) -> Statement:
    """The rows reclaimed."""
    return Statement(f"select {COLUMNS} from public.reclaim_expired(%s)", (limit,))


def poll(limit: int, types: Collection[str], lease: object, room: Room) -> Statement:
    """The claimed rows in claim order; where `limit` was not filled a last row with no job but when to come again."""
    return Statement(
        f"select reclaimed, due_in, {COLUMNS} from public.marian_jobs_poll(%s, %s::text[], %s, %s::int4[])",
        (limit, *rooms(types, room or {}, lease)),
    )


def pause(type: str) -> Statement:
    """Nothing."""
    return Statement("select public.pause_type(%s)", (type,))


def resume(type: str) -> Statement:
    """Nothing."""
    return Statement("select public.resume_type(%s)", (type,))


def limit_type(type: str, limit: Limit) -> Statement:
    """Nothing."""
    return Statement("select public.limit_type(%s, %s, %s, %s)", (type, limit.max_running, limit.rate, limit.per))


def limits() -> Statement:
    """A row per type that is paused or limited."""
    return Statement("select type, paused, max_running, rate, per, running, started from public.job_limits()", ())


def to_type_limit(row: Sequence[Any]) -> TypeLimit:
    """The line of `job_limits()`."""
    return TypeLimit(*row[:7])


def to_poll(answers: Sequence[Sequence[Any]]) -> Poll:
    """What `poll` answered."""
    jobs = [to_job(row[2:]) for row in answers if row[2] is not None]
    return Poll(jobs, answers[0][0], answers[-1][1])


def may_work() -> Statement:
    """Fails unless the schema is there and its functions may be called; changes nothing."""
    return Statement("select public.marian_jobs_next_due('{}')", ())


def cancel(job_id: UUID) -> Statement:
    """The row, or none."""
    return Statement(f"select {COLUMNS} from public.cancel_job(%s)", (job_id,))


def retry(job_id: UUID, max_attempts: int | None) -> Statement:
    """The row, or none."""
    return Statement(f"select {COLUMNS} from public.retry_job(%s, %s)", (job_id, max_attempts))


def get(job_id: UUID) -> Statement:
    """The row, or none."""
    return Statement(f"select {COLUMNS} from public.marian_jobs where id = %s", (job_id,))


def find(which: JobFilter) -> Statement:
    """A page of rows, newest first."""
    conditions: dict[str, Any] = {
        "status = %s": which.status,
        "type = %s": which.type,
        "user_id = %s": which.user_id,
        "idempotency_key = %s": which.idempotency_key,
    }
    wanted = {condition: value for condition, value in conditions.items() if value is not None}
    parameters = list(wanted.values())
    texts = list(wanted)
    if which.before is not None:
        texts.append("(created_at, id) < (%s, %s)")
        parameters.extend(which.before)
    where = f" where {' and '.join(texts)}" if texts else ""
    return Statement(
        f"select {COLUMNS} from public.marian_jobs{where} order by created_at desc, id desc limit %s",
        (*parameters, min(which.limit, _PAGE_LIMIT)),
    )


def prune(succeeded_older: object, dead_older: object, limit: int) -> Statement:
    """One count."""
    return Statement("select public.prune_jobs(%s, %s, %s)", (succeeded_older, dead_older, limit))


def stats() -> Statement:
    """A row per type and status."""
    return Statement("select type, status, count, oldest_due_age, expired_leases from public.job_stats()", ())


def still_held(held: Sequence[Held], ids: Collection[UUID]) -> set[Held]:
    """Of an extension's tokens those that hold: an id is held by its newest attempt."""
    newest: dict[UUID, int] = {}
    for token in held:
        newest[token.id] = max(token.attempt, newest.get(token.id, 0))
    return {Held(id, newest[id]) for id in ids}


def _tokens(held: Sequence[Held]) -> tuple[str, str]:
    """Ids and attempts as the texts of arrays.

    Array literals by hand: the driver would find the type of each element anew, at three times the cost.
    """
    ids = ",".join(["%032x" % token.id.int for token in held])  # noqa: UP031  a third of the time goes into this
    attempts = ",".join([str(token.attempt) for token in held])
    return f"{{{ids}}}", f"{{{attempts}}}"
