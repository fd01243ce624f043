"""The drain rate while an old snapshot keeps the server from removing dead rows, beside the rate without one."""

import statistics
import threading
import time

import psycopg

from benchmarks.flat import Rows, lay
from benchmarks.server import Server
from benchmarks.systems import OWN, Process

AHEAD = 60_000
STEP = 20_000


def rate(server: Server, seconds: float, *, pinned: bool) -> float:
    """Jobs per second in the last third of `seconds` of work on a queue that is kept filled.

    With `pinned` a REPEATABLE READ transaction stays open all the while. The rows are laid down by SQL beside the
    worker, in both cases alike.
    """
    with server.database(OWN.name, [*OWN.program]) as dsn, psycopg.connect(dsn) as other:
        if pinned:
            other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            other.execute("select count(*) from public.marian_jobs")
        lay(dsn, Rows(AHEAD))
        with Process(OWN, "work", dsn) as worker:
            worker.answer()
            worker.go()
            return _keep_filled(dsn, worker, seconds)


def _keep_filled(dsn: str, worker: Process, seconds: float) -> float:
    begun = time.perf_counter()
    done = 0
    laid = AHEAD
    filling = threading.Thread()
    counts: list[tuple[float, int]] = []
    while (now := time.perf_counter() - begun) < seconds:
        for answer in worker.arrived():
            done = answer["done"]
        counts.append((now, done))
        if laid - done < AHEAD and not filling.is_alive():
            filling = threading.Thread(target=lay, args=(dsn, Rows(STEP)))
            filling.start()
            laid += STEP
        time.sleep(0.05)
    if filling.ident is not None:
        filling.join()
    late = [count for count in counts if count[0] >= seconds * 2 / 3]
    (t0, n0), (t1, n1) = late[0], late[-1]
    return (n1 - n0) / (t1 - t0)


def ratio(server: Server, seconds: float, runs: int) -> tuple[float, float]:
    """Medians of the rates, pinned and not, one after the other in turn."""
    rates = [(rate(server, seconds, pinned=True), rate(server, seconds, pinned=False)) for _ in range(runs)]
    return statistics.median(r[0] for r in rates), statistics.median(r[1] for r in rates)
