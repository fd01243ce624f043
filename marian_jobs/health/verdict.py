"""Whether a worker lives, and whether it is ready: decided from what is known of it, with the reason."""

from dataclasses import dataclass
from datetime import timedelta

from marian_jobs.worker.vitals import Vitals

UNANSWERED = timedelta(seconds=5)  # a healthy store answers a look for work in milliseconds


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer to a probe, and why where it is no."""

    well: bool
    reason: str | None = None


WELL = Verdict(True)


def judge_life(turned_at: float, now: float, stuck_after: timedelta) -> Verdict:
    """Lives while its event loop has turned within `stuck_after`."""
    if now - turned_at > stuck_after.total_seconds():
        return _no(f"the event loop has not turned for {now - turned_at:.1f} s: a handler blocks it")
    return WELL


def judge_readiness(vitals: Vitals, now: float) -> Verdict:
    """Ready while the store answers, and until the worker stops."""
    if vitals.is_stopping:
        return _no("the worker is stopping")
    if vitals.asked_at is not None and now - vitals.asked_at > UNANSWERED.total_seconds():
        return _no(f"the store has not answered for {now - vitals.asked_at:.1f} s")
    if vitals.answered_at is None:
        return _no("the store has not answered yet")
    if now - vitals.answered_at > vitals.longest_silence.total_seconds():
        return _no(f"the store's last answer was {now - vitals.answered_at:.1f} s ago")
    return WELL


def _no(reason: str) -> Verdict:
    return Verdict(False, reason)
