"""The figures of the queue for whoever scrapes or exports them: from another thread, and not more often than is fair.

`job_stats()` reads the whole table. So an answer is kept for ten seconds, and for ten times as long as it took to get,
whatever the number of scrapes; and it comes by a connection of its own, whatever the worker's are busy with.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta

from marian_jobs import clock
from marian_jobs.errors import MarianError
from marian_jobs.store import Stat, Store

logger = logging.getLogger("marian_jobs.stats")

FRESH = 10.0
LEISURE = 10


class StatsReader:
    """Reads a store's stats from any thread. Its own thread starts with the first question, and ends with `close`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking: Future[Sequence[Stat] | None] | None = None
        self._fresh_until = 0.0
        self._opened: Store | None = None
        self._failing = False
        self._closed = False

    def read(self, within: timedelta = timedelta(seconds=5)) -> Sequence[Stat] | None:
        """Per type and status how the jobs stand, seldom older than ten seconds; None when that cannot be known in
        time. What the store refuses is logged once."""
        with self._lock:
            if self._closed:
                return None
            if self._asking is None or (self._asking.done() and clock.monotonic() >= self._fresh_until):
                self._asking = asyncio.run_coroutine_threadsafe(self._ask(), self._home())
            asking = self._asking
        try:
            return asking.result(within.total_seconds())
        except TimeoutError:
            return None

    def close(self) -> None:
        """Gives back the connection and ends the thread."""
        with self._lock:
            loop, asking, self._closed = self._loop, self._asking, True
        if loop is None:
            return
        if asking is not None:
            asking.cancel()
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._end(), loop).result(2)
        loop.call_soon_threadsafe(loop.stop)

    def _home(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="marian-jobs-stats", daemon=True).start()
        return self._loop

    async def _ask(self) -> Sequence[Stat] | None:
        asked_at = clock.monotonic()
        try:
            if self._opened is None:
                store = self._store.for_another_loop()
                await store.open()
                self._opened = store
            answer: Sequence[Stat] | None = await self._opened.stats()
            self._failing = False
        except MarianError as e:
            answer = None
            if not self._failing:
                self._failing = True
                logger.warning("the queue's figures cannot be read: %s", e)
        now = clock.monotonic()
        self._fresh_until = now + (FRESH if answer is None else max(FRESH, LEISURE * (now - asked_at)))
        return answer

    async def _end(self) -> None:
        if self._opened is not None:
            await self._opened.close()
