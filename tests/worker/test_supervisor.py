"""Many processes under one: restarted when they die, stopped together."""

import os
import signal
from pathlib import Path

from marian_jobs import PostgresStore, Status, new_job
from tests.worker.fleet import Fleet, finished, until


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_process_that_dies_is_replaced_and_all_stop_together(fleet: Fleet, postgres: PostgresStore) -> None:
    supervisor = fleet.start("--processes", "2", lease=1)
    await until(lambda: len(children(supervisor.pid)) == 2, 10)
    (job,) = await postgres.enqueue([new_job("plain", {"seconds": 1})])
    await until(fleet.started(), 10)
    os.kill(fleet.ledger()[0][3], signal.SIGKILL)
    done = await finished(postgres, job.id, 15)
    assert (done.status, done.attempts) == (Status.SUCCEEDED, 2)
    await until(lambda: len(children(supervisor.pid)) == 2, 10)
    workers = children(supervisor.pid)
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(timeout=10) == 0
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


async def test_draining_processes_end_and_are_not_replaced(fleet: Fleet, postgres: PostgresStore) -> None:
    await postgres.enqueue([new_job("sleep", {"seconds": 0.2}) for _ in range(10)])
    assert fleet.start("--processes", "2", "--drain").wait(timeout=20) == 0
    assert len(fleet.ledger(what="end")) == 10
