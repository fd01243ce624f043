"""Which locks the functions take, read from pg_locks, and in which order: two that share rows cannot deadlock."""

import asyncio
import json
import time
from datetime import timedelta

import pytest
from psycopg import conninfo

from marian_jobs import PostgresStore
from marian_jobs.job import Held
from tests.fix_postgres import Server
from tests.races.sessions import Meeting, Session

HELD = """
select c.relname, l.mode from pg_locks l join pg_class c on c.oid = l.relation
 where l.pid = pg_backend_pid() and c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
"""
READS, LOCKS_ROWS, WRITES = "AccessShareLock", "RowShareLock", "RowExclusiveLock"
STRENGTHS = [READS, LOCKS_ROWS, WRITES]
JOBS, LIMITS = "marian_jobs", "marian_job_limits"

# The strongest lock that each call leaves on each table. None is stronger than a plain write's, so no call ever keeps
# another, a vacuum or a backup from the table.
TAKES = {
    "enqueue_job('t')": {JOBS: WRITES},
    'enqueue_jobs(\'[{"type": "t"}]\')': {JOBS: WRITES},
    "claim_jobs(1)": {JOBS: WRITES, LIMITS: READS},
    "claim_jobs(1, array['limited'])": {JOBS: WRITES, LIMITS: WRITES},
    "complete_job(%(id)s, 1)": {JOBS: WRITES},
    "fail_job(%(id)s, 1, 'boom')": {JOBS: WRITES},
    "extend_leases(array[%(id)s::uuid], '{1}')": {JOBS: WRITES},
    "release_jobs(array[%(id)s::uuid], '{1}')": {JOBS: WRITES},
    "reclaim_expired()": {JOBS: LOCKS_ROWS},  # nothing has expired: it looks, and locks what it would take
    "cancel_job(%(id)s)": {JOBS: WRITES},
    "retry_job(%(id)s)": {JOBS: WRITES},
    "prune_jobs('0', '0')": {JOBS: WRITES},
    "job_stats()": {JOBS: READS},
    "job_backoff(1)": {},
    "pause_type('t')": {LIMITS: WRITES},
    "resume_type('t')": {LIMITS: WRITES},
    "limit_type('t', 1)": {LIMITS: WRITES},
}
REPORTS = {
    "complete_jobs": "select public.complete_jobs(%s::uuid[], '{1,1}')",
    "settle": "select public.marian_jobs_settle(%s::uuid[], '{1,1}')",
    "fail_jobs": "select public.fail_jobs(%s::uuid[], '{1,1}', '{e,e}')",
    "release_jobs": "select public.release_jobs(%s::uuid[], '{1,1}')",
}
UNLOCKED = "select id from public.marian_jobs for update skip locked"


@pytest.mark.parametrize("call", TAKES)
def test_a_call_takes_no_stronger_lock_on_a_table_than_it_says(met: Meeting, call: str) -> None:
    id = met.running()
    met.queued(priority=1)
    met.queued(type="limited")
    if "limited" in call:
        met.ask("select public.limit_type('limited', p_rate => 1, p_per => '1 hour')")
    cursor = met.first.connection.execute(f"select * from public.{call}".encode(), {"id": id})
    cursor.fetchall()
    strongest: dict[str, str] = {}
    for table, mode in met.first.do(HELD):
        strongest[table] = max(mode, strongest.get(table, READS), key=STRENGTHS.index)
    assert strongest == TAKES[call]


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_takes_its_rows_in_the_order_of_their_ids(met: Meeting, report: str) -> None:
    low, high = sorted([met.running(), met.running()])
    met.first.do("select 1 from public.marian_jobs where id = %s for update", low)
    met.second.start_and_wait(REPORTS[report], [high, low])
    assert met.ask(UNLOCKED) == [(high,)]  # it waits for the first and holds nothing yet


@pytest.mark.parametrize("one", REPORTS)
def test_two_reports_of_the_same_rows_in_opposite_orders_do_not_deadlock(met: Meeting, one: str) -> None:
    for other in REPORTS.values():
        low, high = sorted([met.running(), met.running()])
        met.first.do("select 1 from public.marian_jobs where id = %s for update", low)
        waiting = met.second.start_and_wait(REPORTS[one], [high, low])
        met.first.do(other, [low, high])
        met.first.commit()
        waiting.result(5)
        met.second.commit()


def test_a_bulk_load_takes_its_keys_in_order(met: Meeting) -> None:
    met.first.do("select id from public.enqueue_job('t', p_idempotency_key => 'a')")
    met.second.start_and_wait("select id from public.enqueue_jobs(%s)", load("b", "a"))
    met.bystander.execute("set lock_timeout = '1s'")
    assert len(met.ask("select id from public.enqueue_job('t', p_idempotency_key => 'b')")) == 1


def test_bulk_loads_with_overlapping_keys_in_opposite_orders_wait_for_each_other(met: Meeting) -> None:
    first = met.first.do("select id from public.enqueue_jobs(%s)", load("b", "c", "a"))
    waiting = met.second.start_and_wait("select id from public.enqueue_jobs(%s)", load("d", "a", "c", "b"))
    met.first.commit()
    (_, (a,), (c,), (b,)) = waiting.result(5)
    assert [(b,), (c,), (a,)] == first
    met.second.commit()
    assert met.ask("select count(*) from public.marian_jobs") == [(4,)]


async def test_a_completion_that_is_chosen_as_a_deadlocks_victim_is_sent_again(met: Meeting, server: Server) -> None:
    """Postgres deletes an account's jobs in an order of its own: the one deadlock that our order cannot rule out."""
    low, high = sorted([met.running(), met.running()])
    name = str(conninfo.conninfo_to_dict(met.dsn)["dbname"])
    patient = server.socket_dsn(role="supabase_admin", database=name)
    deletion = Session(conninfo.make_conninfo(patient, options="-c deadlock_timeout=1min"), met.bystander)
    try:
        deletion.do("delete from public.marian_jobs where id = %s", high)
        async with PostgresStore(met.dsn, deadline=timedelta(seconds=20)) as store:
            completing = asyncio.create_task(store.complete([Held(low, 1), Held(high, 1)]))
            await asyncio.to_thread(_until_somebody_waits, met)
            deleted = deletion.start("delete from public.marian_jobs where id = %s returning id", low)
            assert await asyncio.to_thread(deleted.result, 10) == [(low,)]
            deletion.commit()
            assert await completing == set()
    finally:
        deletion.close()


def load(*keys: str) -> str:
    return json.dumps([{"type": "t", "idempotency_key": key} for key in keys])


def _until_somebody_waits(met: Meeting) -> None:
    end = time.monotonic() + 10
    text = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    while not met.ask(text):
        assert time.monotonic() < end
        time.sleep(0.01)
