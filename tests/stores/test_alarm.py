"""The alarm of a store that listens."""

import asyncio
from datetime import timedelta

import psycopg

from marian_jobs import PostgresStore


async def test_a_lost_connection_rings_since_what_rang_meanwhile_was_not_heard(database: str) -> None:
    alarm = PostgresStore(database).alarm(["t"])
    assert await alarm.arm()
    waiting = asyncio.create_task(alarm.wait(timedelta(seconds=60)))
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and query like 'listen%' or query like '%pg_advisory_lock_shared%'"
            " and pid <> pg_backend_pid()"
        )
    assert await asyncio.wait_for(waiting, 10)
    assert not alarm.rings
    await alarm.close()
