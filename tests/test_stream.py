"""Jobs by the million: chunks that are whole, that overlap with their making, and known when something fails."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence

import pytest

from marian_jobs import MemoryStore, NewJob, Queue, StoreRefused, Streamed, SyncQueue, new_job
from marian_jobs.stream import LARGEST_CHUNK


class Watched(MemoryStore):
    """A memory store that keeps the sizes of what it is sent, waits before it takes it, and refuses one on demand."""

    def __init__(self, refuse: int = -1) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.landed = 0
        self._refuse = refuse

    async def load(self, jobs: Sequence[NewJob]) -> int:
        self.sizes.append(len(jobs))
        await asyncio.sleep(0.01)
        if len(self.sizes) == self._refuse:
            raise StoreRefused("not this one")
        self.landed += len(jobs)
        return await super().load(jobs)


def jobs(count: int) -> Iterator[NewJob]:
    return (new_job("t", {"i": i}, key=f"k{i % 10}" if i < 20 else None) for i in range(count))


async def test_all_jobs_go_in_by_chunks_and_known_keys_are_counted() -> None:
    store = Watched()
    heard: list[Streamed] = []
    async with Queue(store) as queue:
        assert await queue.enqueue_stream(jobs(2_500), chunk=1000, sent=heard.append) == Streamed(2_490, 10)
    assert store.sizes == [1000, 1000, 500]
    assert heard == [Streamed(990, 10), Streamed(1990, 10), Streamed(2490, 10)]


async def test_an_endless_iterator_is_drawn_one_chunk_ahead_and_no_further() -> None:
    drawn = itertools.count()
    store = Watched(refuse=3)
    async with Queue(store) as queue:
        with pytest.raises(StoreRefused):
            await queue.enqueue_stream((new_job("t", {"i": i}) for i in drawn), chunk=100)
    assert store.landed == 200
    assert next(drawn) <= 401


async def test_large_payloads_make_smaller_chunks() -> None:
    store = Watched()
    large = {"text": "x" * (LARGEST_CHUNK // 5)}
    async with Queue(store, largest_payload=LARGEST_CHUNK) as queue:
        await queue.enqueue_stream(new_job("t", large) for _ in range(6))
    assert store.sizes == [4, 2]


async def test_when_the_iterator_fails_what_is_on_its_way_lands_and_the_rest_was_never_sent() -> None:
    def failing() -> Iterator[NewJob]:
        yield from jobs(250)
        raise ValueError("line 251")

    store = Watched()
    heard: list[Streamed] = []
    async with Queue(store) as queue:
        with pytest.raises(ValueError, match="line 251"):
            await queue.enqueue_stream(failing(), chunk=100, sent=heard.append)
    assert store.landed == 200
    assert heard[-1].total == 200


async def test_nothing_to_send_is_no_call() -> None:
    store = Watched()
    async with Queue(store) as queue:
        assert await queue.enqueue_stream([]) == Streamed(0, 0)
    assert store.sizes == []


def test_the_blocking_twin_streams_too() -> None:
    with SyncQueue(MemoryStore()) as queue:
        assert queue.enqueue_stream(jobs(30), chunk=7) == Streamed(20, 10)


@pytest.mark.parametrize("chunk", [0, -1, 1.5, True, "9", 100_001])
async def test_a_chunk_that_is_none_is_refused(chunk: object) -> None:
    async with Queue(MemoryStore()) as queue:
        with pytest.raises((ValueError, TypeError), match="chunk"):
            await queue.enqueue_stream([], chunk=chunk)  # type: ignore[arg-type]
