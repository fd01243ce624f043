"""marian_jobs as a program under test."""

import asyncio
import importlib.metadata
from collections.abc import Iterator

from benchmarks.program import Handled, main, timed
from marian_jobs import Job, PostgresStore, Queue, Worker, new_job
from marian_jobs.job import NewJob
from marian_jobs.migrations import migrate

TYPE = "noop"


def _jobs(count: int) -> Iterator[NewJob]:
    return (new_job(TYPE, {"job": i}) for i in range(count))


class Own:
    """One type, small payloads, no keys."""

    async def install(self, dsn: str) -> None:
        await asyncio.to_thread(migrate, dsn)

    def version(self) -> str:
        return importlib.metadata.version("marian-jobs")

    async def bulk(self, dsn: str, count: int) -> float:
        """From an iterator: 1,000,000 jobs are never all in memory."""
        async with Queue(PostgresStore(dsn)) as queue:
            return await timed(queue.enqueue_stream(_jobs(count)))

    async def single(self, dsn: str, count: int, enqueued: Handled, pause: float) -> float:
        async def enqueue(queue: Queue) -> None:
            for i in range(count):
                await queue.enqueue(TYPE, {"job": i})
                enqueued(i)
                if pause:
                    await asyncio.sleep(pause)

        async with Queue(PostgresStore(dsn)) as queue:
            return await timed(enqueue(queue))

    async def work(self, dsn: str, handled: Handled, stop: asyncio.Event) -> None:
        worker = Worker(PostgresStore(dsn), concurrency=1000)

        @worker.handler(TYPE)
        async def noop(job: Job) -> None:
            number = job.payload["job"]
            handled(number if isinstance(number, int) else -1)

        running = asyncio.create_task(worker.run(signals=False))
        await stop.wait()
        worker.stop()
        await running
        await worker.close()


if __name__ == "__main__":
    main(Own())
