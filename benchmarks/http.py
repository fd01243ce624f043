"""Claiming and completing over a project's API: the real PostgREST behind the local stack's gateway, one worker.

The client is a process of its own:  python -m benchmarks.http ACTION URL JOBS, with the key in MARIAN_BENCH_KEY

    singly    SupabaseStore: one job claimed, then completed, then the next
    batches   SupabaseStore: 500 claimed, then completed, then the next
    worker    a Worker that drains the queue
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from benchmarks.flat import Rows, lay
from benchmarks.own import TYPE
from benchmarks.server import Server
from benchmarks.systems import OWN, BenchmarkError
from marian_jobs import Job, SupabaseStore, Worker
from marian_jobs.local.gateway import Gateway
from marian_jobs.local.keys import Keys
from marian_jobs.local.ports import free_port
from marian_jobs.local.postgrest import PostgREST

BATCH = 500
LEASE = timedelta(seconds=30)
WITHIN = 300.0
TITLES = {
    "singly": "over the API: jobs claimed and completed one at a time, per second",
    "batches": f"over the API: jobs claimed and completed {BATCH} at a time, per second",
    "worker": "over the API: jobs drained by one worker, per second",
}


def measure(server: Server, batched: int, runs: int) -> dict[str, float]:
    """Jobs per second of each action, the median of `runs` each on a fresh database; a tenth of the jobs singly."""
    return {
        title: statistics.median(
            _rate(server, action, max(100, batched // (10 if action == "singly" else 1))) for _ in range(runs)
        )
        for action, title in TITLES.items()
    }


def _rate(server: Server, action: str, jobs: int) -> float:
    with server.database(OWN.name, [*OWN.program]) as dsn:
        lay(dsn, Rows(jobs))
        server.settle(dsn)
        with _api(server.api_dsn(dsn)) as (url, key):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.http", action, url, str(jobs)],
                env={**os.environ, "MARIAN_BENCH_KEY": key},
                capture_output=True,
                text=True,
                check=False,
                timeout=WITHIN,
            )
    if done.returncode:
        raise BenchmarkError(f"{action} over HTTP: {done.stderr.strip()[-300:]}")
    return float(jobs / json.loads(done.stdout)["seconds"])


@contextmanager
def _api(dsn: str) -> Iterator[tuple[str, str]]:
    """PostgREST and the gateway over a database; the URL and the service role's key."""
    with tempfile.TemporaryDirectory() as home:
        keys = Keys.kept_in(Path(home))
        with PostgREST(dsn, keys.jwt_secret, Path(home)) as rest, Gateway(rest.url, keys, free_port()) as gateway:
            yield gateway.url, keys.service_role


async def by_hand(url: str, key: str, jobs: int, size: int) -> float:
    """Seconds for `jobs` jobs, claimed and completed `size` at a time."""
    async with SupabaseStore(url, key) as store:
        begun = time.perf_counter()
        done = 0
        while done < jobs:
            claimed = await store.claim(size, [TYPE], LEASE)
            done += len(await store.complete([job.held for job in claimed]))
            if not claimed:
                raise BenchmarkError(f"only {done} of {jobs} jobs were there")
        return time.perf_counter() - begun


async def by_worker(url: str, key: str, jobs: int) -> float:
    """Seconds from the first look for work until all `jobs` jobs are recorded."""
    worker = Worker(SupabaseStore(url, key), concurrency=1000)
    handled = 0

    @worker.handler(TYPE)
    async def noop(_: Job) -> None:
        nonlocal handled
        handled += 1

    begun = time.perf_counter()
    await worker.run(drain=True, signals=False)
    seconds = time.perf_counter() - begun
    await worker.close()
    if handled != jobs:
        raise BenchmarkError(f"{handled} of {jobs} jobs were handled")
    return seconds


async def _run(action: str, url: str, jobs: int) -> float:
    key = os.environ["MARIAN_BENCH_KEY"]
    if action == "worker":
        return await by_worker(url, key, jobs)
    return await by_hand(url, key, jobs, 1 if action == "singly" else BATCH)


if __name__ == "__main__":
    action, url, jobs = sys.argv[1:]
    print(json.dumps({"seconds": asyncio.run(_run(action, url, int(jobs)))}))
