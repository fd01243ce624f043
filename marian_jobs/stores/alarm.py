"""What wakes an idle worker: a notification where the database can send one, else the passing of time.

NOTIFY takes a lock that is database-wide at commit, so enqueueing notifies only when somebody sleeps. A sleeper says so
by holding a shared advisory lock per type (see `marian_jobs_wake` in the migrations); the lock goes with the session,
so a worker that is killed leaves nothing behind. A notification may be lost: the worker polls besides.
"""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import psycopg

from marian_jobs import clock

_ARM = """
select pg_advisory_lock_shared(hashtextextended('marian_jobs:' || t, 0)) from unnest(%s::text[]) t
"""


class SleepAlarm:
    """For a store that cannot be woken: waits out the time."""

    can_ring = False
    rings = False

    async def arm(self) -> bool:
        """See `Alarm.arm`."""
        return False

    async def wait(self, timeout: timedelta) -> bool:
        """See `Alarm.wait`; always the whole time, always false."""
        await asyncio.sleep(timeout.total_seconds())
        return False

    async def disarm(self) -> None:
        """See `Alarm.disarm`."""

    async def close(self) -> None:
        """See `Alarm.close`."""


class ListenAlarm:
    """LISTEN on a connection of its own; while that is lost, a plain sleep, and a new connection at the next `arm`."""

    can_ring = True

    def __init__(self, dsn: str, types: Collection[str]) -> None:
        self._dsn = dsn
        self._types = sorted(types)
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._armed = False

    @property
    def rings(self) -> bool:
        """See `Alarm.rings`: not while its connection is lost."""
        return self._armed

    async def arm(self) -> bool:
        """See `Alarm.arm`; without a connection it stays unarmed, which costs promptness and nothing else."""
        if self._armed:
            return False
        try:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._dsn, autocommit=True, prepare_threshold=None
                )
                await self._connection.execute("listen marian_jobs")
            await self._connection.execute(_ARM, (self._types,))
            self._armed = True
        except (psycopg.Error, OSError):
            await self.close()
        return self._armed

    async def wait(self, timeout: timedelta) -> bool:
        """See `Alarm.wait`; true as well when the connection is lost: what rang meanwhile was not heard."""
        end = clock.monotonic() + timeout.total_seconds()
        while self._connection is not None and (left := end - clock.monotonic()) > 0:
            try:
                async for notification in self._connection.notifies(timeout=left, stop_after=1):
                    if notification.payload in self._types:
                        return True
            except (psycopg.Error, OSError):
                await self.close()
                return True
        await asyncio.sleep(max(0.0, end - clock.monotonic()))
        return False

    async def disarm(self) -> None:
        """See `Alarm.disarm`."""
        if not self._armed or self._connection is None:
            return
        self._armed = False
        try:
            await self._connection.execute("select pg_advisory_unlock_all()")
        except (psycopg.Error, OSError):
            await self.close()

    async def close(self) -> None:
        """See `Alarm.close`."""
        self._armed = False
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()
