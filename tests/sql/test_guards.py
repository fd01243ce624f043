"""Each function's guards, one by one: what it refuses, with which code, and that a refusal changes nothing."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

NOBODY = "00000000-0000-0000-0000-000000000000"
MOVES = [
    "claim_job()",
    "claim_jobs(1)",
    "complete_job('{id}', 1)",
    "complete_jobs(array['{id}']::uuid[], array[1])",
    "marian_jobs_settle(array['{id}']::uuid[], array[1])",
    "fail_job('{id}', 1, 'e')",
    "extend_leases(array['{id}']::uuid[], array[1])",
    "release_jobs(array['{id}']::uuid[], array[1])",
    "reclaim_expired()",
    "cancel_job('{id}')",
    "retry_job('{id}')",
    "prune_jobs('0', '0')",
]
REFUSED = [
    "claim_jobs(0)", "claim_jobs(1001)", "claim_jobs(null)", "claim_jobs(-1)",
    "claim_job(null, '0')", "claim_job(null, '-1 second')", "claim_job(null, '366 days')", "claim_job(null, null)",
    "extend_leases(array['{id}']::uuid[], array[1], '0')", "extend_leases(array['{id}']::uuid[], array[1], '366 days')",
    "extend_leases(array['{id}']::uuid[], array[1, 2])", "extend_leases(null, array[1])",
    "complete_jobs(array['{id}']::uuid[], array[]::int[])", "complete_jobs(array['{id}']::uuid[], null)",
    "release_jobs(array['{id}']::uuid[], array[1, 2])", "release_jobs(array['{id}']::uuid[], array[1], '-1 second')",
    "release_jobs(array['{id}']::uuid[], array[1], '366 days')", "release_jobs(array['{id}']::uuid[], array[1], null)",
    "fail_jobs(array['{id}']::uuid[], array[1, 2], array['e'])", "fail_job('{id}', 1, 'e', '-1 second')",
    "reclaim_expired(0)", "reclaim_expired(1001)", "reclaim_expired(null)",
    "retry_job('{id}', 0)", "prune_jobs('-1 second', null)", "prune_jobs(null, '-1 second')", "prune_jobs('0', '0', 0)",
    "prune_jobs('0', '0', null)",
]  # fmt: skip
ACCEPTED = [
    "claim_jobs(1000)", "claim_job(null, '365 days')", "release_jobs(array['{id}']::uuid[], array[1], '365 days')",
    "reclaim_expired(1)", "reclaim_expired(1000)", "retry_job('{id}', 1)", "prune_jobs('0', '0', 1)",
]  # fmt: skip


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    with psycopg.connect(database, autocommit=True, row_factory=dict_row) as connection:
        yield connection


def rows(connection: psycopg.Connection[dict[str, Any]]) -> list[dict[str, Any]]:
    return connection.execute("select * from public.marian_jobs order by type").fetchall()


@pytest.fixture
def running(connection: psycopg.Connection[dict[str, Any]]) -> UUID:
    """A job in its first attempt, beside one of each other state."""
    for type, move in {
        "waiting": "", "done": "complete_job(%s, 1)", "retrying": "fail_job(%s, 1, 'e')", "dead": "cancel_job(%s)",
    }.items():  # fmt: skip
        made = connection.execute("select id from public.enqueue_job(%s)", (type,)).fetchone()
        assert made is not None
        if move:
            connection.execute("select from public.claim_job(array[%s])", (type,))
            connection.execute(f"select from public.{move}", (made["id"],))
    connection.execute("select from public.enqueue_job('running')")
    held = connection.execute("select id from public.claim_job(array['running'])").fetchone()
    assert held is not None
    id: UUID = held["id"]
    return id


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("move", MOVES)
def test_a_move_in_a_transaction_of_an_older_snapshot_is_refused(
    connection: psycopg.Connection[dict[str, Any]], running: UUID, move: str, level: str
) -> None:
    before = rows(connection)
    with connection.transaction():
        connection.execute(f"set transaction isolation level {level}")
        with pytest.raises(psycopg.Error) as refused, connection.transaction():
            connection.execute(f"select public.{move.format(id=running)}")
    assert refused.value.sqlstate == "MJ425"
    assert rows(connection) == before


@pytest.mark.parametrize("call", REFUSED)
def test_an_argument_out_of_range_is_refused(
    connection: psycopg.Connection[dict[str, Any]], running: UUID, call: str
) -> None:
    before = rows(connection)
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(f"select public.{call.format(id=running)}")
    assert refused.value.sqlstate == "MJ400"
    assert rows(connection) == before


@pytest.mark.parametrize("call", ACCEPTED)
def test_the_last_value_in_range_is_accepted(
    connection: psycopg.Connection[dict[str, Any]], running: UUID, call: str
) -> None:
    connection.execute(f"select public.{call.format(id=running)}")


@pytest.mark.parametrize("status", ["succeeded", "dead"])
def test_a_finished_job_is_not_cancelled(
    connection: psycopg.Connection[dict[str, Any]], running: UUID, status: str
) -> None:
    before = rows(connection)
    for job in before:
        if job["status"] == status:
            assert connection.execute("select * from public.cancel_job(%s)", (job["id"],)).fetchall() == []
    assert rows(connection) == before


@pytest.mark.parametrize("status", ["queued", "running", "retrying"])
def test_an_unfinished_job_is_cancelled_and_loses_its_lease(
    connection: psycopg.Connection[dict[str, Any]], running: UUID, status: str
) -> None:
    (job,) = [job for job in rows(connection) if job["status"] == status]
    (cancelled,) = connection.execute("select * from public.cancel_job(%s)", (job["id"],)).fetchall()
    changed = {"status": "dead", "lease_until": None, "error": "cancelled", "updated_at": cancelled["updated_at"]}
    assert cancelled == {**job, **changed}
    assert cancelled["updated_at"] > job["updated_at"]


@pytest.mark.parametrize("status", ["queued", "running", "retrying", "succeeded"])
def test_only_a_dead_job_is_queued_again(
    connection: psycopg.Connection[dict[str, Any]], running: UUID, status: str
) -> None:
    before = rows(connection)
    (job,) = [job for job in before if job["status"] == status]
    assert connection.execute("select * from public.retry_job(%s)", (job["id"],)).fetchall() == []
    assert rows(connection) == before


@pytest.mark.parametrize("report", [m for m in MOVES if ", 1" in m or "array[1]" in m])
@pytest.mark.parametrize("late", ["{id}, 0", "{id}, 2", NOBODY])
def test_a_report_of_another_attempt_or_of_no_job_changes_nothing(
    connection: psycopg.Connection[dict[str, Any]], running: UUID, report: str, late: str
) -> None:
    id, _, attempt = late.format(id=running).partition(", ")
    call = report.format(id=id).replace("array[1]", f"array[{attempt or 1}]").replace("', 1", f"', {attempt or 1}")
    before = rows(connection)
    answered = connection.execute(f"select * from public.{call}").fetchall()
    # settle alone answers with what it refused
    assert len(answered) == (1 if "settle" in call else 0)
    assert rows(connection) == before


@pytest.mark.parametrize("report", [m for m in MOVES if ", 1" in m or "array[1]" in m])
def test_a_report_touches_its_own_job_alone(
    connection: psycopg.Connection[dict[str, Any]], running: UUID, report: str
) -> None:
    others = [job for job in rows(connection) if job["id"] != running]
    connection.execute(f"select from public.{report.format(id=running)}")
    assert [job for job in rows(connection) if job["id"] != running] == others
