"""The life of a job, as data and pure functions: no clock, no database.

The diagram
-----------
    queued ──claim──▶ running ──complete──▶ succeeded
       ▲                 │ ├─fail, attempts < max──▶ retrying ──claim──▶ running
       │                 │ ├─fail, attempts >= max, or a permanent error──▶ dead
       ├───release───────┘ └─reclaim (lease over): retrying, or dead when attempts >= max
       └───retry (by an operator)─── dead            queued/retrying/running ──cancel──▶ dead

`MOVES` is this diagram; the functions below are its arrows, and SQL's functions of the same names are the same arrows
in the database. A property test drives both with the same random sequences and compares the rows after every move.

The theory
----------
*Lease.* A claim does not lock a job, it borrows it: `lease_until` says until when. A worker that dies gives nothing
back; the lease runs out and anybody may reclaim the job. So a job is started at least once, and sometimes twice.

*Fencing token.* `attempts` is incremented by the claim and by nothing else, and never goes down. Each claim therefore
has a number that no other claim of the job has, and whatever a worker reports names the number it was given. A report
whose number is not the row's, or that comes when the row is no longer running, is late: it is refused and changes
nothing. That is why a result is *accepted* at most once per attempt, however often the job was started.

*Running iff leased.* `status = 'running'` and `lease_until` being set are the same fact; a completion whose lease has
run out but that nobody has reclaimed is still the only claim on the job, and counts.

*Budget.* `max_attempts` bounds the claims. Two moves enlarge it rather than lower `attempts`: `release` by one (a
deploy costs a job nothing), `retry` by the former budget (an operator grants a fresh one).

Every function returns the changed job, or raises `InvalidTransition` and changes nothing. `now` is always an argument.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from marian_jobs.backoff import Backoff
from marian_jobs.errors import InvalidTransition
from marian_jobs.job import RUNNABLE, Job, Status

LEASE: Final = timedelta(seconds=30)
MOST_ATTEMPTS: Final = 2**31 - 1
LEASE_OVER: Final = "lease ran out: the worker was lost or too slow"
CANCELLED: Final = "cancelled"

Q, R, T, S, D = Status.QUEUED, Status.RUNNING, Status.RETRYING, Status.SUCCEEDED, Status.DEAD

MOVES: Final[dict[str, dict[Status, frozenset[Status]]]] = {
    "claim": {Q: frozenset({R}), T: frozenset({R})},
    "complete": {R: frozenset({S})},
    "fail": {R: frozenset({T, D})},
    "reclaim": {R: frozenset({T, D})},
    "release": {R: frozenset({Q})},
    "cancel": {Q: frozenset({D}), T: frozenset({D}), R: frozenset({D})},
    "retry": {D: frozenset({Q})},
}


def is_runnable(job: Job, now: datetime) -> bool:
    """Whether a claim at `now` may take the job: waiting, and due."""
    return job.status in RUNNABLE and job.run_after <= now


def is_expired(job: Job, now: datetime) -> bool:
    """Whether the job's lease is over at `now`."""
    return job.lease_until is not None and job.lease_until <= now


def is_held(job: Job, attempt: int) -> bool:
    """Whether the attempt is the one that runs now: the fencing test before complete, fail, extend and release."""
    return job.status is R and job.attempts == attempt


def was_completed_by(job: Job, attempt: int) -> bool:
    """Whether this very attempt has completed the job already, so that its report came a second time."""
    return job.status is S and job.attempts == attempt


def was_failed_by(job: Job, attempt: int, error: str) -> bool:
    """Whether the job stands as this very failure left it, so that its report came a second time."""
    return job.status in (T, D) and job.attempts == attempt and job.error == error


def claim_order(job: Job) -> tuple[int, datetime, datetime]:
    """The key by which claims choose: highest priority, then oldest due, then oldest made."""
    return (-job.priority, job.run_after, job.created_at)


