"""Getting jobs in and looking after them; the same from async and from plain code."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from uuid import UUID

from marian_jobs import checks
from marian_jobs.errors import MarianError
from marian_jobs.job import Enqueued, Job, JsonObject, NewJob
from marian_jobs.store import JobFilter, Limit, Stat, Store, TypeLimit
from marian_jobs.stream import CHUNK, Streamed, stream

logger = logging.getLogger("marian_jobs.queue")

P = ParamSpec("P")
R = TypeVar("R")


class Queue:
    """The queue behind a store. Open it (`async with`), or let the first call do so."""

    def __init__(self, store: Store, *, largest_payload: int = checks.LARGEST_PAYLOAD) -> None:
        self._store = store
        self._largest_payload = largest_payload
        self._opened: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the store."""
        self._opened = None
        await self._store.close()

    async def enqueue(
        self,
        type: str,
        payload: JsonObject | None = None,
        *,
        user_id: UUID | str | None = None,
        key: str | None = None,
        priority: int = 0,
        run_after: datetime | None = None,
        delay: timedelta | None = None,
        max_attempts: int = 3,
        connection: object | None = None,
    ) -> Enqueued:
        """The job, made (`created`) or found: a live job with the same `key` is returned as it is, unchanged.

        Due at `run_after` (aware), or `delay` after the database's now, or at once; among due jobs the highest
        `priority` (32-bit) runs first. `connection` (psycopg) makes it part of the caller's own transaction.
        Raises `ValueError`/`TypeError` naming what is wrong before anything is sent; `KeyConflict` where the key's
        live job has another owner.
        """
        job = checks.new_job(
            type,
            payload,
            user_id=user_id,
            key=key,
            priority=priority,
            max_attempts=max_attempts,
            run_after=run_after,
            delay=delay,
            largest_payload=self._largest_payload,
        )
        return (await self.enqueue_many([job], connection=connection))[0]

    async def enqueue_many(self, jobs: Iterable[NewJob], *, connection: object | None = None) -> list[Enqueued]:
        """One answer per job (made by `new_job`), in order, in one transaction: all of them or, on an error, none."""
        batch = list(jobs)
        if connection is None:
            await self._ready()
        answers = await self._store.enqueue(batch, connection=connection)
        if logger.isEnabledFor(logging.DEBUG):
            for job in answers:
                what = "job enqueued" if job.created else "job found: its key has a live one"
                logger.debug(what, extra={"job_id": str(job.id), "job_type": job.type})
        return answers

    async def enqueue_stream(
        self,
        jobs: Iterable[NewJob],
        *,
        chunk: int = CHUNK,
        sent: Callable[[Streamed], None] | None = None,
    ) -> Streamed:
        """How many of the jobs (made by `new_job`) were created, and how many existed already by their keys.

        For any number of them: memory holds two chunks of at most `chunk` jobs or 4 MiB of payloads. Each chunk is a
        transaction of its own; while one is on its way the next is drawn from the iterator. `sent` is called after
        each with the counts so far. An error leaves the chunks before it enqueued.
        """
        checks.integer("chunk", chunk, 1, 100_000)
        await self._ready()
        return await stream(self._store, jobs, chunk, sent)

    async def get(self, job_id: UUID | str) -> Job | None:
        """The job as it stands, or None."""
        await self._ready()
        return await self._store.get(checks.uuid("job_id", job_id))

    async def find(self, which: JobFilter | None = None) -> Sequence[Job]:
        """A page of jobs, newest first; continue with `before=(job.created_at, job.id)` of the last."""
        await self._ready()
        return await self._store.find(which or JobFilter())

    async def cancel(self, job_id: UUID | str) -> Job | None:
        """The job, dead; None when it is finished or not there. A running handler is told at its next extension."""
        await self._ready()
        return await self._store.cancel(checks.uuid("job_id", job_id))

    async def retry(self, job_id: UUID | str, max_attempts: int | None = None) -> Job | None:
        """The dead job queued with a fresh budget; None when not dead. Raises `RetryRefused` where its key is taken."""
        if max_attempts is not None:
            checks.integer("max_attempts", max_attempts, 1, checks.INT32[1])
        await self._ready()
        return await self._store.retry(checks.uuid("job_id", job_id), max_attempts)

    async def reclaim(self) -> list[Job]:
        """The jobs whose lease was over (at most 1000 a call), now retrying or dead."""
        await self._ready()
        return await self._store.reclaim()

    async def prune(
        self, *, succeeded_older: timedelta | None, dead_older: timedelta | None, limit: int = 10_000
    ) -> int:
        """How many finished jobs older than that one short transaction deleted; call until less than `limit`."""
        for name, age in (("succeeded_older", succeeded_older), ("dead_older", dead_older)):
            if age is not None:
                checks.duration(name, age)
        checks.integer("limit", limit, 1, checks.INT32[1])
        await self._ready()
        return await self._store.prune(succeeded_older, dead_older, limit)

    async def pause(self, type: str) -> None:
        """No job of the type is claimed any more, by any worker or edge function; those that run go on."""
        await self._ready()
        await self._store.pause(checks.text("type", type, longest=128))

    async def resume(self, type: str) -> None:
        """Jobs of the type are claimed again."""
        await self._ready()
        await self._store.resume(checks.text("type", type, longest=128))

    async def limit(
        self, type: str, *, max_running: int | None = None, rate: int | None = None, per: timedelta | None = None
    ) -> None:
        """Bounds the type over all workers: at most `max_running` at once, at most `rate` starts in any `per`.

        Each call sets all of it anew: without arguments it frees the type.
        """
        checks.limit(max_running, rate, per)
        await self._ready()
        await self._store.limit(checks.text("type", type, longest=128), Limit(max_running, rate, per))

    async def limits(self) -> Sequence[TypeLimit]:
        """Every type that is paused or limited, and how much of that is used."""
        await self._ready()
        return await self._store.limits()

    async def stats(self) -> Sequence[Stat]:
        """Per type and status: count, age of the oldest due job, expired leases."""
        await self._ready()
        return await self._store.stats()

    async def _ready(self) -> None:
        """Opens the store once, however many calls come first together; a failed opening is tried anew."""
        if self._opened is None or (self._opened.done() and self._failed(self._opened)):
            self._opened = asyncio.ensure_future(self._store.open())
        if not self._opened.done():
            await asyncio.shield(self._opened)
        self._opened.result()

    @staticmethod
    def _failed(task: "asyncio.Task[None]") -> bool:
        return task.cancelled() or task.exception() is not None


