"""A worker's health, served from its own process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request

from marian_jobs import checks, clock
from marian_jobs.health.address import bind
from marian_jobs.health.app import Answer, pages, with_programs_own
from marian_jobs.health.figures import Counts, QueueFigures, WorkerFigures
from marian_jobs.health.heart import Heart
from marian_jobs.health.server import Server
from marian_jobs.health.verdict import judge_life, judge_readiness
from marian_jobs.stats_reader import StatsReader
from marian_jobs.worker import Worker

STUCK_AFTER = timedelta(seconds=60)


@asynccontextmanager
async def serve_health(worker: Worker, address: str, *, stuck_after: timedelta = STUCK_AFTER) -> AsyncIterator[Server]:
    """Serves `/healthz`, `/readyz` and `/metrics` while the block lasts; yields the server, whose `url` is where.

    `address` is `PORT` (every interface), `HOST:PORT` or `unix:PATH`. Enter it in the event loop in which the worker
    runs: `/healthz` answers 503 when that loop has not turned for `stuck_after`. Raises `ValueError` for what is no
    address, `MarianError` for one that cannot be listened on.
    """
    checks.lease("stuck_after", stuck_after)
    health = WorkerHealth(worker, stuck_after)
    server = Server(health.app, bind(address))
    health.heart.start()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        health.close()


class WorkerHealth:
    """What is told of one worker."""

    def __init__(self, worker: Worker, stuck_after: timedelta) -> None:
        self.heart = Heart()
        self._worker = worker
        self._stuck_after = stuck_after
        self._counts = Counts()
        self._reader = StatsReader(worker.store)
        worker.observe(self._counts)
        self.app: Starlette = pages(self._life, self._readiness, self._figures)

    def close(self) -> None:
        """Asks nothing more."""
        self.heart.stop()
        self._reader.close()

    def _life(self) -> Answer:
        now = clock.monotonic()
        details = {"loop_turned_seconds_ago": round(now - self.heart.turned_at, 3)}
        return judge_life(self.heart.turned_at, now, self._stuck_after), details

    def _readiness(self) -> Answer:
        now = clock.monotonic()
        vitals = self._worker.vitals()
        ago = None if vitals.answered_at is None else round(now - vitals.answered_at, 3)
        return judge_readiness(vitals, now), {"store_answered_seconds_ago": ago, "running": vitals.running}

    def _figures(self, request: Request) -> Collector:
        own = [self._counts.registry, WorkerFigures(self._worker.vitals)]
        if request.query_params.get("queue") != "no":  # the whole table need not be counted for each of many processes
            own.append(QueueFigures(self._reader.read))
        return with_programs_own(own)
