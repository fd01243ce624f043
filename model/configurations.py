"""What is explored: sizes that hold, and guards that, taken away, do not."""

from dataclasses import dataclass
from typing import Literal

Property = Literal["succeeded_for_ever", "comes_to_an_end"]

SHORT = ("RETRIES=0", "CANCELS=0", "RELEASES=0")


@dataclass(frozen=True, slots=True)
class Configuration:
    """One exploration: sizes (`NAME=value`), and a property beside the assertions, with or without fairness."""

    name: str
    sizes: tuple[str, ...] = ()
    ltl: Property | None = None
    is_quick: bool = True


@dataclass(frozen=True, slots=True)
class Removal:
    """A guard taken away, and a piece of the assertion, or the property, that must then be violated."""

    guard: str
    violates: str
    sizes: tuple[str, ...] = SHORT
    ltl: Property | None = None


HOLD = (
    Configuration("two workers, one job, all moves but retry", ("RETRIES=0",)),
    Configuration("two workers, one job, all moves but release", ("RELEASES=0",)),
    Configuration("three workers, one job, three attempts", ("WORKERS=3", "MAX_ATTEMPTS=3", *SHORT)),
    Configuration("succeeded is for ever", ("RETRIES=0",), ltl="succeeded_for_ever"),
    Configuration("every job comes to an end", ("RETRIES=0", "CANCELS=0"), ltl="comes_to_an_end"),
    Configuration("two workers, two jobs", ("JOBS=2", *SHORT), is_quick=False),
    Configuration("three workers, one job, all moves but retry", ("WORKERS=3", "RETRIES=0"), is_quick=False),
    Configuration("two workers, one job, every move", (), is_quick=False),
)

BREAK = (
    Removal("NO_FENCING", "attempt==issued", (*SHORT, "EXTENSIONS=0")),
    Removal("NO_RUNNING_GUARD", "status==running", (*SHORT, "EXTENSIONS=0")),
    Removal("NO_EXTEND_GUARD", "worker==holder"),
    Removal("NO_LEASE_GUARD", "granted[j]==0"),
    Removal("NO_BUDGET_GUARD", "attempts<=row[j].max_attempts"),
    Removal("NO_CANCEL_GUARD", "wins[j]==", ("RETRIES=0", "RELEASES=0", "EXTENSIONS=0")),
    Removal("NO_RECLAIMER", "acceptance cycle", ltl="comes_to_an_end"),
    Removal("NO_LOCK", "status==queued", (*SHORT, "EXTENSIONS=0")),
)
