"""What the server itself takes for the writes of a job, without any queue: the bound of what can be reached here.

The table is ours, with its checks and indexes, written by plain statements that decide nothing. Each job costs one
insert and two updates: to running, and to succeeded. Batches and commits are as a good client has them.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg

from benchmarks.flat import Rows, lay
from benchmarks.server import Server
from benchmarks.systems import OWN

BATCH = 1000
SINGLES = 500

_RUNNING = """
update public.marian_jobs
   set status = 'running', attempts = attempts + 1, lease_until = now() + interval '30 seconds', updated_at = now()
 where id = any (%s)
"""
_SUCCEEDED = """
update public.marian_jobs set status = 'succeeded', lease_until = null, updated_at = now() where id = any (%s)
"""
_ONE = "insert into public.marian_jobs (type, payload) values ('noop', '{}')"


def _on_fresh(server: Server, measure: Callable[[str], float], runs: int) -> float:
    rates = []
    for _ in range(runs):
        with server.database(OWN.name, [*OWN.program]) as dsn:
            rates.append(measure(dsn))
    return statistics.median(rates)


def inserts(server: Server, jobs: int, runs: int) -> float:
    """Rows per second of inserts out of the server's own head, in one statement."""

    def measure(dsn: str) -> float:
        begun = time.perf_counter()
        lay(dsn, Rows(jobs))
        return jobs / (time.perf_counter() - begun)

    return _on_fresh(server, measure, runs)


def commits(server: Server, runs: int) -> float:
    """Single inserts per second, each in a transaction of its own, over one connection."""

    def measure(dsn: str) -> float:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as connection:
            begun = time.perf_counter()
            for _ in range(SINGLES):
                connection.execute(_ONE)
            return SINGLES / (time.perf_counter() - begun)

    return _on_fresh(server, measure, runs)


def updates(server: Server, jobs: int, connections: int, runs: int) -> float:
    """Jobs per second that are updated twice, in batches, over `connections` at once."""

    def measure(dsn: str) -> float:
        lay(dsn, Rows(jobs))
        server.settle(dsn)
        with psycopg.connect(dsn) as connection:
            ids = [row[0] for row in connection.execute("select id from public.marian_jobs order by created_at")]
        begun = time.perf_counter()
        with ThreadPoolExecutor(connections) as pool:
            list(pool.map(lambda k: _update(dsn, ids[k::connections]), range(connections)))
        return jobs / (time.perf_counter() - begun)

    return _on_fresh(server, measure, runs)


def _update(dsn: str, ids: Sequence[UUID]) -> None:
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as connection:
        for i in range(0, len(ids), BATCH):
            batch = list(ids[i : i + BATCH])
            connection.execute(_RUNNING, (batch,))
            connection.execute(_SUCCEEDED, (batch,))
