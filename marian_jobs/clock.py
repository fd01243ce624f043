"""The one place that owns time and chance.

Decisions about jobs are taken by the database's clock, or by a `now` handed in. What is left for this module:
pacing a process (monotonic), the default clock of the memory store, fresh ids, and spreading retries.
"""

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

Clock = Callable[[], datetime]

_chance = random.SystemRandom()


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
    tail = _chance.getrandbits(74)
    return UUID(int=(millis << 80) | (0x7 << 76) | ((tail >> 62) << 64) | (0b10 << 62) | (tail & ((1 << 62) - 1)))
