"""Calls to a project's API: sent again, with back-off, where a second time changes nothing or the first surely did not.

Errors leave here as `MarianError`s without a cause: httpx's hold the request, and the request's headers the key.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import httpx
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_delay,
    stop_before_delay,
    wait_random_exponential,
)

from marian_jobs.errors import StoreUnavailable
from marian_jobs.stores.answers import Refusal, raise_refusal

RELOAD_PATIENCE: Final = timedelta(seconds=5)
_POOL = httpx.Limits(max_connections=20, max_keepalive_connections=10, keepalive_expiry=30)
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_backoff = wait_random_exponential(multiplier=0.1, max=2)
_reload_stop = stop_after_delay(RELOAD_PATIENCE.total_seconds())


def http_client(deadline: timedelta, *before: Callable[[httpx.Request], Awaitable[None]]) -> httpx.AsyncClient:
    """A client that raises what is no answer in JSON as `Refusal`; `before` sees each request before it is sent.

    HTTP/1.1, since idle HTTP/2 connections are dropped by gateways without a word; a few connections are kept alive.
    """
    hooks: dict[str, list[Any]] = {"request": list(before), "response": [raise_refusal]}
    return httpx.AsyncClient(limits=_POOL, timeout=deadline.total_seconds(), http2=False, event_hooks=hooks)


def refuse_unsendable(name: str, key: str) -> None:
    """Refuses with `ValueError` what cannot stand in a header, such as a key with its file's line break.

    The HTTP library would refuse it too, and quote it.
    """
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"{name}: empty, or with a space, a line break or another character that no key has")


def was_not_carried_out(error: BaseException) -> bool:
    """Whether the call surely had no effect, so that any call may be sent again."""
    return isinstance(error, _NOT_SENT) or (isinstance(error, Refusal) and error.had_no_effect)


def may_repeat(error: BaseException) -> bool:
    """Whether a call that is harmless to repeat should be: the connection broke, or the API could not answer now."""
    return isinstance(error, httpx.TransportError) or (
        isinstance(error, Refusal) and (error.is_busy or error.had_no_effect)
    )


async def patiently(build: Callable[[], Any], again: Callable[[BaseException], bool], deadline: timedelta) -> Any:
    """What the query that `build` makes answers, sent again while `again` allows it and the deadline has not come."""
    seconds = deadline.total_seconds()
    too_late = stop_before_delay(seconds)
    attempts = AsyncRetrying(
        retry=retry_if_exception(again),
        wait=_pause,
        stop=lambda state: too_late(state) or _stays_unknown(state),
        reraise=True,
    )

    async def send() -> Any:
        return await build().execute()

    try:
        async with asyncio.timeout(seconds):
            return (await attempts(send)).data
    except TimeoutError:
        raise StoreUnavailable(f"the API did not answer within {seconds:g} s") from None
    except Refusal as e:
        raise e.explained() from None
    except httpx.HTTPError as e:
        raise StoreUnavailable(f"the API could not be reached: {type(e).__name__}") from None


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, Refusal) else None
    return max(_backoff(state), asked or 0.0)


def _stays_unknown(state: RetryCallState) -> bool:
    """A schema that the API does not know after a few seconds is not there."""
    error = state.outcome.exception() if state.outcome else None
    return isinstance(error, Refusal) and error.is_unknown and _reload_stop(state)