def claim(job: Job, *, now: datetime, lease: timedelta = LEASE) -> Job:
    """The job running under a lease until `now + lease`, its attempts one more; refused unless waiting and due."""
    _allow("claim", job)
    if job.run_after > now:
        raise InvalidTransition(f"claim: job {job.id} is not due before {job.run_after.isoformat()}")
    if lease <= timedelta(0):
        raise InvalidTransition(f"claim: a lease must be longer than zero, got {lease}")
    if job.attempts >= MOST_ATTEMPTS:
        raise InvalidTransition(f"claim: job {job.id} has used every attempt there is")
    return replace(job, status=R, attempts=job.attempts + 1, lease_until=now + lease, updated_at=now)


def complete(job: Job, *, now: datetime) -> Job:
    """The job succeeded, its lease and error cleared; refused unless running."""
    _allow("complete", job)
    return replace(job, status=S, lease_until=None, error=None, updated_at=now)


def fail(
    job: Job,
    *,
    now: datetime,
    error: str,
    backoff: Backoff | timedelta | None = None,
    permanent: bool = False,
) -> Job:
    """The job retrying after its backoff, or dead (budget used, or a permanent error); refused unless running.

    `backoff` is a schedule (its delay for this attempt, without jitter) or the delay itself.
    """
    _allow("fail", job)
    if permanent or job.is_last_attempt:
        return replace(job, status=D, lease_until=None, error=error, updated_at=now)
    delay = backoff if isinstance(backoff, timedelta) else (backoff or Backoff()).delay(job.attempts)
    return replace(job, status=T, lease_until=None, error=error, run_after=now + delay, updated_at=now)


def extend(job: Job, *, now: datetime, lease: timedelta = LEASE) -> Job:
    """The job with its lease running until `now + lease`; refused unless running."""
    if job.status is not R:
        raise InvalidTransition(f"extend: job {job.id} is {job.status}")
    if lease <= timedelta(0):
        raise InvalidTransition(f"extend: a lease must be longer than zero, got {lease}")
    return replace(job, lease_until=now + lease, updated_at=now)


def release(job: Job, *, now: datetime, delay: timedelta = timedelta(0)) -> Job:
    """The job queued again after `delay`, one attempt added to its budget; refused unless running."""
    _allow("release", job)
    return replace(
        job,
        status=Q,
        lease_until=None,
        run_after=now + delay,
        max_attempts=_enlarged(job.max_attempts, 1),
        updated_at=now,
    )


def reclaim(job: Job, *, now: datetime) -> Job:
    """The job retrying and due at once, or dead when its budget is used; refused unless its lease is over."""
    _allow("reclaim", job)
    if not is_expired(job, now):
        raise InvalidTransition(f"reclaim: job {job.id} is leased until {job.lease_until}")
    return replace(
        job,
        status=D if job.is_last_attempt else T,
        lease_until=None,
        error=LEASE_OVER,
        run_after=job.run_after if job.is_last_attempt else now,
        updated_at=now,
    )


def cancel(job: Job, *, now: datetime) -> Job:
    """The job dead with the error "cancelled"; refused when it is already finished."""
    _allow("cancel", job)
    return replace(job, status=D, lease_until=None, error=CANCELLED, updated_at=now)


def retry(job: Job, *, now: datetime, max_attempts: int | None = None) -> Job:
    """The job queued and due at once, its budget (or `max_attempts`) granted anew; refused unless dead."""
    _allow("retry", job)
    budget = job.max_attempts if max_attempts is None else max_attempts
    return replace(
        job,
        status=Q,
        run_after=now,
        max_attempts=_enlarged(job.attempts, budget),
        updated_at=now,
    )


def _allow(move: str, job: Job) -> None:
    if job.status not in MOVES[move]:
        allowed = ", ".join(sorted(MOVES[move]))
        raise InvalidTransition(f"{move}: job {job.id} is {job.status}, and only {allowed} can {move}")


def _enlarged(count: int, by: int) -> int:
    return min(count + by, MOST_ATTEMPTS)
