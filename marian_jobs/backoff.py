"""How long a failed job waits: exponential, capped, spread if asked to.

    delay(attempt) = min(base x factor^max(0, attempt - 1), max)       1 s, 2 s, 4 s ... 256 s, 300 s

The exponent is capped before the power is taken, so that any attempt up to 2^31 has an answer. With jitter j the delay
is spread over [delay, delay x (1 + j)]: never earlier than the schedule says, so a rate limit is not met too soon.
SQL's `job_backoff` gives the same for the defaults; a property test holds the two together.
"""

import math
import sys
from dataclasses import dataclass
from datetime import timedelta

from marian_jobs import clock

LONGEST = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Backoff:
    """A schedule of retry delays; refuses with `ValueError` what would not be one.

    `base` and `max` are the first and the longest delay, `factor` the growth per attempt (at least 1), `jitter` the
    share by which a delay may be lengthened at random (0: none, 1: up to double).
    """

    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    max: timedelta = timedelta(minutes=5)
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for name in ("base", "max"):
            value = getattr(self, name)
            if not isinstance(value, timedelta):
                raise TypeError(f"backoff {name}: expected a timedelta, got {type(value).__name__}")
            if not timedelta(0) <= value <= LONGEST:
                raise ValueError(f"backoff {name}: expected between 0 and 365 days, got {value}")
        for name, least in (("factor", 1.0), ("jitter", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"backoff {name}: expected a number, got {type(value).__name__}")
            if not least <= value <= sys.float_info.max:
                raise ValueError(f"backoff {name}: expected a finite number of at least {least:g}")

    def delay(self, attempt: int) -> timedelta:
        """The wait after the given attempt (counted from 1) has failed, without jitter."""
        if self.base >= self.max:
            return self.max
        exponent = max(0, attempt - 1)
        if self.factor == 1.0 or not self.base:
            return self.base
        steps_to_cap = math.log(self.max / self.base, self.factor)
        if exponent > steps_to_cap:
            return self.max
        return min(self.base * self.factor**exponent, self.max)

    def spread_delay(self, attempt: int) -> timedelta:
        """The wait after the given attempt, lengthened at random by at most `jitter`."""
        return clock.spread(self.delay(attempt), self.jitter)
