"""Planted among the jobs, and found: what waits, what nobody claims or takes back, what dies."""

from datetime import timedelta

import pytest

from marian_jobs.doctor import Bounds, Severity
from tests.doctor.conftest import Connection, said


def waiting(connection: Connection, type: str, minutes: float) -> None:
    connection.execute(
        "insert into public.marian_jobs (type, run_after) values (%s, now() - %s * interval '1 minute')",
        [type, minutes],
    )


def worked(connection: Connection, type: str, status: str, minutes: float, error: str | None = None) -> None:
    connection.execute(
        "insert into public.marian_jobs (type, status, attempts, error, lease_until, updated_at) values"
        " (%s, %s, 1, %s, case %s when 'running' then now() + interval '1 minute' end,"
        " now() - %s * interval '1 minute')",
        [type, status, error, status, minutes],
    )


def test_due_jobs_that_wait_though_workers_are_at_it_are_found(database: str, connection: Connection) -> None:
    waiting(connection, "embed", 14)
    worked(connection, "embed", "running", 0)
    assert said(database, "oldest-due") == []
    waiting(connection, "embed", 20)
    [found] = said(database, "oldest-due")
    assert found.figures["types"]["embed"]["due"] == 2
    assert found.figures["types"]["embed"]["oldest_due_age"] >= timedelta(minutes=20)
    assert said(database, "unclaimed-types") == []
    assert said(database, "oldest-due", Bounds(due=timedelta(hours=1))) == []


def test_a_limit_that_may_be_why_they_wait_is_named(database: str, connection: Connection) -> None:
    waiting(connection, "embed", 20)
    worked(connection, "embed", "running", 0)
    connection.execute("select public.limit_type('embed', 1)")
    [found] = said(database, "oldest-due")
    assert "A limit bounds 'embed'" in found.advice


def test_a_type_that_no_worker_claims_is_found_and_one_that_is_worked_is_not(
    database: str, connection: Connection
) -> None:
    waiting(connection, "young", 4)
    for type in ("misspelt", "worked", "abandoned"):
        waiting(connection, type, 6)
    worked(connection, "worked", "succeeded", 1)
    worked(connection, "abandoned", "succeeded", 60)
    [found] = said(database, "unclaimed-types")
    assert set(found.figures["types"]) == {"misspelt", "abandoned"}
    assert found.severity is Severity.ERROR


def test_a_paused_type_is_noted_and_its_waiting_jobs_are_no_fault(database: str, connection: Connection) -> None:
    assert said(database, "paused-types") == []
    waiting(connection, "embed", 600)
    connection.execute("select public.pause_type('embed')")
    [found] = said(database, "paused-types")
    assert (found.severity, found.text) == (Severity.NOTE, "paused: 'embed' (1 due)")
    assert said(database, "oldest-due") == said(database, "unclaimed-types") == []


def test_a_lease_that_is_over_and_that_nobody_takes_back_is_found(database: str, connection: Connection) -> None:
    connection.execute("select public.enqueue_job('t')")
    connection.execute("select public.claim_job(null, '1 millisecond')")
    assert said(database, "expired-leases") == []  # any worker would have it within seconds
    [found] = said(database, "expired-leases", Bounds(expired=timedelta(0)))
    assert found.figures["expired_leases"] == 1
    connection.execute("update public.marian_jobs set lease_until = now() - interval '2 minutes'")
    [found] = said(database, "expired-leases")
    assert "the oldest for 2 min" in found.text
    connection.execute("select public.reclaim_expired()")
    assert said(database, "expired-leases") == []


@pytest.mark.parametrize(("dead", "succeeded", "error", "is_found"), [
    (10, 100, "boom", True), (9, 0, "boom", False), (10, 1000, "boom", False), (50, 0, "cancelled", False),
])  # fmt: skip
def test_many_jobs_that_died_in_the_last_hour_are_found(
    dead: int, succeeded: int, error: str, is_found: bool, database: str, connection: Connection
) -> None:
    for _ in range(20):
        worked(connection, "t", "dead", 90, "long ago")
    assert said(database, "dead-letters") == []
    for _ in range(dead):
        worked(connection, "t", "dead", 5, error)
    connection.execute(
        "insert into public.marian_jobs (type, status) select 't', 'succeeded' from generate_series(1, %s)", [succeeded]
    )
    assert [f.figures for f in said(database, "dead-letters")] == (
        [{"type": "t", "dead": dead, "ended": dead + succeeded}] if is_found else []
    )
