"""The worker under load: `marian worker soak.app:worker`, over the store and with the part that SOAK_WORKER names."""

import asyncio
import json
import os
import time
from datetime import timedelta

from marian_jobs import Backoff, Context, Dead, Job, PostgresStore, Retry, Snooze, Store, SupabaseStore, Worker

LEASE = timedelta(seconds=6)
SOON = Backoff(base=timedelta(milliseconds=200), max=timedelta(seconds=2), jitter=0.5)

_told = json.loads(os.environ.get("SOAK_WORKER", '{"part": "quick"}'))


def _store() -> Store:
    if "url" in _told:
        return SupabaseStore(_told["url"], _told["key"])
    return PostgresStore(_told.get("dsn", "postgresql://nowhere"))


worker = Worker(_store(), concurrency=_told.get("concurrency", 10), lease=LEASE)


async def quick(job: Job) -> None:
    """Nearly nothing."""


async def waits(job: Job, context: Context) -> None:
    """Waits as a call of a model does; now and then for longer than its lease."""
    context.logger.info("waiting %s s", job.payload["seconds"])
    await asyncio.sleep(job.payload["seconds"])


def thread(job: Job) -> None:
    """A plain function."""
    time.sleep(0.02)


async def flaky(job: Job) -> None:
    """Fails once or twice, in one way or the other, then succeeds."""
    if job.attempts <= job.payload["fails"]:
        if job.payload["fails"] % 2:
            raise Retry("busy", after=timedelta(milliseconds=300))
        raise RuntimeError("the model said no")


async def doomed(job: Job) -> None:
    """No retry helps."""
    raise Dead("cannot be done")


async def later(job: Job) -> None:
    """Puts itself off once."""
    if job.attempts == 1:
        raise Snooze(timedelta(seconds=1))


async def slot(job: Job) -> None:
    """Made by a schedule."""


def apart(job: Job) -> None:
    """In a process of its own."""
    time.sleep(0.05)


if _told["part"] == "apart":
    worker.handler("apart", isolation="process")(apart)
else:
    for function in (quick, thread, doomed, later):
        worker.handler(function.__name__)(function)
    worker.handler("waits", limit=8)(waits)
    worker.handler("flaky", backoff=SOON)(flaky)
    worker.schedule("*/5 * * * * *", name="every-five")(worker.handler("slot")(slot))
