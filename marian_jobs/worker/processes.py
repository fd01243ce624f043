"""Handlers in processes of their own, which can be killed: by a timeout, a memory limit, or their own crash."""

import asyncio
import multiprocessing
from collections.abc import Callable
from typing import Any

from pebble import ProcessExpired, ProcessPool


class ProcessLost(Exception):
    """The handler's process died under it: a crash, a kill, or its own exit."""


class HandlerProcesses:
    """A pool of processes, started when the first handler needs one; cancelling a run kills its process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pool: ProcessPool | None = None

    async def run(self, function: Callable[[Any], Any], argument: Any, memory_limit: int | None) -> None:
        """Returns when the function has; raises what it raised, or `ProcessLost`."""
        if self._pool is None:
            # Spawned, not forked: the parent has threads and connections that a fork would share.
            self._pool = ProcessPool(max_workers=self._most, context=multiprocessing.get_context("spawn"))
        future = self._pool.schedule(_call, args=[function, argument, memory_limit])
        try:
            await asyncio.wrap_future(future)
        except ProcessExpired as e:
            raise ProcessLost(f"the handler's process ended with exit code {e.exitcode}") from None

    def close(self) -> None:
        """Kills what still runs."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.stop()  # type: ignore[no-untyped-call]
            pool.join()


def _call(function: Callable[[Any], Any], argument: Any, memory_limit: int | None) -> None:
    if memory_limit is not None:
        import resource  # Unix only, as is the limit

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (memory_limit, hard))
    result = function(argument)
    if asyncio.iscoroutine(result):
        asyncio.run(result)
