"""pgqueuer as a program under test: asyncpg pool, uvloop, batches of 500."""

import asyncio
import importlib.metadata
import json

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from benchmarks.program import Handled, main, timed

BATCH = 500
CHUNK = 10_000


def _payload(job: int) -> bytes:
    return json.dumps({"job": job}).encode()


class Pgqueuer:
    """One entrypoint; lists are its way to enqueue many."""

    async def install(self, dsn: str) -> None:
        connection = await asyncpg.connect(dsn)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    def version(self) -> str:
        return importlib.metadata.version("pgqueuer")

    async def bulk(self, dsn: str, count: int) -> float:
        async def enqueue(queries: Queries) -> None:
            for first in range(0, count, CHUNK):
                payloads: list[bytes | None] = [_payload(i) for i in range(first, min(first + CHUNK, count))]
                await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))

        connection = await asyncpg.connect(dsn)
        try:
            return await timed(enqueue(Queries(AsyncpgDriver(connection))))
        finally:
            await connection.close()

    async def single(self, dsn: str, count: int, enqueued: Handled, pause: float) -> float:
        async def enqueue(queries: Queries) -> None:
            for i in range(count):
                await queries.enqueue("noop", _payload(i))
                enqueued(i)
                if pause:
                    await asyncio.sleep(pause)

        connection = await asyncpg.connect(dsn)
        try:
            return await timed(enqueue(Queries(AsyncpgDriver(connection))))
        finally:
            await connection.close()

    async def work(self, dsn: str, handled: Handled, stop: asyncio.Event) -> None:
        async with asyncpg.create_pool(dsn, min_size=2, max_size=6) as pool:
            worker = PgQueuer.from_asyncpg_pool(pool)

            @worker.entrypoint("noop")
            async def noop(job: Job) -> None:
                handled(json.loads(job.payload or b"{}")["job"])

            running = asyncio.create_task(worker.run(batch_size=BATCH))
            await stop.wait()
            worker.shutdown.set()
            await running


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    main(Pgqueuer())
