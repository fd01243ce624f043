"""How much memory the client's process takes while it works through many jobs."""

import time
from dataclasses import dataclass

import psutil

from benchmarks.server import Server
from benchmarks.systems import OWN, BenchmarkError, Process

MIB = 1024 * 1024
SAMPLE_EVERY = 0.1
WITHIN = 900.0


@dataclass(frozen=True)
class Memory:
    """Resident memory in MiB: at a fifth of the work, at its end, and the most that was seen."""

    early: float
    late: float
    most: float


def of_worker(server: Server, jobs: int) -> Memory:
    """A worker process that drains `jobs` jobs."""
    with server.database(OWN.name, [*OWN.program]) as dsn:
        OWN.ask("bulk", dsn, jobs)
        server.settle(dsn)
        with Process(OWN, "work", dsn) as worker:
            worker.answer()
            worker.go()
            return _sampled(worker, jobs)


def _sampled(worker: Process, jobs: int) -> Memory:
    process = psutil.Process(worker.pid)
    done = 0
    samples: list[tuple[int, float]] = []
    end = time.perf_counter() + WITHIN
    while done < jobs:
        if time.perf_counter() > end:
            raise BenchmarkError(f"only {done} of {jobs} jobs were handled in {WITHIN:g} s")
        for answer in worker.arrived():
            done = answer["done"]
        samples.append((done, process.memory_info().rss / MIB))
        time.sleep(SAMPLE_EVERY)
    early = next(used for done, used in samples if done >= jobs / 5)
    return Memory(early, samples[-1][1], max(used for _, used in samples))


def of_enqueuer(server: Server, jobs: int) -> float:
    """The most MiB resident in a process that enqueues `jobs` jobs from an iterator."""
    with server.database(OWN.name, [*OWN.program]) as dsn, Process(OWN, "bulk", dsn, jobs) as enqueuer:
        process = psutil.Process(enqueuer.pid)
        most = 0.0
        end = time.perf_counter() + WITHIN
        while not enqueuer.arrived():
            if time.perf_counter() > end:
                raise BenchmarkError(f"{jobs} jobs were not enqueued in {WITHIN:g} s")
            most = max(most, process.memory_info().rss / MIB)
            time.sleep(SAMPLE_EVERY)
    return most
