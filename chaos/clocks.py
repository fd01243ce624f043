"""A wall clock that jumps: SIGUSR1 sets this process's time hours ahead or back, again and again.

It is done inside the process, where it works on every system, in the three places from which the package and the
libraries below it take the wall clock. Monotonic time goes on, as it does on a real machine whose clock is set.
"""

import random
import signal
import time
from datetime import timedelta

from marian_jobs import clock

FURTHEST = 6 * 3600.0


def may_jump(seed: str) -> None:
    """Lets the clock jump at each SIGUSR1, by amounts drawn from the seed."""
    chance = random.Random(seed)
    shift = 0.0
    real_time, real_time_ns, real_now = time.time, time.time_ns, clock.utc_now

    def jump(*_: object) -> None:
        nonlocal shift
        shift = chance.uniform(-FURTHEST, FURTHEST)

    time.time = lambda: real_time() + shift
    time.time_ns = lambda: real_time_ns() + int(shift * 1e9)
    clock.utc_now = lambda: real_now() + timedelta(seconds=shift)
    signal.signal(signal.SIGUSR1, jump)
