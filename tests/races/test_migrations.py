"""The schema changes while workers work: none of them ends, every job runs once, and no line of their logs is an error.

Migrations among themselves: tests/test_migrations.py.
"""

import asyncio
import json
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from marian_jobs import PostgresStore, SyncQueue, new_job
from marian_jobs.job import Held
from marian_jobs.migrations import migrate
from marian_jobs.store import Failure
from tests.races.sessions import Meeting, meeting
from tests.worker.fleet import Fleet, wait_for

ADD_COLUMN = "alter table public.marian_jobs add column tenant text default 'x', add column weight int;\n"
LEASE = timedelta(seconds=30)
WAITING = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
WORKERS = 2
REPLACED = ("claim_job", "claim_jobs", "complete_jobs", "marian_jobs_poll", "marian_jobs_settle", "enqueue_job")


@pytest.fixture
def met(database: str) -> Iterator[Meeting]:
    """Two sessions over a database of their own, whose table they may change."""
    with meeting(database) as met:
        yield met


@pytest.fixture
def fleet(database: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(database, tmp_path)
    yield fleet
    fleet.stop_all()


def replacements(dsn: str) -> str:
    """Every function that a turn of a worker calls, made anew as it is."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "select pg_get_functiondef(oid) from pg_proc "
            "where proname = any(%s) and pronamespace = 'public'::regnamespace",
            [list(REPLACED)],
        ).fetchall()
    assert len(rows) == len(REPLACED)
    return ";\n".join(text for (text,) in rows) + ";\n"


@pytest.mark.parametrize("call", ["enqueue", "poll", "complete", "fail", "cancel", "retry", "release", "reclaim"])
async def test_a_call_that_waited_while_a_column_was_added_is_answered(met: Meeting, call: str) -> None:
    """Postgres itself refuses it: a statement that began with the row's old type cannot return the new one."""
    async with PostgresStore(met.dsn, max_connections=1) as store:
        job, dead = met.running(), met.dead()
        calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "enqueue": lambda: store.enqueue([new_job("t")]),
            "poll": lambda: store.poll(1, ["t"], LEASE),
            "complete": lambda: store.complete([Held(job, 1)]),
            "fail": lambda: store.fail([Failure(job, 1, "boom")]),
            "cancel": lambda: store.cancel(job),
            "retry": lambda: store.retry(dead),
            "release": lambda: store.release([Held(job, 1)]),
            "reclaim": lambda: store.reclaim(),
        }
        for _ in range(7):  # until its statement is prepared and its plans are kept
            await calls[call]()
        met.ask("delete from public.marian_jobs returning 1")
        job, dead = met.running(expired=call == "reclaim"), met.dead()
        met.first.do("alter table public.marian_jobs add column more text default 'x'")
        answer = asyncio.create_task(calls[call]())
        await asyncio.to_thread(wait_for, lambda: met.ask(WAITING), 10, "it waits for the table")
        met.first.commit()
        assert await answer


def test_workers_go_on_while_a_column_is_added_and_their_functions_are_replaced(fleet: Fleet, tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    steps.mkdir()
    (steps / "20990101000000_column.sql").write_text(ADD_COLUMN)
    (steps / "20990102000000_functions.sql").write_text(replacements(fleet.dsn))
    stop, enqueued = threading.Event(), 0

    def feed() -> None:
        nonlocal enqueued
        with SyncQueue(PostgresStore(fleet.dsn)) as queue:
            while not stop.wait(0.05):
                queue.enqueue("sleep", {"seconds": 0.01})
                enqueued += 1

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        for _ in range(WORKERS):
            fleet.start(concurrency=4)
        wait_for(lambda: len({row[3] for row in fleet.ledger()}) == WORKERS, 30, "every worker works")
        before = len(fleet.ledger())
        assert [step.name for step in migrate(fleet.dsn, steps)] == ["column", "functions"]
        done = len(fleet.ledger())
        wait_for(fleet.started(done + 20), 30, "work goes on")
    finally:
        stop.set()
        feeder.join(10)
    wait_for(lambda: len(fleet.ledger(what="end")) == enqueued, 30, "everything is done")

    assert before > 0
    starts = fleet.ledger()
    assert (len(starts), len({job for job, *_ in starts}), {attempt for _, attempt, *_ in starts}) == (
        enqueued,
        enqueued,
        {1},
    )
    wait_for(lambda: states(fleet.dsn) == {("succeeded", 1, "x")}, 10, "everything is recorded")
    assert [process.poll() for process in fleet.processes] == [None] * WORKERS
    for process in fleet.processes:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(15) for process in fleet.processes] == [0] * WORKERS
    assert loud_lines(fleet) == []


def states(dsn: str) -> set[tuple[str, int, str]]:
    with psycopg.connect(dsn) as connection:
        return set(connection.execute("select distinct status, attempts, tenant from public.marian_jobs").fetchall())


def loud_lines(fleet: Fleet) -> list[str]:
    """What the workers logged as a warning or an error."""
    lines = [line for n in range(len(fleet.processes)) for line in fleet.log(n).splitlines()]
    return [line for line in lines if not line.startswith("{") or json.loads(line)["level"] not in ("DEBUG", "INFO")]
