"""The one place that owns time and chance.

Decisions about jobs are taken by the database's clock, or by a `now` handed in. What is left for this module:
pacing a process (monotonic), the default clock of the memory store, fresh ids, and spreading retries.
"""

import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

Clock = Callable[[], datetime]

_chance = random.SystemRandom()

# Ten random bytes for each of the next ids: asking the system for each would take as long as all the rest of an id.
_tails: list[bytes] = []
os.register_at_fork(after_in_child=_tails.clear)


def utc_now() -> datetime:
    """The present, aware, in UTC, by this machine's clock."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds since some fixed past moment; never goes back."""
    return time.monotonic()


def chance() -> float:
    """A random number in [0, 1)."""
    return _chance.random()


def spread(delay: timedelta, jitter: float) -> timedelta:
    """`delay` lengthened by a random share of at most `jitter` (0.5: up to half as long again)."""
    return delay * (1 + jitter * chance())


def new_id() -> UUID:
    """A fresh id of version 7: ordered by time, so that rows made together stand together in the primary key."""
    millis = time.time_ns() // 1_000_000
    tail = int.from_bytes(_tail(), "big") >> 6  # 74 bits
    return UUID(int=(millis << 80) | (0x7 << 76) | ((tail >> 62) << 64) | (0b10 << 62) | (tail & ((1 << 62) - 1)))


def _tail() -> bytes:
    try:
        return _tails.pop()  # one step, which no other thread comes between
    except IndexError:
        fresh = os.urandom(2560)
        _tails.extend(fresh[i : i + 10] for i in range(10, 2560, 10))
        return fresh[:10]
