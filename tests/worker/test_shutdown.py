"""Stopping costs a job nothing: K23, K50 with real signals to real processes."""

import signal
import subprocess

from marian_jobs import PostgresStore, Status, new_job
from tests.worker.fleet import Fleet, finished, until


async def begun(fleet: Fleet, count: int = 1) -> None:
    await until(fleet.started(count), 10)


async def test_sigterm_lets_a_handler_end_within_the_grace(fleet: Fleet, postgres: PostgresStore) -> None:
    job, waiting = await postgres.enqueue([new_job("sleep", {"seconds": 2}), new_job("sleep", {"seconds": 1})])
    process = fleet.start(concurrency=1, grace=10)
    await begun(fleet)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=8) == 0
    done = await postgres.get(job.id)
    assert done is not None
    assert done.status is Status.SUCCEEDED
    untouched = await postgres.get(waiting.id)
    assert untouched is not None
    assert (untouched.status, untouched.attempts) == (Status.QUEUED, 0)


async def test_what_outlives_the_grace_is_released_and_runs_elsewhere_without_overlap(
    fleet: Fleet, postgres: PostgresStore
) -> None:
    for type in ("sleep", "plain"):
        (job,) = await postgres.enqueue([new_job(type, {"seconds": 3})])
        first = fleet.start(grace=0.5, lease=30)
        before = len(fleet.ledger())
        await begun(fleet, before + 1)
        second = fleet.start(grace=0.5, lease=30)
        first.send_signal(signal.SIGTERM)
        first.wait(timeout=3)
        done = await finished(postgres, job.id, 15)
        assert (done.status, done.attempts, done.max_attempts) == (Status.SUCCEEDED, 2, 4)
        starts = fleet.ledger(job=job.id)
        assert len({pid for *_, pid in starts}) == 2
        assert len(fleet.ledger(what="end", job=job.id)) == 1
        second.send_signal(signal.SIGTERM)
        second.wait(timeout=3)


async def test_a_second_signal_ends_the_grace(fleet: Fleet, postgres: PostgresStore) -> None:
    (job,) = await postgres.enqueue([new_job("plain", {"seconds": 20})])
    process = fleet.start(grace=30)
    await begun(fleet)
    process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    process.wait(timeout=2)
    left = await postgres.get(job.id)
    assert left is not None
    assert (left.status, left.attempts, left.max_attempts) == (Status.QUEUED, 1, 4)


async def test_an_idle_worker_stops_at_once(fleet: Fleet, postgres: PostgresStore) -> None:
    (job,) = await postgres.enqueue([new_job("sleep")])
    process = fleet.start(poll=30)
    await finished(postgres, job.id, 10)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=1) == 0


async def test_three_deploys_cost_a_job_no_attempt(fleet: Fleet, postgres: PostgresStore) -> None:
    (job,) = await postgres.enqueue([new_job("sleep", {"seconds": 3}, max_attempts=2)])
    for count in range(1, 4):
        process = fleet.start(grace=0.5)
        await begun(fleet, count)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=4)
        left = await postgres.get(job.id)
        assert left is not None
        assert (left.status, left.attempts) == (Status.QUEUED, count)
        assert left.run_after <= left.updated_at
    fleet.start()
    assert (await finished(postgres, job.id, 12)).status is Status.SUCCEEDED


async def test_drain_ends_when_nothing_is_due(fleet: Fleet, postgres: PostgresStore) -> None:
    jobs = await postgres.enqueue([new_job("sleep", {"seconds": 0.2}) for _ in range(20)])
    process = fleet.start("--drain", concurrency=5)
    assert process.wait(timeout=20) == 0
    for job in jobs:
        done = await postgres.get(job.id)
        assert done is not None
        assert done.status is Status.SUCCEEDED


async def test_once_is_one_tick(fleet: Fleet, postgres: PostgresStore) -> None:
    await postgres.enqueue([new_job("sleep"), new_job("sleep")])
    assert fleet.start("--once").wait(timeout=20) == 0
    assert len(fleet.ledger(what="end")) == 1
