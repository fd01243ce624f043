"""Jobs by the million: from an iterator into a store, in chunks, in bounded memory.

While one chunk is on its way the next is drawn from the iterator, so the client's work and the server's overlap.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from marian_jobs.job import NewJob
from marian_jobs.store import Store

CHUNK = 5_000
LARGEST_CHUNK = 4 * 1024 * 1024  # bytes of payloads: about what an API takes in a second
TURN = 250  # jobs drawn before the event loop has its turn, in which the chunk on its way goes on


class Streamed(NamedTuple):
    """How many jobs were created, and for how many a live job had the key already."""

    created: int
    existing: int

    @property
    def total(self) -> int:
        """How many jobs were sent."""
        return self.created + self.existing


async def stream(store: Store, jobs: Iterable[NewJob], chunk: int, sent: Callable[[Streamed], None] | None) -> Streamed:
    """Enqueues the jobs, each chunk all or nothing; `sent` hears of each. See `Queue.enqueue_stream`."""
    done = Streamed(0, 0)

    async def load(batch: list[NewJob]) -> None:
        nonlocal done
        created = await store.load(batch)
        done = Streamed(done.created + created, done.existing + len(batch) - created)
        if sent is not None:
            sent(done)

    loading: asyncio.Task[None] | None = None
    try:
        async for batch in _chunks(jobs, chunk):
            await _landed(loading)
            loading = asyncio.create_task(load(batch))
    finally:
        await _landed(loading)  # whatever ended the loop: nothing goes on behind the caller's back
    return done


async def _landed(loading: "asyncio.Task[None] | None") -> None:
    """Waits for a chunk on its way and raises what it raised. Whoever cancels the caller does not cancel the chunk."""
    if loading is not None:
        await asyncio.wait({loading})
        loading.result()


async def _chunks(jobs: Iterable[NewJob], most: int) -> AsyncIterator[list[NewJob]]:
    batch: list[NewJob] = []
    size = 0
    for number, job in enumerate(jobs):
        if batch and (len(batch) == most or size + job.size > LARGEST_CHUNK):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += job.size
        if number % TURN == 0:
            await asyncio.sleep(0)
    if batch:
        yield batch
