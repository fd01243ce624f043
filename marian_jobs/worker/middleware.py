"""Code around every handler: to measure, to trace, to bind a logger, to open a transaction.

    @worker.middleware
    async def timed(context: Context, call_next: CallNext) -> Any:
        ...
        return await call_next()

Whatever the handler raises passes through, `Retry`, `Snooze`, `Dead` and cancellation included; what the middleware
raises is as if the handler had raised it; one that does not call `call_next` takes the handler's place.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from marian_jobs.worker.context import Context

CallNext = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, CallNext], Awaitable[Any]]


async def wrapped(middlewares: Sequence[Middleware], context: Context, call: CallNext) -> Any:
    """The call's result, the middlewares around it, the first outermost."""
    for middleware in reversed(middlewares):
        call = _around(middleware, context, call)
    return await call()


def _around(middleware: Middleware, context: Context, call_next: CallNext) -> CallNext:
    return lambda: middleware(context, call_next)
