"""How far claims have come, so that the next one need not pass what they have left behind.

Index entries of claimed rows stay until a vacuum may remove them; under an old snapshot, a long report say, that is not
before it ends, and a claim from the start would walk over all of them. So while work abounds a claim begins where one
of the last few ended. Rows that come in behind that (committed late, or due in the past) are met by the next full turn,
a second later at most.
"""

from collections import deque
from collections.abc import Sequence
from datetime import datetime

from marian_jobs.job import Job
from marian_jobs.store import Floors

BEHIND = 3  # claims: what commits a little out of order lies within them
MOST = 100  # priorities of all types together: beyond, floors would cost more than they save

Place = tuple[datetime, datetime]


class Frontier:
    """The ends of the last claims, by type and priority."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], deque[Place]] = {}

    def note(self, jobs: Sequence[Job]) -> None:
        """Takes note of claimed jobs, in claim order."""
        if len(self._ends) > MOST:
            self._ends.clear()
        for key, job in {(job.type, job.priority): job for job in jobs}.items():
            self._ends.setdefault(key, deque(maxlen=BEHIND)).append((job.run_after, job.created_at))

    def floors(self) -> Floors:
        """Where the next claim may begin; a type and priority claimed only once or twice has no floor yet."""
        return {key: ends[0] for key, ends in self._ends.items() if len(ends) == BEHIND}

    def forget(self) -> None:
        """The next claims begin at the start."""
        self._ends.clear()
