"""Being told of changes by Supabase's Realtime, where a project has it: a bell only, rows are read through the API.

Whatever goes wrong here costs time, not truth: without Realtime the bell rings at every interval.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Any, Final

from realtime import AsyncRealtimeClient, RealtimePostgresChangesListenEvent, RealtimeSubscribeStates

from marian_jobs import clock
from marian_jobs.redaction import Redacting

log = logging.getLogger(__name__)
# The public key is in the address they connect to, the user's token in what they send: at DEBUG they tell both.
for name in ("realtime._async.client", "realtime._async.channel", "websockets.client"):
    logging.getLogger(name).addFilter(Redacting())

PATIENCE: Final = 5
RETRY_EVERY: Final = timedelta(seconds=30)
LOOK_ANYWAY: Final = timedelta(seconds=30)


class Changes:
    """Rings when a row of the table changes that the token may see; `row_filter` is Realtime's, e.g. `id=eq.…`."""

    def __init__(self, url: str, anon_key: str, *, row_filter: str | None = None) -> None:
        self._url = f"{url.rstrip('/')}/realtime/v1"
        self._key = anon_key
        self._filter = row_filter
        self._rang = asyncio.Event()
        self._socket: AsyncRealtimeClient | None = None
        self._token = ""
        self._live = False
        self._tried_at: float | None = None

    async def wait(self, every: timedelta, token: str) -> None:
        """Until something may have changed: a ring, or, where Realtime is not to be had, `every`."""
        if self._live:
            await self._renew(token)
        elif self._may_try():
            await self._connect(token)
            if self._live:
                return  # what changed before this moment was not rung for: look once more
        try:
            length = max(every, LOOK_ANYWAY) if self._live else every
            await asyncio.wait_for(self._rang.wait(), length.total_seconds())
        except TimeoutError:
            pass
        self._rang.clear()

    async def close(self) -> None:
        """Gives back the connection."""
        self._live = False
        if self._socket is not None:
            socket, self._socket = self._socket, None
            await socket.close()

    def _may_try(self) -> bool:
        return self._tried_at is None or clock.monotonic() - self._tried_at >= RETRY_EVERY.total_seconds()

    async def _connect(self, token: str) -> None:
        first, self._tried_at = self._tried_at is None, clock.monotonic()
        await self.close()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._subscribe(token)
            reason = "the channel was refused"
        except Exception as e:  # the library raises bare ones
            self._live, reason = False, type(e).__name__
        if first and not self._live:
            log.warning("Realtime is not to be had (%s): looking at intervals instead", reason)

    async def _subscribe(self, token: str) -> None:
        # Without its own reconnecting, which ends in a task's error that nobody can catch.
        socket = AsyncRealtimeClient(self._url, self._key, auto_reconnect=False, max_retries=1, timeout=PATIENCE)
        self._socket, self._token = socket, token

        def heed(state: RealtimeSubscribeStates, _: Exception | None) -> None:
            if self._socket is socket:  # a former connection may still report its end
                self._live = state is RealtimeSubscribeStates.SUBSCRIBED
                self._rang.set()

        await socket.set_auth(token)
        channel = socket.channel("marian_jobs").on_postgres_changes(
            RealtimePostgresChangesListenEvent.All, self._ring, "marian_jobs", "public", self._filter
        )
        await channel.subscribe(heed)

    async def _renew(self, token: str) -> None:
        if token != self._token and self._socket is not None:
            self._token = token
            await self._socket.set_auth(token)

    def _ring(self, _: Any) -> None:
        self._rang.set()
