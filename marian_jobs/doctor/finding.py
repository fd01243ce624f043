"""What a check says, and from where on it says it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How bad it is: jobs are lost, stuck or open to others; it will hurt; good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, in figures, and what to do about it."""

    severity: Severity
    text: str
    advice: str
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One check's answer: its findings, or why it was not run."""

    check: str
    findings: Sequence[Finding] = ()
    not_run: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Every check's answer; healthy when none found more than a note."""

    outcomes: Sequence[Outcome]

    @property
    def healthy(self) -> bool:
        """Whether there is nothing to do."""
        return all(f.severity is Severity.NOTE for outcome in self.outcomes for f in outcome.findings)


@dataclass(frozen=True, slots=True)
class Bounds:
    """From where on a figure is a finding."""

    due: timedelta = timedelta(minutes=15)  # how long the oldest due job of a type has waited
    unclaimed: timedelta = timedelta(minutes=5)  # the same, where no worker has touched the type since
    expired: timedelta = timedelta(minutes=1)  # how long a lease has been over; any worker reclaims within seconds
    dead_jobs: int = 10  # died in the last hour of one type
    dead_share: float = 0.05  # and that many of those that ended
    dead_rows: int = 50_000  # dead tuples, and ten times what starts an autovacuum
    unvacuumed: timedelta = timedelta(minutes=10)  # how long no vacuum has come by while they lay there
    transaction: timedelta = timedelta(minutes=15)  # how long a transaction is open
    held_transactions: int = 100_000  # how many transactions behind the oldest snapshot is
    held: timedelta = timedelta(minutes=1)  # and how long it has been held
    slot_transactions: int = 1_000_000  # the same for replication slots and standbys, which have no start
    frozen: int = 500_000_000  # of 2.1 billion transactions until wraparound
    lock_wait: timedelta = timedelta(seconds=5)  # how long somebody has waited for a lock on the table
    clock: timedelta = timedelta(seconds=2)  # how far this machine's clock is from the database's


class NotRun(Exception):
    """A check cannot be answered here; the text says why."""


def error(text: str, advice: str, **figures: Any) -> Finding:
    """Jobs are lost, stuck or open to others."""
    return Finding(Severity.ERROR, text, advice, figures)


def warning(text: str, advice: str, **figures: Any) -> Finding:
    """It will hurt."""
    return Finding(Severity.WARNING, text, advice, figures)


def note(text: str, advice: str = "", **figures: Any) -> Finding:
    """Good to know; nothing needs doing."""
    return Finding(Severity.NOTE, text, advice, figures)


def span(duration: timedelta) -> str:
    """A duration in two units at most: `3 d 4 h`, `5 min 2 s`, `0.4 s`."""
    seconds = duration.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f} s"
    parts = [(int(seconds // 86400), "d"), (int(seconds // 3600 % 24), "h"), (int(seconds // 60 % 60), "min"),
             (int(seconds % 60), "s")]  # fmt: skip
    first = next(n for n, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def counted(count: int, noun: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
