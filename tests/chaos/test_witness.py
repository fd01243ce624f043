"""The witness is real: with the fencing, or the one-live-job index, taken out of the database, the judge says so."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from chaos.evidence import cases, install, moves_by_key, read_journals
from chaos.journal import Journal
from chaos.rules import Facts, Verdict, judge, judge_keys
from marian_jobs import Job, PostgresStore, new_job

UNFENCED = """
create or replace function public.marian_jobs_settle(p_ids uuid[], p_attempts integer[])
returns table (id uuid, attempt integer) language sql set search_path = '' as $$
  update public.marian_jobs j set status = 'succeeded', lease_until = null, error = null, updated_at = clock_timestamp()
   where j.id = any (p_ids);
  select null::uuid, null::integer where false
$$
"""
UNKEPT = "drop index public.marian_jobs_idem_active_idx"


@pytest.fixture
def witnessed(database: str) -> str:
    """A database with the witness in it."""
    install(database)
    return database


async def lose_a_lease_and_report_late(dsn: str, journal: Path) -> None:
    """A run whose lease runs out completes late, amid its successor's run."""
    async with PostgresStore(dsn) as store:
        new = new_job("loop")
        noted = Journal(journal)
        noted.note("sent", [(new.id, None)])
        await store.enqueue([new])
        noted.note("acknowledged", [(new.id, new.id)])
        (late,) = await store.claim(1, ["loop"], timedelta(milliseconds=200))
        write(dsn, late, "start")
        async with asyncio.timeout(10):
            while not await store.reclaim():
                await asyncio.sleep(0.02)
        (present,) = await store.claim(1, ["loop"], timedelta(seconds=30))
        write(dsn, present, "start")
        write(dsn, late, "end")
        await store.complete([late.held])
        write(dsn, present, "end")
        await store.complete([present.held])


def write(dsn: str, job: Job, what: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into chaos.ledger (job, attempt, what, pid) values (%s, %s, %s, 0)", (job.id, job.attempts, what)
        )


def verdicts(dsn: str) -> dict[str, Verdict]:
    return {verdict.promise: verdict for verdict in judge(cases(dsn), Facts(), Counter())}


async def test_a_late_report_that_is_refused_breaks_nothing(witnessed: str, tmp_path: Path) -> None:
    journal = tmp_path / "producer-test.jsonl"
    await lose_a_lease_and_report_late(witnessed, journal)
    assert read_journals(witnessed, [journal]) == []
    assert [v.examples for v in verdicts(witnessed).values() if not v.holds] == []


async def test_without_fencing_the_late_result_is_found(witnessed: str, tmp_path: Path) -> None:
    with psycopg.connect(witnessed) as connection:
        connection.execute(UNFENCED.encode())
    journal = tmp_path / "producer-test.jsonl"
    await lose_a_lease_and_report_late(witnessed, journal)
    read_journals(witnessed, [journal])
    found = [promise for promise, verdict in verdicts(witnessed).items() if not verdict.holds]
    assert "a result is accepted from the run that holds the job, when it has ended" in found
    assert "one accepted result per job, and nothing after it" in found


async def test_without_its_index_a_key_is_found_alive_twice(witnessed: str) -> None:
    with psycopg.connect(witnessed) as connection:
        connection.execute(UNKEPT.encode())
    async with PostgresStore(witnessed) as store:
        for _ in range(2):  # the function finds the first one; the table alone holds nobody back
            with psycopg.connect(witnessed) as connection:
                connection.execute("insert into public.marian_jobs (type, idempotency_key) values ('loop', 'k')")
        assert len(await store.claim(10, ["loop"], timedelta(seconds=30))) == 2
    assert [judge_keys(moves_by_key(witnessed)).holds] == [False]


async def test_a_deleted_row_that_was_acknowledged_is_missed(witnessed: str, tmp_path: Path) -> None:
    journal = tmp_path / "producer-test.jsonl"
    await lose_a_lease_and_report_late(witnessed, journal)
    read_journals(witnessed, [journal])
    with psycopg.connect(witnessed) as connection:
        connection.execute("alter table public.marian_jobs disable trigger chaos_note_move")
        connection.execute("delete from public.marian_jobs")
    assert not verdicts(witnessed)["no acknowledged job is lost"].holds
