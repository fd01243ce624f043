"""How much is measured: the sizes of a full run, of a run scaled down, and of one that only shows that all works."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Counts of jobs and rows, seconds of time, and how often each figure is taken."""

    short: bool
    runs: int
    drained: int
    bulk: int
    singles: int
    pings: int
    idle_seconds: float
    backlog: int
    foreign: int
    finished: int
    pinned_seconds: float
    remembered: int


def plan(*, runs: int, scale: float, short: bool) -> Plan:
    """`scale` 1 lays down what issue and README speak of: a million waiting rows, five million finished, 90 seconds.

    It does not touch what is compared with other queues; `short` makes that small too, and takes each figure once.
    """
    if short:
        runs, scale = 1, min(scale, 0.01)
    return Plan(
        short=short,
        runs=runs,
        drained=5_000 if short else 100_000,
        bulk=5_000 if short else 50_000,
        singles=200 if short else 2_000,
        pings=40 if short else 400,
        idle_seconds=5 if short else 60,
        backlog=max(20_000, int(1_000_000 * scale)),
        foreign=max(20_000, int(500_000 * scale)),
        finished=max(20_000, int(5_000_000 * scale)),
        pinned_seconds=max(6.0, 90 * scale),
        remembered=max(20_000, int(1_000_000 * scale)),
    )
