"""Measurements that every queue can take part in; each starts from a fresh database."""

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack

import psycopg

from benchmarks.server import Server
from benchmarks.systems import BenchmarkError, Process, System

DRAIN_WITHIN = 300.0


def drain(server: Server, system: System, jobs: int, processes: int) -> float:
    """Jobs per second of `processes` worker processes that empty a queue of `jobs` no-op jobs.

    From the word "go" (programs started and loaded, nothing connected) until the table says that all is finished.
    """
    with server.database(system.name, [*system.program]) as dsn, ExitStack() as stack:
        system.ask("bulk", dsn, jobs)
        server.settle(dsn)
        workers = [stack.enter_context(Process(system, "work", dsn)) for _ in range(processes)]
        asking = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        for worker in workers:
            worker.answer()
        begun = time.perf_counter()
        for worker in workers:
            worker.go()
        wait_until_handled(workers, jobs)
        _wait_until_finished(asking, system)
        return jobs / (time.perf_counter() - begun)


def wait_until_handled(workers: list[Process], jobs: int) -> None:
    """Returns when the workers' handlers together were called `jobs` times."""
    counts = [0] * len(workers)
    end = time.perf_counter() + DRAIN_WITHIN
    while sum(counts) < jobs:
        if time.perf_counter() > end:
            raise BenchmarkError(f"only {sum(counts)} of {jobs} jobs were handled in {DRAIN_WITHIN:g} s")
        for i, worker in enumerate(workers):
            for answer in worker.arrived():
                counts[i] = answer["done"]
        time.sleep(0.002)


def _wait_until_finished(connection: psycopg.Connection[tuple[bool]], system: System) -> None:
    end = time.perf_counter() + DRAIN_WITHIN
    while time.perf_counter() < end:
        row = connection.execute(system.unfinished).fetchone()
        if row == (False,):
            return
        time.sleep(0.005)
    raise BenchmarkError(f"{system.name}: jobs are handled but not finished")


def bulk(server: Server, system: System, jobs: int) -> float:
    """Jobs per second of one bulk enqueueing."""
    with server.database(system.name, [*system.program]) as dsn:
        server.settle(dsn)
        return float(jobs / system.ask("bulk", dsn, jobs)["seconds"])


def single(server: Server, system: System, jobs: int) -> float:
    """Jobs per second of one client that enqueues one job per call and transaction."""
    with server.database(system.name, [*system.program]) as dsn:
        server.settle(dsn)
        return float(jobs / system.ask("single", dsn, jobs)["seconds"])


def latency(server: Server, system: System, jobs: int) -> tuple[float, float]:
    """p50 and p99 in milliseconds from the return of an enqueueing commit to the start of the handler.

    Worker and enqueuer are processes of their own; the worker idles between jobs. The first tenth is not counted.
    """
    with server.database(system.name, [*system.program]) as dsn, Process(system, "listen", dsn) as worker:
        worker.answer()
        worker.go()
        time.sleep(1.5)  # until it is connected and idle: there is no sign of that which all queues share
        with Process(system, "ping", dsn, jobs) as enqueuer:
            enqueued = {answer["job"]: answer["at"] for answer in enqueuer.answers()}
        started: dict[int, int] = {}
        while len(started) < jobs:
            answer = worker.answer(10)
            started[answer["job"]] = answer["at"]
    waits = [(started[i] - enqueued[i]) / 1e6 for i in range(jobs // 10, jobs)]
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return cuts[49], cuts[98]


def idle_statements(server: Server, systems: Sequence[System], seconds: float) -> dict[str, float]:
    """Statements per minute that an idle worker sends, everything counted (begin, commit, heartbeats).

    All workers idle at the same time, each on a database of its own: counts do not mind the company.
    """
    with ExitStack() as stack:
        databases = {}
        for system in systems:
            databases[system.name] = stack.enter_context(server.database(system.name, [*system.program]))
            worker = stack.enter_context(Process(system, "listen", databases[system.name]))
            worker.answer()
            worker.go()
        time.sleep(5)  # past their start
        before = {name: server.count_statements(dsn) for name, dsn in databases.items()}
        time.sleep(seconds)
        return {name: (server.count_statements(dsn) - before[name]) * 60 / seconds for name, dsn in databases.items()}
