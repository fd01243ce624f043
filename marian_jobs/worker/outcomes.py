"""What became of a run, as data: decided first, recorded afterwards. And the exceptions by which a handler says it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple

from marian_jobs.checks import duration
from marian_jobs.failure import presentable
from marian_jobs.job import Job


class Retry(Exception):
    """Raised by a handler: this attempt failed, try again after `after` (None: the handler's backoff)."""

    def __init__(self, reason: str = "retry", *, after: timedelta | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else duration("after", after, timedelta(days=365))


class Snooze(Exception):
    """Raised by a handler: not now, again after `delay`; costs the job no attempt."""

    def __init__(self, delay: timedelta) -> None:
        self.delay = duration("delay", delay, timedelta(days=365))
        super().__init__(delay)  # whole, so that it survives the way back from a process


class Dead(Exception):
    """Raised by a handler: no retry will help; the job is dead at once, with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler failed: again after `retry_in`, or never when `dead`."""

    error: str
    retry_in: timedelta | None = None
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """The job is given back, due again after `delay`: a snooze, or a worker that stops."""

    delay: timedelta = timedelta(0)


class Lost(NamedTuple):
    """The job is no longer this worker's; there is nothing to record."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The handler completed the job in a transaction of its own: recorded if that was committed, and only then."""


Outcome = Succeeded | Failed | Released | Lost | Settled

SUCCEEDED = Succeeded()
SETTLED = Settled()
LOST = Lost()


def dead(reason: str) -> Failed:
    """A failure that is final."""
    return Failed(presentable(reason), dead=True)


def name_of(outcome: Outcome, job: Job) -> Literal["succeeded", "failed", "dead", "released", "lost"]:
    """What logs, metrics and traces call what becomes of a job: `failed` is tried again, `dead` is not."""
    match outcome:
        case Succeeded() | Settled():
            return "succeeded"
        case Failed(dead=dead):
            return "dead" if dead or job.is_last_attempt else "failed"
        case Released():
            return "released"
        case Lost():
            return "lost"
