"""Limits cost a claim nothing that grows, and hold to the last start also when claims wait for each other."""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.fix_postgres import Server

CLAIM = "select id, attempts, updated_at, lease_until from public.claim_jobs(%s, array['t'], %s)"
FILL = """
insert into public.marian_jobs (type, run_after, created_at)
select %s, clock_timestamp() - interval '1 hour', clock_timestamp() + n * interval '1 microsecond'
  from generate_series(1, %s) n
"""


def connected(dsn: str, *, autocommit: bool = True) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=autocommit)


def one(connection: psycopg.Connection[Any], text: str, *parameters: object) -> Any:
    ((value,),) = connection.execute(text.encode(), parameters).fetchall()
    return value


def wait_until_blocked(dsn: str, pid: int) -> None:
    """Returns when the session waits for a lock."""
    with connected(dsn) as connection:
        end = time.monotonic() + 10
        while not one(connection, "select cardinality(pg_blocking_pids(%s)) > 0", pid):
            assert time.monotonic() < end, "the session never waited"
            time.sleep(0.005)


@pytest.fixture
def superuser(server: Server, database: str) -> Iterator[psycopg.Connection[Any]]:
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with psycopg.connect(server.socket_dsn(role="supabase_admin", database=str(name)), autocommit=True) as connection:
        connection.execute("alter table public.marian_jobs set (autovacuum_enabled = off)")
        yield connection


def pages(connection: psycopg.Connection[Any], type: str) -> int:
    """How many pages a claim of ten touches, once everything is in its place: the fewest of several."""
    counts = []
    for _ in range(8):
        with connection.transaction(force_rollback=True):
            plan = one(
                connection,
                "explain (analyze, buffers, format json) select * from public.claim_jobs(10, array[%s, 'paused'])",
                type,
            )
        counts.append(int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]))
    return min(counts)


def test_what_limits_cost_a_claim_is_the_same_in_a_backlog_of_200000_as_of_1000(
    superuser: psycopg.Connection[Any],
) -> None:
    superuser.execute("select public.limit_type('limited', 100000, 1000, '1 hour')")
    superuser.execute("select public.pause_type('paused')")
    extra = []
    for rows in (500, 99_500):  # of either type
        superuser.execute(FILL, ["limited", rows])
        superuser.execute(FILL, ["free", rows])
        superuser.execute("analyze public.marian_jobs")
        with_limits, without = pages(superuser, "limited"), pages(superuser, "free")
        assert with_limits <= 1.2 * without
        extra.append(with_limits - without)
    few, many = extra
    assert many <= few + 3, extra


def test_a_claim_that_waited_for_another_starts_when_it_is_granted(database: str) -> None:
    """Its lease is whole, and not over when it is granted; its start counts from now."""
    with connected(database) as waiting, connected(database, autocommit=False) as holder, connected(database) as clock:
        waiting.execute("select public.enqueue_job('t')")
        waiting.execute("select public.limit_type('t', p_max_running => 1, p_rate => 1, p_per => '1 hour')")
        holder.execute("select from public.marian_job_limits for update")
        rows: list[Any] = []
        claim = threading.Thread(
            target=lambda: rows.extend(waiting.execute(CLAIM, (1, timedelta(milliseconds=400))).fetchall())
        )
        claim.start()
        wait_until_blocked(database, waiting.info.backend_pid)
        clock.execute("select pg_sleep(0.5)")  # longer than the lease
        released_at = one(clock, "select clock_timestamp()")
        holder.commit()
        claim.join(10)
        ((_, attempts, claimed_at, lease_until),) = rows
        assert attempts == 1
        assert claimed_at > released_at
        assert lease_until == claimed_at + timedelta(milliseconds=400)
        (started,) = one(clock, "select started from public.marian_job_limits")
        assert started == claimed_at


def test_a_start_is_counted_although_a_later_claim_was_granted_first(database: str) -> None:
    """One of two claims waits; while it does, the other's start ages. Neither forgets what lies within the period."""
    with connected(database) as first, connected(database, autocommit=False) as holder, connected(database) as clock:
        first.execute("select public.enqueue_job('t') from generate_series(1, 9)")
        first.execute("select public.limit_type('t', p_rate => 1, p_per => '1 second')")
        holder.execute("select from public.marian_job_limits for update")
        rows: list[Any] = []
        early = threading.Thread(target=lambda: rows.extend(first.execute(CLAIM, (1, timedelta(hours=1))).fetchall()))
        early.start()
        wait_until_blocked(database, first.info.backend_pid)
        clock.execute("select pg_sleep(0.7)")
        holder.commit()
        early.join(10)
        clock.execute("select pg_sleep(0.5)")  # 1.2 s since the first was called, 0.5 s since it was granted
        second = clock.execute(CLAIM, (1, timedelta(hours=1))).fetchall()
        assert (len(rows), len(second)) == (1, 0)
