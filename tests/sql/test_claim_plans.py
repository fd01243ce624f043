"""A claim costs the same whatever lies in the table: read from the executed plans, not from the clock."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.fix_postgres import Server
from tests.sql.plans import PlanReader, scans

# Per (type, priority) that a claim passes: the head that is read, and the head behind the run.
PER_LEVEL = 3

FILL = """
insert into public.marian_jobs (id, type, priority, run_after, created_at, status, lease_until)
select gen_random_uuid(), %(type)s, %(priority)s, clock_timestamp() + %(due)s::interval, clock_timestamp(),
       %(status)s, case %(status)s when 'running' then now() + '1 hour'::interval end
  from generate_series(1, %(rows)s)
"""


@pytest.fixture
def superuser(server: Server, database: str) -> Iterator[psycopg.Connection[Any]]:
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with psycopg.connect(server.socket_dsn(role="supabase_admin", database=str(name)), autocommit=True) as connection:
        connection.execute("alter table public.marian_jobs set (autovacuum_enabled = off)")
        yield connection


def fill(
    connection: psycopg.Connection[Any],
    rows: int,
    type: str = "t",
    priority: int = 0,
    due: str = "-1 hour",
    status: str = "queued",
) -> None:
    connection.execute(FILL, {"rows": rows, "type": type, "priority": priority, "due": due, "status": status})


def assert_flat(reader: PlanReader, limit: int, types: list[str] | None, levels: int, *, expected: int) -> None:
    rows, nodes = reader.run("select id from public.claim_jobs(%s, %s::text[])", limit, types)
    assert len(rows) == expected
    read = scans(nodes)
    assert {node.index for node in read if node.index} <= {"marian_jobs_claim_idx"}
    assert {node.kind for node in read} <= {"Index Scan", "Index Only Scan", "Tid Scan"}
    assert not [node for node in nodes if node.kind == "Sort" and node.rows > expected]
    # What is returned is read once by the index and once by its place in the heap.
    assert sum(node.read for node in read) <= 2 * expected + PER_LEVEL * levels
    locked = sum(node.rows for node in nodes if node.kind == "LockRows")
    assert locked == expected


@pytest.mark.parametrize("limit", [1, 100])
def test_a_backlog_is_not_read(superuser: psycopg.Connection[Any], limit: int) -> None:
    fill(superuser, 30_000)
    superuser.execute("analyze public.marian_jobs")
    assert_flat(PlanReader(superuser), limit, ["t"], 1, expected=limit)


@pytest.mark.parametrize("limit", [1, 100])
def test_future_rows_of_a_better_priority_are_not_read(superuser: psycopg.Connection[Any], limit: int) -> None:
    fill(superuser, 100_000, priority=9, due="1 hour")
    fill(superuser, 500)
    superuser.execute("analyze public.marian_jobs")
    assert_flat(PlanReader(superuser), limit, ["t"], 2, expected=limit)


def test_an_idle_claim_reads_one_row_per_level(superuser: psycopg.Connection[Any]) -> None:
    for priority in range(5):
        fill(superuser, 5_000, priority=priority, due="1 hour")
    assert_flat(PlanReader(superuser), 10, ["t", "absent"], 6, expected=0)


def test_foreign_types_are_not_read(superuser: psycopg.Connection[Any]) -> None:
    fill(superuser, 100_000, "bulk")
    fill(superuser, 3, "mail")
    superuser.execute("analyze public.marian_jobs")
    assert_flat(PlanReader(superuser), 10, ["mail"], 1, expected=3)


def test_a_worker_of_twenty_types_reads_a_head_for_each(superuser: psycopg.Connection[Any]) -> None:
    fill(superuser, 20_000, "other")
    for n in range(20):
        fill(superuser, 500, f"t{n}", due=f"-{n + 1} hours")
    assert_flat(PlanReader(superuser), 100, [f"t{n}" for n in range(20)], 21, expected=100)


def test_any_type_is_found_by_skipping_from_type_to_type(superuser: psycopg.Connection[Any]) -> None:
    for n in range(5):
        fill(superuser, 5_000, f"t{n}", due=f"-{n + 1} hours")
    assert_flat(PlanReader(superuser), 10, None, 15, expected=10)


def test_finished_history_is_not_read(superuser: psycopg.Connection[Any]) -> None:
    fill(superuser, 50_000, status="succeeded")
    fill(superuser, 100)
    assert_flat(PlanReader(superuser), 10, ["t"], 1, expected=10)


def test_stale_statistics_change_nothing(superuser: psycopg.Connection[Any]) -> None:
    fill(superuser, 500)
    superuser.execute("analyze public.marian_jobs")
    fill(superuser, 100_000, priority=9, due="1 hour")
    assert_flat(PlanReader(superuser), 1, ["t"], 2, expected=1)


def test_a_plan_cached_on_an_empty_table_serves_a_full_one(superuser: psycopg.Connection[Any]) -> None:
    superuser.execute("analyze public.marian_jobs")
    reader = PlanReader(superuser)
    for _ in range(8):
        reader.run("select id from public.claim_jobs(%s, %s::text[])", 5, ["t"])
    fill(superuser, 50_000)
    assert_flat(reader, 5, ["t"], 1, expected=5)


@pytest.mark.parametrize(
    "method",
    ["nestloop", "hashjoin", "mergejoin", "indexscan", "indexonlyscan", "bitmapscan", "seqscan", "sort", "tidscan",
     "material", "memoize", "incremental_sort", "hashagg"],
)  # fmt: skip
def test_no_session_setting_changes_what_is_claimed(superuser: psycopg.Connection[Any], method: str) -> None:
    fill(superuser, 2_000, "a")
    fill(superuser, 2_000, "b", due="-2 hours")
    superuser.execute(f"set enable_{method} = off")
    assert_flat(PlanReader(superuser), 7, ["a", "b"], 2, expected=7)


def test_completions_go_by_the_primary_key_although_statistics_say_nothing_runs(
    superuser: psycopg.Connection[Any],
) -> None:
    fill(superuser, 20_000)
    superuser.execute("analyze public.marian_jobs")
    claimed = superuser.execute("select id from public.claim_jobs(1000, array['t'])").fetchall()
    fill(superuser, 20_000, status="running")
    reader = PlanReader(superuser)
    rows, nodes = reader.run(
        "select id from public.complete_jobs(%s, %s)", [row[0] for row in claimed], [1] * len(claimed)
    )
    assert len(rows) == 1000
    read = scans(nodes)
    assert {node.index for node in read if node.index} == {"marian_jobs_pkey"}
    assert sum(node.read for node in read) <= 2 * 1000


def test_reclaim_reads_only_what_is_over(superuser: psycopg.Connection[Any]) -> None:
    fill(superuser, 20_000, status="running")
    fill(superuser, 20_000)
    superuser.execute(
        "update public.marian_jobs set lease_until = now() "
        "where id in (select id from public.marian_jobs where status = 'running' limit 3)"
    )
    rows, nodes = PlanReader(superuser).run("select id from public.reclaim_expired()")
    assert len(rows) == 3
    assert sum(node.read for node in scans(nodes)) <= 2 * 3
