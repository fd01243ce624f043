"""Daemon threads for plain functions.

The standard library's executor waits for its threads when the process ends; a handler that hangs for ever would keep a
stopped worker alive. These threads are left behind instead.
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class DaemonThreads:
    """Runs functions in threads, reusing idle ones; each call gets a thread at once, so the caller bounds them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: deque[Callable[[], None]] = deque()
        self._idle = 0
        self._changed = threading.Condition()
        self.abandoned = 0

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """The function's result, or its exception as it is.

        Cancelling ends the waiting, not the thread, which counts as abandoned until the function returns.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                self.abandoned -= 1
            else:
                # A pair: a future refuses some exceptions (StopIteration) and lets others end the loop (SystemExit).
                future.set_result((result, error))

        def call() -> None:
            try:
                answer: tuple[Any, BaseException | None] = (context.run(function, *args), None)
            except BaseException as e:
                answer = (None, e)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, *answer)

        with self._changed:
            self._work.append(call)
            if self._idle:
                self._idle -= 1
                self._changed.notify()
            else:
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        try:
            result, error = await future
        except asyncio.CancelledError:
            self.abandoned += 1
            raise
        if error is not None:
            raise error
        return result

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._work:
                    self._idle += 1
                    if not self._changed.wait(timeout=60) and not self._work:
                        self._idle -= 1
                        return
                call = self._work.popleft()
            call()
