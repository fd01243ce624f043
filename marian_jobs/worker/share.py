"""How many of each type this worker may run at once: its handlers' own `limit=`.

Over all workers together a type is bounded in the store, by `Queue.limit`; this is one worker's share.
"""

from collections import Counter
from collections.abc import Iterable

from marian_jobs.worker.handlers import Handlers


class Share:
    """Counts the runs of types whose handler has a limit; where no handler has one it costs nothing."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._running: Counter[str] = Counter()

    def began(self, types: Iterable[str]) -> None:
        """Runs of these types began."""
        self._running.update(type for type in types if self._handlers[type].limit is not None)

    def ended(self, type: str) -> None:
        """A run of the type ended."""
        if self._handlers[type].limit is not None:
            self._running[type] -= 1

    def room(self) -> dict[str, int] | None:
        """How many more of each limited type may run; None when no type is limited."""
        left = {
            type: limit - self._running[type]
            for type in self._handlers.types
            if (limit := self._handlers[type].limit) is not None
        }
        return left or None

    def open_types(self) -> list[str]:
        """The types of which at least one more may run."""
        left = self.room() or {}
        return [type for type in self._handlers.types if left.get(type, 1) > 0]

    @property
    def closed(self) -> int:
        """How many types are at their limit."""
        return len(self._handlers.types) - len(self.open_types())
