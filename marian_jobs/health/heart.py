"""The pulse of an event loop: the moment when it last turned, which other threads may read."""

import asyncio

from marian_jobs import clock

INTERVAL = 1.0


class Heart:
    """Beats once a second from `start` to `stop`, both called in the loop, for as long as the loop turns."""

    def __init__(self) -> None:
        self.turned_at = clock.monotonic()
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Beats at once."""
        self.turned_at = clock.monotonic()
        self._next = asyncio.get_running_loop().call_later(INTERVAL, self.start)

    def stop(self) -> None:
        """Beats no more."""
        if self._next is not None:
            self._next.cancel()
