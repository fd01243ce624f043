"""What the table itself refuses, whoever writes: K20 and the contract's checks; and arguments of the functions."""

from typing import Any

import psycopg
import pytest


def run(dsn: str, text: str, *parameters: object) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(text, parameters).fetchall()


@pytest.mark.parametrize(
    ("column", "value", "check"),
    [
        ("attempts", -1, "attempts"),
        ("max_attempts", 0, "max_attempts"),
        ("max_attempts", -1, "max_attempts"),
        ("type", "", "type"),
        ("type", "  \t", "type"),
        ("type", "x" * 129, "type"),
        ("idempotency_key", "", "idempotency_key"),
        ("idempotency_key", "  ", "idempotency_key"),
        ("idempotency_key", "a" * 513, "idempotency_key"),
        ("payload", "[]", "payload"),
        ("payload", "1", "payload"),
        ("run_after", "infinity", "run_after"),
        ("run_after", "-infinity", "run_after"),
        ("run_after", "10000-01-01 00:00:00+00", "run_after"),
        ("run_after", "0044-03-15 BC", "run_after"),
        ("status", "waiting", "status"),
        ("status", "running", "lease_until"),
        ("lease_until", "2030-01-01", "lease_until"),
    ],
)
def test_a_row_that_cannot_be_is_refused_by_its_named_check(
    database: str, column: str, value: object, check: str
) -> None:
    columns = {"type": "t", column: value}
    text = (
        f"insert into public.marian_jobs ({', '.join(columns)}) values ({', '.join(['%s'] * len(columns))}) returning 1"
    )
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        run(database, text, *columns.values())
    assert refusal.value.diag.constraint_name == f"marian_jobs_{check}_check"


@pytest.mark.parametrize(
    "call",
    [
        "claim_jobs(0)",
        "claim_jobs(1001)",
        "claim_jobs(null)",
        "claim_jobs(1, null, '0')",
        "claim_jobs(1, null, '-1 s')",
        "claim_jobs(1, null, null)",
        "claim_jobs(1, null, '366 days')",
        "reclaim_expired(0)",
        "complete_jobs(array[gen_random_uuid()], '{}')",
        "complete_jobs(null, null)",
        "fail_job(gen_random_uuid(), 1, 'x', '-1 s')",
        "fail_jobs(array[gen_random_uuid()], '{1}', '{}')",
        "extend_leases('{}', '{}', '0')",
        "release_jobs('{}', '{}', '-1 s')",
        "retry_job(gen_random_uuid(), 0)",
        "prune_jobs('-1 s', null)",
        "prune_jobs('1 s', null, 0)",
        "enqueue_jobs('{}')",
        "enqueue_jobs('[1]')",
        'enqueue_jobs(\'[{"type": "t", "prioritty": 1}]\')',
        "enqueue_jobs(null)",
    ],
)
def test_an_argument_out_of_range_is_mj400(database: str, call: str) -> None:
    with pytest.raises(psycopg.Error) as refusal:
        run(database, f"select * from public.{call}")
    assert refusal.value.sqlstate == "MJ400"


@pytest.mark.parametrize(
    "call",
    ["claim_job(array['absent'])", "complete_job(gen_random_uuid(), 1)", "fail_job(gen_random_uuid(), 1, 'x')",
     "cancel_job(gen_random_uuid())", "retry_job(gen_random_uuid())", "reclaim_expired()"],
)  # fmt: skip
def test_nothing_found_is_no_row(database: str, call: str) -> None:
    assert run(database, f"select * from public.{call}") == []


def test_a_raw_row_beyond_its_budget_fails_for_good(database: str) -> None:
    run(database, "insert into public.marian_jobs (type, attempts, max_attempts) values ('t', 7, 3) returning 1")
    ((id, attempts),) = run(database, "select id, attempts from public.claim_job()")
    assert attempts == 8
    assert run(database, "select status from public.fail_job(%s, 8, 'x')", id) == [("dead",)]


def test_a_row_that_has_used_every_attempt_there_is_blocks_nobody(database: str) -> None:
    run(database, "insert into public.marian_jobs (type, attempts) values ('t', 2147483647), ('t', 0) returning 1")
    assert run(database, "select attempts from public.claim_jobs(5)") == [(1,)]


def test_a_column_added_while_sessions_work_breaks_none_of_them(database: str) -> None:
    with psycopg.connect(database, autocommit=True, prepare_threshold=0) as worker:
        claim = "select id, attempts from public.claim_jobs(1)"
        for _ in range(7):
            run(database, "select 1 from public.enqueue_job('t')")
            assert len(worker.execute(claim).fetchall()) == 1
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute("alter table public.marian_jobs add column extra text default 'x'")
        run(database, "select 1 from public.enqueue_job('t')")
        ((id, attempt),) = worker.execute(claim).fetchall()
        assert len(worker.execute("select id from public.complete_job(%s, %s)", (id, attempt)).fetchall()) == 1
