"""Whether a claim, and a look that finds nothing, cost the same whatever else lies in the table. Our own queue only:
rows are laid down by SQL and the calls are those of the store, in milliseconds each (the median).
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
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
CALLS = 70
UNCOUNTED = 8  # until the statements are prepared

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


def claim(server: Server, hard: Sequence[Rows], easy: Sequence[Rows], limit: int) -> tuple[float, float]:
    """Milliseconds per job claimed, `limit` at a time, in the hard case and in the easy one."""
    slow, fast = _measured(server, hard, easy, lambda store: store.claim(limit, [TYPE], LEASE))
    return slow / limit, fast / limit


def idle_poll(server: Server, hard: Sequence[Rows], easy: Sequence[Rows]) -> tuple[float, float]:
    """Milliseconds of one look of a worker that finds nothing, all its statements together."""
    return _measured(server, hard, easy, lambda store: store.poll(BATCH, [TYPE], LEASE))


Call = Callable[[PostgresStore], Awaitable[object]]


def _measured(server: Server, hard: Sequence[Rows], easy: Sequence[Rows], call: Call) -> tuple[float, float]:
    with ExitStack() as stack:
        databases = [stack.enter_context(server.database(OWN.name, [*OWN.program])) for _ in range(2)]
        for dsn, laid in zip(databases, (hard, easy), strict=True):
            for rows in laid:
                lay(dsn, rows)
            server.settle(dsn)
        return asyncio.run(_medians(databases, call))


async def _medians(databases: Sequence[str], call: Call) -> tuple[float, float]:
    """The cases call by call in turn, so that what else the machine does meets both."""
    async with PostgresStore(databases[0]) as hard, PostgresStore(databases[1]) as easy:
        times: dict[PostgresStore, list[float]] = {hard: [], easy: []}
        for number in range(CALLS):
            for store in times:
                begun = time.perf_counter()
                await call(store)
                if number >= UNCOUNTED:
                    times[store].append(time.perf_counter() - begun)
    return statistics.median(times[hard]) * 1000, statistics.median(times[easy]) * 1000
