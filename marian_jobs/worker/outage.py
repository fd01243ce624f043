"""The store's absence, told once when it begins and once when it ends, however many calls fail in between."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from marian_jobs import clock
from marian_jobs.errors import StoreUnavailable

logger = logging.getLogger("marian_jobs.worker")

T = TypeVar("T")

SHORTEST, LONGEST = 0.1, 2.0


class Outage:
    """Shared by all who call one store."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.answered_at: float | None = None  # monotonic

    def began(self, error: Exception) -> None:
        """A call failed for want of the store."""
        if self._since is None:
            self._since = clock.monotonic()
            logger.warning("store unreachable, trying again until it is back: %s", error)

    def ended(self) -> None:
        """A call was answered."""
        self.answered_at = clock.monotonic()
        if self._since is not None:
            logger.warning("store is back after %.1f s", clock.monotonic() - self._since)
            self._since = None

    async def ride_out(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call's answer, tried with jittered back-off until there is one; for calls that may be sent again."""
        pause = SHORTEST
        while True:
            try:
                answer = await call()
            except StoreUnavailable as e:
                self.began(e)
                await asyncio.sleep(pause * (0.5 + clock.chance() / 2))
                pause = min(pause * 2, LONGEST)
            else:
                self.ended()
                return answer
