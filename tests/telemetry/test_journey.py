"""One trace, from a process that enqueues to another whose worker runs the job: by Postgres and by PostgREST."""

import asyncio
import os
import subprocess
import sys

import psycopg
import pytest

from marian_jobs import Job, PostgresStore, Store, SupabaseStore, Worker
from tests.telemetry.conftest import Collected
from tests.worker.fleet import ROOT


def enqueue_elsewhere(**where: str) -> str:
    """Enqueues a job of type `t` in another process; returns the id of that process's trace."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.telemetry.enqueuer", "t"],
        cwd=ROOT,
        env={**os.environ, **where},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("way", ["postgres", "postgrest"])
async def test_it_is_one_trace(way: str, request: pytest.FixtureRequest, collected: Collected) -> None:
    if way == "postgres":
        dsn = request.getfixturevalue("database")
        store: Store = PostgresStore(dsn)
        trace_id = await asyncio.to_thread(enqueue_elsewhere, MARIAN_DATABASE_URL=dsn, SUPABASE_URL="")
    else:
        stack = request.getfixturevalue("stack")
        with psycopg.connect(stack.dsn) as connection:
            connection.execute("truncate public.marian_jobs")
        store = SupabaseStore(stack.url, stack.service_role_key)
        trace_id = await asyncio.to_thread(
            enqueue_elsewhere, SUPABASE_URL=stack.url, SUPABASE_SERVICE_ROLE_KEY=stack.service_role_key
        )
    worker = Worker(store)
    collected.telemetry().watch(worker)
    payloads: list[object] = []

    @worker.handler("t")
    def handle(job: Job) -> None:
        payloads.append(job.payload)
        with collected.tracer_provider.get_tracer("test").start_as_current_span("inside"):
            pass

    await worker.tick()
    await worker.close()
    assert payloads == [{"a": 1}]
    found = {
        span.name: f"{span.context.trace_id:032x}" for span in collected.exporter.get_finished_spans() if span.context
    }
    assert found == {"inside": trace_id, "process t": trace_id}
