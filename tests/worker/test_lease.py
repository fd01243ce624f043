"""Long runs keep their lease, lost ones give it up: K12, K13, K14, K16, K18, K55 with real processes."""

import asyncio
import signal
from datetime import timedelta

import psycopg
import pytest

from marian_jobs import MemoryStore, PostgresStore, Status, Worker, new_job
from tests.worker.fleet import Fleet, finished, until

SLOW = ["sleep", "plain", "block", "spin", "spin-plain"]


@pytest.mark.parametrize("type", SLOW)
async def test_a_handler_longer_than_its_lease_starts_once(type: str, fleet: Fleet, postgres: PostgresStore) -> None:
    (job,) = await postgres.enqueue([new_job(type, {"seconds": 3})])
    fleet.start(lease=1)
    fleet.start(lease=1)
    await until(fleet.started(), 10)
    overdue = 0
    while (now := await postgres.get(job.id)) is not None and now.status is Status.RUNNING:
        assert now.lease_until is not None
        with psycopg.connect(fleet.dsn) as connection:
            row = connection.execute("select %s < clock_timestamp()", (now.lease_until,)).fetchone()
            overdue += bool(row and row[0])
        await postgres.reclaim()
        await asyncio.sleep(0.2)
    assert overdue == 0
    done = await finished(postgres, job.id, 2)
    assert (done.status, done.attempts) == (Status.SUCCEEDED, 1)
    assert len(fleet.ledger()) == 1


async def test_nothing_waits_claimed_beyond_its_lease(fleet: Fleet, postgres: PostgresStore) -> None:
    jobs = await postgres.enqueue([new_job("plain", {"seconds": 0.5}) for _ in range(10)])
    fleet.start(lease=1, concurrency=1)
    fleet.start(lease=1, concurrency=1)
    for job in jobs:
        assert (await finished(postgres, job.id, 15)).attempts == 1
    assert len(fleet.ledger()) == 10


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV", "exit"])
async def test_a_job_that_kills_its_worker_ends_dead(how: str, fleet: Fleet, postgres: PostgresStore) -> None:
    (job, other) = await postgres.enqueue([new_job("die", {"how": how}), new_job("sleep", {"seconds": 0.1})])
    fleet.start(lease=1, concurrency=1)

    def restarted() -> bool:
        if fleet.processes[-1].poll() is not None:
            fleet.start(lease=1, concurrency=1)
        return len(fleet.ledger(job=job.id)) == 3 and len(fleet.ledger(what="end")) == 1

    await until(restarted, 25)
    fleet.start(lease=1)
    dead = await finished(postgres, job.id, 10)
    assert (dead.status, dead.attempts) == (Status.DEAD, 3)
    assert dead.error is not None
    assert "the worker was lost" in dead.error
    assert len(fleet.ledger(job=job.id)) == 3
    assert (await finished(postgres, other.id, 1)).status is Status.SUCCEEDED


async def test_a_stopped_process_that_comes_back_late_changes_nothing(fleet: Fleet, postgres: PostgresStore) -> None:
    (job,) = await postgres.enqueue([new_job("sleep", {"seconds": 1})])
    first = fleet.start(lease=1)
    await until(fleet.started(), 10)
    first.send_signal(signal.SIGSTOP)
    fleet.start(lease=1)
    done = await finished(postgres, job.id, 10)
    assert (done.status, done.attempts) == (Status.SUCCEEDED, 2)
    first.send_signal(signal.SIGCONT)
    await until(lambda: "late complete refused" in fleet.log() or "lease lost" in fleet.log(), 10)
    assert await postgres.get(job.id) == done


async def test_a_cancelled_job_stops_its_handler(fleet: Fleet, postgres: PostgresStore) -> None:
    jobs = await postgres.enqueue([new_job("sleep", {"seconds": 30}), new_job("heed")])
    fleet.start(lease=1)
    await until(fleet.started(2), 10)
    for job in jobs:
        await postgres.cancel(job.id)
    await until(lambda: fleet.ledger(what="stopped"), 5)
    await until(lambda: fleet.log().count("lease lost") == 2, 5)
    assert not fleet.ledger(what="end")
    for job in jobs:
        left = await postgres.get(job.id)
        assert left is not None
        assert (left.status, left.error) == (Status.DEAD, "cancelled")


async def test_a_job_whose_owner_is_deleted_is_one_warning(fleet: Fleet, postgres: PostgresStore) -> None:
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        connection.execute("insert into auth.users (id) values ('00000000-0000-0000-0000-00000000000a')")
        (job,) = await postgres.enqueue(
            [new_job("sleep", {"seconds": 1}, user_id="00000000-0000-0000-0000-00000000000a")]
        )
        (other,) = await postgres.enqueue([new_job("sleep", {"seconds": 0})])
        fleet.start(lease=30)
        await until(fleet.started(2), 10)
        connection.execute("delete from auth.users")
    await until(lambda: "late complete refused" in fleet.log(), 5)
    assert await postgres.get(job.id) is None
    assert (await finished(postgres, other.id, 5)).status is Status.SUCCEEDED
    assert fleet.log().count("refused") == 1
    assert "Traceback" not in fleet.log()
    assert fleet.processes[0].poll() is None


async def test_short_jobs_cost_no_extension(fleet: Fleet, postgres: PostgresStore) -> None:
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        jobs = await postgres.enqueue([new_job("sleep", {"seconds": 0.01}) for _ in range(50)])
        fleet.start(lease=2)
        for job in jobs:
            await finished(postgres, job.id, 15)
        row = connection.execute(
            "select coalesce(sum(calls), 0) from extensions.pg_stat_statements s join pg_database d on d.oid = s.dbid "
            "where d.datname = current_database() and query like '%extend_leases%' and query not like '%pg_stat%'"
        ).fetchone()
    assert row == (0,)


async def test_one_statement_extends_all_long_runs(fleet: Fleet, postgres: PostgresStore) -> None:
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        jobs = await postgres.enqueue([new_job("sleep", {"seconds": 3}) for _ in range(8)])
        fleet.start(lease=3)
        for job in jobs:
            await finished(postgres, job.id, 15)
        row = connection.execute(
            "select sum(calls) from extensions.pg_stat_statements s join pg_database d on d.oid = s.dbid "
            "where d.datname = current_database() and toplevel and query like '%extend_leases%' "
            "and query not like '%pg_stat%'"
        ).fetchone()
    assert row is not None
    assert 1 <= row[0] <= 4


@pytest.mark.parametrize("type", ["hang", "swallow"])
async def test_a_handler_that_will_not_end_times_out_and_the_next_job_runs(
    type: str, fleet: Fleet, postgres: PostgresStore
) -> None:
    stuck, other = await postgres.enqueue([new_job(type, max_attempts=1), new_job("sleep")])
    process = fleet.start(lease=1, concurrency=1)
    await until(fleet.started(), 10)
    dead = await finished(postgres, stuck.id, 6)
    assert (dead.status, dead.error) == (Status.DEAD, "timeout: the handler took longer than 3 s")
    assert (await finished(postgres, other.id, 10)).status is Status.SUCCEEDED
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=3)


@pytest.mark.parametrize("lease", [timedelta(0), timedelta(seconds=-1), timedelta(days=366)])
def test_a_lease_that_is_none_is_refused_at_start(lease: timedelta) -> None:
    with pytest.raises(ValueError, match="lease"):
        Worker(MemoryStore(), lease=lease)
