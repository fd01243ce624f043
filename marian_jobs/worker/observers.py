"""Those who are told what a worker does, to count and to trace it. They look on: what they raise is logged, no more."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from marian_jobs.job import Held, Job
from marian_jobs.worker.outcomes import Outcome

logger = logging.getLogger("marian_jobs.worker")


class Observer(Protocol):
    """Told in the worker's event loop, where it must not wait. For each job `began` once, then `ended` once."""

    def began(self, job: Job) -> None:
        """The job was claimed, and has a slot."""

    def ended(self, job: Job, outcome: Outcome, took: timedelta) -> None:
        """Its handler ended, or was left behind; the outcome is about to be recorded. `took`: the handler's time."""

    def refused(self, held: Held) -> None:
        """The store refused to record an attempt's outcome, because the job has moved on."""

    def reclaimed(self, count: int) -> None:
        """The worker found jobs, whosever they were, whose leases had run out."""


class Observers:
    """All of a worker's observers as one; false when there are none."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []

    def __bool__(self) -> bool:
        return bool(self._observers)

    def add(self, observer: Observer) -> None:
        """Adds one, told after those that are there."""
        self._observers.append(observer)

    def take_on(self, others: "Observers") -> None:
        """Adds all of another worker's."""
        self._observers.extend(others._observers)

    def began(self, job: Job) -> None:
        """See `Observer.began`."""
        self._tell(lambda observer: observer.began(job))

    def ended(self, job: Job, outcome: Outcome, took: timedelta) -> None:
        """See `Observer.ended`."""
        self._tell(lambda observer: observer.ended(job, outcome, took))

    def refused(self, held: Held) -> None:
        """See `Observer.refused`."""
        self._tell(lambda observer: observer.refused(held))

    def reclaimed(self, count: int) -> None:
        """See `Observer.reclaimed`."""
        self._tell(lambda observer: observer.reclaimed(count))

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except Exception:  # jobs go on, whatever becomes of the counting
                logger.exception("observer %s failed", type(observer).__name__)


def waited(job: Job) -> timedelta:
    """How long a job that was just claimed had been due, by the store's clock: never negative."""
    return max(job.updated_at - job.run_after, timedelta(0))
