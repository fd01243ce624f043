"""The database goes and comes back: K51, K56, with a real server that is stopped, killed and started again."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from marian_jobs import PostgresStore, Status, new_job
from marian_jobs.local.postgres import LocalPostgres
from marian_jobs.migrations import migrate
from tests.worker.fleet import Fleet, finished, until


@pytest.fixture
def own_server() -> Iterator[LocalPostgres]:
    """A server of the test's own, to be stopped."""
    named = os.environ.get("MARIAN_TEST_POSTGRES_BIN")
    with LocalPostgres(bin=Path(named) if named else None) as server:
        migrate(server.dsn())
        yield server


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_run_survives_an_outage(
    mode: Literal["fast", "immediate"], own_server: LocalPostgres, tmp_path: Path
) -> None:
    fleet = Fleet(own_server.dsn(), tmp_path)
    try:
        async with PostgresStore(own_server.dsn()) as store:
            (job,) = await store.enqueue([new_job("sleep", {"seconds": 8})])
            process = fleet.start(lease=60)
            await until(fleet.started(), 10)
            await asyncio.to_thread(own_server.restart, mode, pause=2.0)
            with psycopg.connect(own_server.socket_dsn(role="supabase_admin"), autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where pid <> pg_backend_pid() and backend_type = 'client backend'"
                )
            done = await finished(store, job.id, 20)
            assert (done.status, done.attempts) == (Status.SUCCEEDED, 1)
            assert len(fleet.ledger()) == 1
            (after,) = await store.enqueue([new_job("sleep")])
            assert (await finished(store, after.id, 5)).status is Status.SUCCEEDED
            assert process.poll() is None
    finally:
        fleet.stop_all()


async def test_an_outage_is_told_in_few_lines_and_costs_little(own_server: LocalPostgres, tmp_path: Path) -> None:
    fleet = Fleet(own_server.dsn(), tmp_path)
    try:
        async with PostgresStore(own_server.dsn()) as store:
            (job,) = await store.enqueue([new_job("sleep")])
            process = fleet.start()
            await finished(store, job.id, 10)
            before = cpu_seconds(process.pid)
            await asyncio.to_thread(own_server.restart, "fast", pause=8.0)
            (job,) = await store.enqueue([new_job("sleep")])
            await finished(store, job.id, 5)
            assert cpu_seconds(process.pid) - before < 1
        lines = fleet.log().splitlines()
        assert len(lines) <= 20
        assert "Traceback" not in fleet.log()
    finally:
        fleet.stop_all()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
