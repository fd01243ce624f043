"""The diagram, move by move: what it does, and that a refused move changes nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from marian_jobs import Backoff, InvalidTransition, Job, Status, machine
from marian_jobs.machine import MOVES

NOW = datetime(2026, 12, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def job(status: Status = Status.QUEUED, **changes: object) -> Job:
    made = Job(
        id=UUID(int=1), user_id=None, type="t", status=status, payload={}, idempotency_key=None, attempts=1,
        max_attempts=3, priority=0, run_after=NOW, lease_until=NOW if status is Status.RUNNING else None, error=None,
        created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def apply(move: str, before: Job) -> Job:
    match move:
        case "claim":
            return machine.claim(before, now=LATER, lease=timedelta(seconds=30))
        case "fail":
            return machine.fail(before, now=LATER, error="boom")
        case "release":
            return machine.release(before, now=LATER, delay=timedelta(0))
        case _:
            moved: Job = getattr(machine, move)(before, now=LATER)
            return moved


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("status", Status)
def test_each_move_leads_where_the_diagram_says_and_nowhere_else(move: str, status: Status) -> None:
    before = job(status)
    if status in MOVES[move]:
        after = apply(move, before)
        assert after.status in MOVES[move][status]
        assert after.updated_at == LATER
        assert (after.lease_until is not None) == (after.status is Status.RUNNING)
    else:
        untouched = replace(before)
        with pytest.raises(InvalidTransition, match=move):
            apply(move, before)
        assert before == untouched


def test_a_job_is_runnable_from_the_very_moment_it_is_due() -> None:
    assert machine.is_runnable(job(run_after=NOW), NOW)
    assert not machine.is_runnable(job(run_after=NOW), NOW - timedelta(microseconds=1))
    assert not machine.is_runnable(job(Status.DEAD), NOW)


def test_a_claim_counts_the_attempt_and_sets_the_lease() -> None:
    claimed = machine.claim(job(attempts=4), now=NOW, lease=timedelta(seconds=7))
    assert (claimed.attempts, claimed.lease_until) == (5, NOW + timedelta(seconds=7))


@pytest.mark.parametrize(
    ("before", "arguments"),
    [
        (job(run_after=LATER), {}),
        (job(), {"lease": timedelta(0)}),
        (job(), {"lease": timedelta(seconds=-1)}),
        (job(attempts=2**31 - 1), {}),
    ],
)
def test_a_claim_that_cannot_be_is_refused(before: Job, arguments: dict[str, timedelta]) -> None:
    with pytest.raises(InvalidTransition):
        machine.claim(before, now=NOW, **arguments)


def test_complete_clears_lease_and_error() -> None:
    done = machine.complete(job(Status.RUNNING, error="earlier"), now=NOW)
    assert (done.status, done.lease_until, done.error) == (Status.SUCCEEDED, None, None)


def test_fail_waits_for_the_backoff_of_its_attempt() -> None:
    failed = machine.fail(job(Status.RUNNING, attempts=2), now=NOW, error="boom", backoff=Backoff())
    assert (failed.status, failed.run_after, failed.error) == (Status.RETRYING, NOW + timedelta(seconds=2), "boom")


@pytest.mark.parametrize(("attempts", "budget"), [(3, 3), (7, 3)])
def test_fail_without_budget_is_dead(attempts: int, budget: int) -> None:
    failed = machine.fail(job(Status.RUNNING, attempts=attempts, max_attempts=budget), now=NOW, error="boom")
    assert (failed.status, failed.attempts) == (Status.DEAD, attempts)


def test_a_permanent_failure_is_dead_whatever_the_budget() -> None:
    assert machine.fail(job(Status.RUNNING), now=NOW, error="x", permanent=True).status is Status.DEAD


def test_reclaim_needs_a_lease_that_is_over() -> None:
    held = job(Status.RUNNING, lease_until=LATER)
    with pytest.raises(InvalidTransition):
        machine.reclaim(held, now=NOW)
    reclaimed = machine.reclaim(held, now=LATER)
    assert (reclaimed.status, reclaimed.run_after, reclaimed.error) == (Status.RETRYING, LATER, machine.LEASE_OVER)


def test_reclaim_without_budget_is_dead() -> None:
    assert machine.reclaim(job(Status.RUNNING, attempts=3), now=NOW).status is Status.DEAD


def test_release_adds_an_attempt_to_the_budget() -> None:
    released = machine.release(job(Status.RUNNING), now=NOW, delay=timedelta(seconds=5))
    assert (released.status, released.attempts, released.max_attempts) == (Status.QUEUED, 1, 4)
    assert released.run_after == NOW + timedelta(seconds=5)


@pytest.mark.parametrize(("asked", "budget"), [(None, 4), (10, 11)])
def test_retry_grants_the_former_budget_or_the_one_asked_for(asked: int | None, budget: int) -> None:
    queued = machine.retry(job(Status.DEAD), now=NOW, max_attempts=asked)
    assert (queued.status, queued.attempts, queued.max_attempts) == (Status.QUEUED, 1, budget)


def test_a_budget_never_overflows() -> None:
    assert machine.release(job(Status.RUNNING, max_attempts=2**31 - 1), now=NOW).max_attempts == 2**31 - 1
    assert machine.retry(job(Status.DEAD, max_attempts=2**31 - 1), now=NOW).max_attempts == 2**31 - 1
