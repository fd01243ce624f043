"""The queue over a Postgres connection, by psycopg 3: statements from `rows`, errors from `refusals`, IO here."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import psycopg
from anyio import to_thread
from psycopg import conninfo
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from marian_jobs.errors import NotSupported, StoreUnavailable
from marian_jobs.job import Enqueued, Held, Job, NewJob
from marian_jobs.store import MOST_CLAIMED, Alarm, Failure, Floors, JobFilter, Limit, Poll, Stat, TypeLimit
from marian_jobs.stores import columns, rows
from marian_jobs.stores.adapters import PLAIN_PAYLOADS
from marian_jobs.stores.alarm import ListenAlarm, SleepAlarm
from marian_jobs.stores.refusals import explain, is_broken_off, parsed, was_not_carried_out
from marian_jobs.stores.rows import Statement

Pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]]

DEADLINE = timedelta(seconds=30)
_TRANSACTION_POOLER_PORT = "6543"
# A dead peer shows within about 15 s instead of the kernel's hours; the caller's own settings win.
_PATIENCE = {
    "application_name": "marian_jobs",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


class PostgresStore:
    """Keeps jobs in `public.marian_jobs` of the database that a DSN names, or behind a psycopg pool handed in.

    `pooler` says that a transaction-mode pooler stands in between (recognised by Supabase's port 6543): no named
    prepared statements, no LISTEN. `deadline` bounds every call. A pool handed in is neither opened nor closed here.
    """

    def __init__(
        self,
        database: str | Pool,
        *,
        pooler: bool | None = None,
        deadline: timedelta = DEADLINE,
        max_connections: int = 10,
    ) -> None:
        self._deadline = deadline.total_seconds()
        self._max_connections = max_connections
        self._dsn = _patient(database) if isinstance(database, str) else None
        self._pool = None if isinstance(database, str) else database
        self.pooler = bool(self._dsn and _is_transaction_pooler(self._dsn)) if pooler is None else pooler

    def __repr__(self) -> str:
        return f"PostgresStore({'pooler' if self.pooler else 'direct'})"

    async def __aenter__(self) -> "PostgresStore":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Opens the pool and checks that the schema is there and may be used; `StoreRefused` says what is missing."""
        if self._dsn is not None and self._pool is None:
            await self._try_to_connect(self._dsn)
            self._pool = self._new_pool(self._dsn)
            await self._pool.open()
        try:
            await self._harmless(rows.may_work())
        except BaseException:
            await self.close()
            raise

    def _new_pool(self, dsn: str) -> Pool:
        return AsyncConnectionPool(
            dsn,
            kwargs={
                "autocommit": True,
                "prepare_threshold": None if self.pooler else 5,
                "context": PLAIN_PAYLOADS,
            },
            min_size=1,
            max_size=self._max_connections,
            open=False,
            # Our own loop paces the attempts (see `_patiently`); the pool's would double its pauses up to minutes.
            timeout=2.0,
            reconnect_timeout=0.1,
        )

    async def _try_to_connect(self, dsn: str) -> None:
        """One connection outside the pool, which would keep the reason of a failure to itself."""
        try:
            async with asyncio.timeout(self._deadline):
                connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
                await connection.close()
        except (psycopg.Error, OSError, TimeoutError) as e:
            raise explain(e) from e

    async def close(self) -> None:
        """Closes the store's own pool; one that was handed in stays open."""
        if self._dsn is not None and self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: object | None = None) -> list[Enqueued]:
        """See `Store.enqueue`. `connection` is a psycopg connection, async or sync, whose transaction the jobs join."""
        if not jobs:
            return []
        if len(jobs) > 1:
            return columns.to_enqueueds(jobs, await self._enqueue(columns.load(jobs), connection))
        return [rows.to_enqueued((await self._enqueue(rows.enqueue(jobs[0]), connection))[0], jobs[0])]

    async def load(self, jobs: Sequence[NewJob]) -> int:
        """See `Store.load`."""
        return columns.created(jobs, await self._enqueue(columns.load(jobs), None)) if jobs else 0

    async def _enqueue(self, statement: Statement, connection: object | None) -> list[Any]:
        return await (self._harmless(statement) if connection is None else _within(connection, statement))

    async def claim(
        self,
        limit: int,
        types: Collection[str] | None,
        lease: timedelta,
        room: rows.Room = None,
        floors: Floors | None = None,
    ) -> list[Job]:
        """See `Store.claim`. Not sent again when its reply was lost: what it leased comes back when the lease ends."""
        return _jobs(await self._once(rows.claim(limit, types, lease, room, floors)))

    async def complete(self, held: Sequence[Held], *, connection: object | None = None) -> set[Held]:
        """See `Store.complete`."""
        accepted = set(held)
        if held:
            statement = rows.complete(held)
            refused = await (self._harmless(statement) if connection is None else _within(connection, statement))
            accepted.difference_update(Held(*row) for row in refused)
        return accepted

    async def fail(self, failures: Sequence[Failure]) -> list[Job]:
        """See `Store.fail`."""
        return _jobs(await self._harmless(rows.fail(failures))) if failures else []

    async def extend(self, held: Sequence[Held], lease: timedelta) -> set[Held]:
        """See `Store.extend`."""
        if not held:
            return set()
        return rows.still_held(held, [row[0] for row in await self._harmless(rows.extend(held, lease))])

    async def release(self, held: Sequence[Held], delay: timedelta = timedelta(0)) -> list[Job]:
        """See `Store.release`."""
        return _jobs(await self._harmless(rows.release(held, delay))) if held else []

    async def reclaim(self, limit: int = MOST_CLAIMED) -> list[Job]:
        """See `Store.reclaim`."""
        return _jobs(await self._harmless(rows.reclaim(limit)))

    async def poll(self, limit: int, types: Collection[str], lease: timedelta, room: rows.Room = None) -> Poll:
        """See `Store.poll`. Like `claim`, not sent again when its reply was lost."""
        return rows.to_poll(await self._once(rows.poll(limit, types, lease, room)))

    async def cancel(self, job_id: UUID) -> Job | None:
        """See `Store.cancel`."""
        return _job(await self._once(rows.cancel(job_id)))

    async def retry(self, job_id: UUID, max_attempts: int | None = None) -> Job | None:
        """See `Store.retry`."""
        return _job(await self._once(rows.retry(job_id, max_attempts)))

    async def get(self, job_id: UUID) -> Job | None:
        """See `Store.get`."""
        return _job(await self._harmless(rows.get(job_id)))

    async def find(self, which: JobFilter) -> Sequence[Job]:
        """See `Store.find`."""
        return _jobs(await self._harmless(rows.find(which)))

    async def pause(self, type: str) -> None:
        """See `Store.pause`."""
        await self._harmless(rows.pause(type))

    async def resume(self, type: str) -> None:
        """See `Store.resume`."""
        await self._harmless(rows.resume(type))

    async def limit(self, type: str, limit: Limit) -> None:
        """See `Store.limit`."""
        await self._harmless(rows.limit_type(type, limit))

    async def limits(self) -> Sequence[TypeLimit]:
        """See `Store.limits`."""
        return [rows.to_type_limit(row) for row in await self._harmless(rows.limits())]

    async def prune(self, succeeded_older: timedelta | None, dead_older: timedelta | None, limit: int = 10_000) -> int:
        """See `Store.prune`."""
        answer: int = (await self._harmless(rows.prune(succeeded_older, dead_older, limit)))[0][0]
        return answer

    async def stats(self) -> Sequence[Stat]:
        """See `Store.stats`."""
        return [rows.to_stat(row) for row in await self._harmless(rows.stats())]

    def for_another_loop(self) -> "PostgresStore":
        """See `Store.for_another_loop`: one connection to the same database."""
        return PostgresStore(
            self._conninfo(), pooler=self.pooler, deadline=timedelta(seconds=self._deadline), max_connections=1
        )

    def alarm(self, types: Collection[str]) -> Alarm:
        """See `Store.alarm`: LISTEN on a connection of its own, or plain sleep behind a transaction-mode pooler."""
        return SleepAlarm() if self.pooler else ListenAlarm(self._conninfo(), types)

    def _conninfo(self) -> str:
        if self._dsn is not None:
            return self._dsn
        if self._pool is None or not isinstance(self._pool.conninfo, str):
            raise NotSupported("a worker needs a pool made from a connection string, not from a function")
        return _patient(self._pool.conninfo)

    async def _once(self, statement: Statement) -> list[Any]:
        """Carried out at most once: sent again only when it surely was not."""
        return await self._patiently(statement, was_not_carried_out)

    async def _harmless(self, statement: Statement) -> list[Any]:
        """Sent again when the connection breaks off: the second call changes nothing more."""
        return await self._patiently(statement, lambda e: was_not_carried_out(e) or is_broken_off(cast("Exception", e)))

    async def _patiently(self, statement: Statement, again: Callable[[BaseException], bool]) -> list[Any]:
        try:
            async with asyncio.timeout(self._deadline):
                try:
                    return await self._send(statement)
                except Exception as e:
                    if not again(e):
                        raise
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception(again),
                    wait=wait_random_exponential(multiplier=0.1, max=1),
                    stop=stop_after_delay(self._deadline),
                    reraise=True,
                ):
                    with attempt:
                        return await self._send(statement)
        except TimeoutError as e:
            raise StoreUnavailable(f"the database did not answer within {self._deadline:g} s") from e
        except (psycopg.Error, OSError) as e:
            raise explain(e) from e
        raise AssertionError("unreachable: the attempts end by an answer or an error")

    async def _send(self, statement: Statement) -> list[Any]:
        if self._pool is None:
            raise StoreUnavailable("the store is not open: use it as `async with`, or call open()")
        async with self._pool.connection() as connection:
            return await _execute(connection, statement)


