"""What lives as long as the worker does: the shared resources of its lifespan, and its ear for signals."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import Any

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class Life:
    """A lifespan, entered once and left once; `resources` is what it has yielded, None outside of it."""

    def __init__(self, lifespan: Lifespan | None) -> None:
        if lifespan is not None and not callable(lifespan):
            raise TypeError(f"lifespan: expected a function that makes an async context manager, got {lifespan!r}")
        self.lifespan = lifespan
        self._exit: AsyncExitStack | None = None
        self.resources: Any = None

    async def enter(self) -> None:
        """Enters the lifespan, unless it is entered; what it raises comes through, and nothing is entered."""
        if self.lifespan is not None and self._exit is None:
            async with AsyncExitStack() as exit:
                self.resources = await exit.enter_async_context(self.lifespan())
                self._exit = exit.pop_all()

    async def leave(self) -> None:
        """Leaves the lifespan, if it is entered."""
        if self._exit is not None:
            exit, self._exit, self.resources = self._exit, None, None
            await exit.aclose()


@contextmanager
def stopped_by_signals(stop: Callable[[], None], *, listen: bool) -> Iterator[None]:
    """Calls `stop` in this event loop at each SIGTERM and SIGINT, while it lasts."""
    numbers = (signal.SIGTERM, signal.SIGINT) if listen else ()
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
