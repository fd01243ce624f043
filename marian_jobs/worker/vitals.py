"""How a worker is, for those who ask whether it lives and works."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Vitals:
    """All moments are monotonic.

    `answered_at`: when the store last answered anything; None before the first answer. `asked_at`: since when a look
    for work has been without an answer; None when none is. `longest_silence`: how long the store may go unasked while
    nothing is wrong. `running`, `abandoned`: jobs in the `concurrency` slots, and handlers that would not stop.
    """

    answered_at: float | None
    asked_at: float | None
    longest_silence: timedelta
    running: int
    concurrency: int
    abandoned: int
    is_stopping: bool