async def _execute(connection: psycopg.AsyncConnection[Any], statement: Statement) -> list[Any]:
    cursor = connection.cursor(binary=True, row_factory=tuple_row)  # a client-side one: it holds nothing to close
    await cursor.execute(statement.text, statement.parameters)
    return await cursor.fetchall()


async def _within(connection: object, statement: Statement) -> list[Any]:
    """Executes on the caller's connection, in whatever transaction it is in; never again, since that is theirs."""
    try:
        if isinstance(connection, psycopg.AsyncConnection):
            return await _execute(connection, statement)
        if isinstance(connection, psycopg.Connection):
            return await to_thread.run_sync(_within_sync, connection, statement)
    except (psycopg.Error, OSError) as e:
        raise explain(e) from e
    raise NotSupported(f"connection: expected a psycopg 3 connection, got {type(connection).__name__}")


def _within_sync(connection: psycopg.Connection[Any], statement: Statement) -> list[Any]:
    with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        cursor.execute(statement.text, statement.parameters)
        return cursor.fetchall()


def _jobs(answers: Sequence[Any]) -> list[Job]:
    return [rows.to_job(row) for row in answers]


def _job(answers: Sequence[Any]) -> Job | None:
    return rows.to_job(answers[0]) if answers else None


def _patient(dsn: str) -> str:
    return conninfo.make_conninfo(**{**_PATIENCE, **parsed(dsn)})


def _is_transaction_pooler(dsn: str) -> bool:
    return str(parsed(dsn).get("port", "")) == _TRANSACTION_POOLER_PORT