def _blocking(
    method: Callable[Concatenate[Queue, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["SyncQueue", P], R]:
    """The method for code without an event loop: the same coroutine, awaited in the twin's own loop."""

    def call(self: "SyncQueue", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(method(self._queue, *args, **kwargs))

    update_wrapper(call, method)
    return call


class SyncQueue:
    """`Queue` for code without an event loop: the same calls, which block; safe to share between threads.

    Runs them in one daemon thread of its own. After a fork make a new one: connections must not be shared.
    """

    def __init__(self, store: Store, *, largest_payload: int = checks.LARGEST_PAYLOAD) -> None:
        self._queue = Queue(store, largest_payload=largest_payload)
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="marian-jobs-queue", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the store and ends the thread; the queue is not used again."""
        if self._loop.is_running():
            self._run(self._queue.close())
            self._loop.call_soon_threadsafe(self._loop.stop)

    enqueue = _blocking(Queue.enqueue)
    enqueue_many = _blocking(Queue.enqueue_many)
    enqueue_stream = _blocking(Queue.enqueue_stream)
    get = _blocking(Queue.get)
    find = _blocking(Queue.find)
    cancel = _blocking(Queue.cancel)
    retry = _blocking(Queue.retry)
    reclaim = _blocking(Queue.reclaim)
    prune = _blocking(Queue.prune)
    pause = _blocking(Queue.pause)
    resume = _blocking(Queue.resume)
    limit = _blocking(Queue.limit)
    limits = _blocking(Queue.limits)
    stats = _blocking(Queue.stats)

    def _run(self, call: Coroutine[Any, Any, R]) -> R:
        if os.getpid() != self._process:
            call.close()
            raise MarianError("SyncQueue: made before a fork; make a new one in the child process")
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
