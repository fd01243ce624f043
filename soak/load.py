"""The load: `python -m soak.load` until SIGTERM; a line of JSON with its counts every five seconds.

One process stands for a backend: it enqueues over Postgres and over the API, reads for signed-in users, and operates.
"""

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from marian_jobs import (
    JobFilter,
    MarianError,
    NewJob,
    PostgresStore,
    Queue,
    Status,
    SupabaseStore,
    UserJobs,
    new_job,
)

SUCCEEDED_KEPT, DEAD_KEPT = timedelta(seconds=60), timedelta(seconds=90)
KINDS = ("quick", "quick", "quick", "thread", "waits", "flaky", "flaky", "later", "doomed", "apart")


class Load:
    """What the backend does, each at its own pace; `counts` says how often."""

    def __init__(self, queue: Queue, api: Queue, users: list[tuple[UUID, UserJobs]], rate: float, seed: int) -> None:
        self._queue = queue
        self._api = api
        self._users = users
        self._rate = rate
        self._chance = random.Random(seed)
        self.counts: Counter[str] = Counter()

    async def run(self, until: asyncio.Event) -> None:
        """All of it until the event is set."""
        batch = 10
        loops = [
            self._every(batch / self._rate, until, lambda: self._enqueue(self._queue, batch)),
            self._every(2 * batch / self._rate, until, lambda: self._enqueue(self._api, batch)),
            self._every(0.5, until, self._enqueue_one),
            self._every(0.5, until, self._read),
            self._every(2, until, self._operate),
            self._every(5, until, self._prune),
        ]
        await asyncio.gather(*loops)

    async def _every(self, seconds: float, until: asyncio.Event, act: Callable[[], Awaitable[None]]) -> None:
        while not until.is_set():
            try:
                await act()
            except MarianError as e:
                self.counts[f"error: {type(e).__name__}"] += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), seconds)

    async def _enqueue(self, queue: Queue, count: int) -> None:
        await queue.enqueue_many([self._job() for _ in range(count)])
        self.counts["enqueued"] += count

    async def _enqueue_one(self) -> None:
        key = f"key-{self._chance.randrange(20)}"
        again = await self._queue.enqueue("quick", {"filler": "x" * 500}, key=key, delay=timedelta(seconds=1))
        self.counts["keys made" if again.created else "keys found"] += 1

    async def _read(self) -> None:
        _, jobs = self._chance.choice(self._users)
        page = await jobs.list(limit=20)
        if page.jobs:
            await jobs.get(page.jobs[-1].id)
        self.counts["lists read"] += 1

    async def _operate(self) -> None:
        await self._queue.stats()
        for job in (await self._queue.find(JobFilter(status=Status.DEAD, limit=20)))[:1]:
            self.counts["retried"] += (await self._queue.retry(job.id, 1)) is not None
        for job in (await self._queue.find(JobFilter(status=Status.QUEUED, type="waits", limit=1)))[:1]:
            self.counts["cancelled"] += (await self._queue.cancel(job.id)) is not None

    async def _prune(self) -> None:
        self.counts["pruned"] += await self._api.prune(succeeded_older=SUCCEEDED_KEPT, dead_older=DEAD_KEPT)

    def _job(self) -> NewJob:
        kind = self._chance.choice(KINDS)
        payload: dict[str, Any] = {"filler": "x" * self._chance.randrange(200)}
        if kind == "waits":
            payload["seconds"] = 8 if self._chance.random() < 0.01 else round(self._chance.random() / 2, 3)
        if kind == "flaky":
            payload["fails"] = self._chance.randint(1, 2)
        if kind == "apart" and self._chance.random() < 0.8:
            kind = "quick"  # a process of its own is dear
        return new_job(
            kind,
            payload,
            user_id=self._chance.choice(self._users)[0] if self._chance.random() < 0.3 else None,
            priority=self._chance.choice([-10, 0, 0, 0, 5]),
            delay=timedelta(seconds=self._chance.randrange(6)) if self._chance.random() < 0.2 else None,
        )


async def main() -> None:
    """Runs the load that SOAK_LOAD describes."""
    told = json.loads(os.environ["SOAK_LOAD"])
    until = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, until.set)
    async with AsyncExitStack() as stack:
        queue = await stack.enter_async_context(Queue(PostgresStore(told["dsn"])))
        api = await stack.enter_async_context(Queue(SupabaseStore(told["url"], told["key"])))
        users = [
            (UUID(id), await stack.enter_async_context(UserJobs(told["url"], told["anon"], token)))
            for id, token in told["users"]
        ]
        load = Load(queue, api, users, told["rate"], told["seed"])
        telling = asyncio.create_task(_tell(load.counts))
        await load.run(until)
        telling.cancel()
        print(json.dumps(load.counts), flush=True)


async def _tell(counts: Counter[str]) -> None:
    while True:
        await asyncio.sleep(5)
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
