"""Whether a claim, and a look that finds nothing, cost the same whatever else lies in the table. Our own queue only:
rows are laid down by SQL and the calls are those of the store, in milliseconds each (the median).
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import timedelta

import psycopg
from psycopg import sql

from benchmarks.own import TYPE
from benchmarks.server import Server
from benchmarks.systems import OWN
from marian_jobs import PostgresStore

LEASE = timedelta(seconds=30)
BATCH = 100
CALLS = 40

# Ids like the library's own, of version 7, on every version of the server.
_ROWS = """
insert into public.marian_jobs (id, type, status, priority, payload, run_after, created_at)
select (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0')
        || '7' || lpad(to_hex((random() * 4095)::int), 3, '0') || '8' || lpad(to_hex((random() * 4095)::int), 3, '0')
        || lpad(to_hex(i), 12, '0'))::uuid,
       %(type)s, %(status)s, %(priority)s, jsonb_build_object('job', i),
       now() + %(due)s::interval + i * interval '1 microsecond', now() + i * interval '1 microsecond'
  from generate_series(1, %(count)s::int) i
"""


@dataclass(frozen=True)
class Rows:
    """Rows to lay down before measuring."""

    count: int
    type: str = TYPE
    status: str = "queued"
    priority: int = 0
    due: str = "-10 minutes"


def lay(dsn: str, rows: Rows) -> None:
    """Inserts them."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL(_ROWS), asdict(rows))


def claim(server: Server, *laid: Rows, limit: int = BATCH) -> float:
    """Milliseconds per job claimed, `limit` at a time."""
    return _measured(server, laid, lambda store: store.claim(limit, [TYPE], LEASE)) / limit


def idle_poll(server: Server, *laid: Rows) -> float:
    """Milliseconds of one look of a worker that finds nothing, all its statements together."""
    return _measured(server, laid, lambda store: store.poll(BATCH, [TYPE], LEASE))


def _measured(server: Server, laid: tuple[Rows, ...], call: Callable[[PostgresStore], Awaitable[object]]) -> float:
    with server.database(OWN.name, [*OWN.program]) as dsn:
        for rows in laid:
            lay(dsn, rows)
        server.settle(dsn)
        return asyncio.run(_median(dsn, call))


async def _median(dsn: str, call: Callable[[PostgresStore], Awaitable[object]]) -> float:
    async with PostgresStore(dsn) as store:
        for _ in range(6):  # until the statements are prepared
            await call(store)
        times = []
        for _ in range(CALLS):
            begun = time.perf_counter()
            await call(store)
            times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1000
