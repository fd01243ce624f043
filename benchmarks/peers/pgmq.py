"""pgmq as a program under test: its SQL script, and a bare loop over asyncpg, since it has no worker of its own."""

import asyncio
import contextlib
import json

import asyncpg
import psycopg
import uvloop
from pgmq.install import get_embedded_sql_version, install_pgmq_from_sql

from benchmarks.program import Handled, main, timed

BATCH = 1000
CHUNK = 10_000
QUEUE = "noop"


def _message(job: int) -> str:
    return json.dumps({"job": job})


class Pgmq:
    """`read` with a visibility timeout of 30 s, the handler, `delete` of the batch; woken by its insert trigger."""

    async def install(self, dsn: str) -> None:
        with psycopg.connect(dsn) as connection:
            install_pgmq_from_sql(conn=connection)
            connection.execute("select pgmq.create(%s)", (QUEUE,))

    def version(self) -> str:
        return str(get_embedded_sql_version())

    async def bulk(self, dsn: str, count: int) -> float:
        async def enqueue(connection: asyncpg.Connection) -> None:
            for first in range(0, count, CHUNK):
                messages = [_message(i) for i in range(first, min(first + CHUNK, count))]
                await connection.execute("select pgmq.send_batch($1, $2::text[]::jsonb[])", QUEUE, messages)

        connection = await asyncpg.connect(dsn)
        try:
            return await timed(enqueue(connection))
        finally:
            await connection.close()

    async def single(self, dsn: str, count: int, enqueued: Handled, pause: float) -> float:
        async def enqueue(connection: asyncpg.Connection) -> None:
            for i in range(count):
                await connection.fetchval("select pgmq.send($1, $2::text::jsonb)", QUEUE, _message(i))
                enqueued(i)
                if pause:
                    await asyncio.sleep(pause)

        connection = await asyncpg.connect(dsn)
        try:
            return await timed(enqueue(connection))
        finally:
            await connection.close()

    async def work(self, dsn: str, handled: Handled, stop: asyncio.Event) -> None:
        woken = asyncio.Event()
        listening = await asyncpg.connect(dsn)
        with contextlib.suppress(asyncpg.DuplicateObjectError):  # the other worker process was first
            await listening.execute("select pgmq.enable_notify_insert($1, 0)", QUEUE)
        await listening.add_listener(f"pgmq.q_{QUEUE}.INSERT", lambda *_: woken.set())
        connection = await asyncpg.connect(dsn)
        stopping = asyncio.create_task(stop.wait())
        while not stop.is_set():
            woken.clear()
            rows = await connection.fetch("select msg_id, message from pgmq.read($1, 30, $2)", QUEUE, BATCH)
            for row in rows:
                handled(json.loads(row["message"])["job"])
            if rows:
                await connection.execute("select pgmq.delete($1, $2::bigint[])", QUEUE, [row["msg_id"] for row in rows])
            else:
                waking = asyncio.create_task(woken.wait())
                await asyncio.wait({waking, stopping}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
        await connection.close()
        await listening.close()


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    main(Pgmq())
