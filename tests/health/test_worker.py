"""A worker process is asked over HTTP how it is, while all kinds of things happen to it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from marian_jobs import PostgresStore, new_job
from marian_jobs.local.postgres import LocalPostgres
from tests.health.probes import probe, samples, served_at, status, value
from tests.worker.fleet import ROOT, Fleet, finished, until, wait_for

HERE = "127.0.0.1:0"


async def test_an_idle_worker_lives_is_ready_and_counts(fleet: Fleet, postgres: PostgresStore) -> None:
    process = fleet.start("--health", HERE, "--concurrency", "3")
    url = await asyncio.to_thread(served_at, fleet)
    await until(lambda: status(url, "/readyz") == 200, 10, "ready")
    life = probe(url, "/healthz")
    assert (life.status_code, life.json()["status"]) == (200, "alive")
    assert life.headers["content-type"] == "application/json"
    jobs = await postgres.enqueue([new_job("sleep", {"seconds": 0.01}), new_job("sleep"), new_job("nobody")])
    for job in jobs[:2]:
        await finished(postgres, job.id, 10)
    await until(lambda: value(url, "marian_jobs_runs_total", type="sleep", outcome="succeeded") == 2, 5)
    assert value(url, "marian_jobs_run_seconds_count", type="sleep") == 2
    assert value(url, "marian_jobs_wait_seconds_count", type="sleep") == 2
    assert value(url, "marian_jobs_running", type="sleep") == 0
    assert value(url, "marian_jobs_worker_ready") == 1
    assert value(url, "marian_jobs_worker_slots") == 3
    assert value(url, "process_open_fds")  # the program's own registry is served as well
    assert value(url, "marian_jobs_queue_jobs", type="nobody", status="queued") == 1
    assert (value(url, "marian_jobs_queue_oldest_due_seconds", type="nobody") or 0) > 0
    assert status(url, "/") == 404
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


async def test_a_worker_that_stops_is_alive_and_no_more_ready(fleet: Fleet, postgres: PostgresStore) -> None:
    process = fleet.start("--health", HERE, "--grace", "20s")
    url = await asyncio.to_thread(served_at, fleet)
    await postgres.enqueue([new_job("heed")])
    await until(fleet.started(), 10)
    process.send_signal(signal.SIGTERM)
    await until(lambda: status(url, "/readyz") == 503, 5)
    assert probe(url, "/readyz").json()["reason"] == "the worker is stopping"
    assert status(url, "/healthz") == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


async def test_a_worker_without_its_database_is_not_ready_until_it_is_back(
    own_server: LocalPostgres, tmp_path: Path
) -> None:
    fleet = Fleet(own_server.dsn(), tmp_path)
    try:
        process = fleet.start("--health", HERE)
        url = await asyncio.to_thread(served_at, fleet)
        await until(lambda: status(url, "/readyz") == 200, 10, "ready")
        away = asyncio.create_task(asyncio.to_thread(own_server.restart, "fast", pause=9.0))
        await until(lambda: status(url, "/readyz") == 503, 25, "not ready")
        assert "the store has not answered for" in probe(url, "/readyz").json()["reason"]
        assert status(url, "/healthz") == 200
        assert value(url, "marian_jobs_worker_ready") == 0
        await away
        await until(lambda: status(url, "/readyz") == 200, 20, "ready again")
        assert process.poll() is None
    finally:
        fleet.stop_all()


async def test_a_worker_whose_database_is_not_there_at_start_is_alive_and_not_ready(fleet: Fleet) -> None:
    fleet.start("--health", HERE, dsn="postgresql://nobody:S3CRET@127.0.0.1:1/none")
    url = await asyncio.to_thread(served_at, fleet)
    answer = probe(url, "/readyz")
    assert (answer.status_code, answer.json()["reason"]) == (503, "the store has not answered yet")
    assert status(url, "/healthz") == 200
    assert not [name for name, _ in samples(url) if name.startswith("marian_jobs_queue")]
    assert "S3CRET" not in fleet.log()


@pytest.fixture
def program(fleet: Fleet, tmp_path: Path) -> Any:
    """Starts `tests.health.program`, whose health is served from Python."""

    def start() -> "subprocess.Popen[bytes]":
        log = (tmp_path / "worker-0.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.health.program"],
            cwd=ROOT,
            env={**os.environ, "MARIAN_DATABASE_URL": fleet.dsn, "TEST_WORKER": "{}"},
            stdout=log,
            stderr=log,
        )
        fleet.processes.append(process)
        return process

    return start


async def test_a_handler_that_blocks_the_loop_is_told_while_it_does(
    fleet: Fleet, postgres: PostgresStore, program: Any
) -> None:
    program()
    url = await asyncio.to_thread(served_at, fleet)
    (job,) = await postgres.enqueue([new_job("block", {"seconds": 4})])
    await until(fleet.started(), 10)
    await until(lambda: status(url, "/healthz") == 503, 4, "stuck")
    answer = probe(url, "/healthz").json()
    assert answer["status"] == "stuck"
    assert "the event loop has not turned for" in answer["reason"]
    assert value(url, "marian_jobs_running", type="block") == 1
    await finished(postgres, job.id, 10)
    await until(lambda: status(url, "/healthz") == 200, 5, "alive again")


@pytest.fixture
def supervisor(fleet: Fleet) -> Iterator["subprocess.Popen[bytes]"]:
    """Two worker processes under one; killed alone it would leave them behind."""
    supervisor = fleet.start("--processes", "2", "--health", HERE, lease=30)
    yield supervisor
    if supervisor.poll() is None:
        supervisor.terminate()
        supervisor.wait(30)


async def test_many_processes_answer_as_one(
    fleet: Fleet, postgres: PostgresStore, supervisor: "subprocess.Popen[bytes]"
) -> None:
    url = await asyncio.to_thread(served_at, fleet)
    assert status(url, "/readyz") == 503  # none has begun
    assert status(url, "/healthz") == 200
    await until(lambda: status(url, "/readyz") == 200, 20, "both are ready")
    jobs = await postgres.enqueue([new_job("sleep", {"seconds": 0.2}) for _ in range(30)])
    for job in jobs:
        await finished(postgres, job.id, 15)

    def runs() -> list[float]:
        return [count for (name, _), count in samples(url).items() if name == "marian_jobs_runs_total" and count]

    await until(lambda: sum(runs()) == 30, 20, "all runs are counted")
    assert [value(url, "marian_jobs_worker_slots", process=place) for place in "01"] == [10, 10]
    queue = [key for key in samples(url) if key[0] == "marian_jobs_queue_jobs"]
    assert [dict(labels) for _, labels in queue] == [{"type": "sleep", "status": "succeeded"}]
    victim = fleet.ledger()[-1][3]
    os.kill(victim, signal.SIGSTOP)  # as good as stuck: it takes connections, and keeps silent
    answer = await asyncio.to_thread(probe, url, "/healthz")
    assert (answer.status_code, answer.json()["reason"]) == (503, "1 of 2 processes are stuck")
    os.kill(victim, signal.SIGKILL)
    await until(lambda: status(url, "/readyz") == 503, 5, "one is gone")
    assert status(url, "/healthz") == 200  # its successor is on its way
    await until(lambda: status(url, "/readyz") == 200, 20, "both are ready again")
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(10) == 0


def test_an_address_in_use_is_told_and_nothing_runs(fleet: Fleet) -> None:
    fleet.start("--health", HERE)
    address = served_at(fleet).removeprefix("http://")
    second = fleet.start("--health", address)
    assert second.wait(60) == 1
    assert f"cannot listen on {address}" in fleet.log(1)
    assert "Traceback" not in fleet.log(1)


def test_a_probe_costs_the_database_nothing_and_a_scrape_one_count_in_ten_seconds(fleet: Fleet) -> None:
    fleet.start("--health", HERE)
    url = served_at(fleet)
    wait_for(lambda: status(url, "/readyz") == 200, 10)
    for _ in range(20):
        samples(url)
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        row = connection.execute(
            "select coalesce(sum(s.calls), 0) "
            "from extensions.pg_stat_statements s join pg_database d on d.oid = s.dbid "
            "where d.datname = current_database() and toplevel and s.query ~ 'job_stats'"
        ).fetchone()
    assert row is not None
    assert 1 <= row[0] <= 2
