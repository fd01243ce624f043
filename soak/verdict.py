"""Whether something grows: one rule for every series, stated in the verdict it gives.

The first half of a run is warming up: caches fill, the table reaches its size. Over the second half a line is laid
through the samples by the median of all slopes between two of them (Theil and Sen), which neither a peak nor a saw
tooth bends much. What that line gains over the second half may be at most `share` of the series' median there, or
`floor`, whichever is more.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

SHARE = 0.10
FEWEST = 8  # samples to judge by
_MOST_POINTS = 240  # of a half: 28,680 slopes


@dataclass(frozen=True)
class Series:
    """A figure sampled at the same moments as all others; `floor` is how much growth is no growth, in its unit."""

    name: str
    unit: str
    floor: float
    values: list[float]


@dataclass(frozen=True)
class Verdict:
    """What a series gained over the second half by its line, and how much it might."""

    name: str
    unit: str
    median: float
    growth: float
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether it does not grow."""
        return self.growth <= self.allowed


def judge(at: Sequence[float], series: Series) -> Verdict:
    """The verdict on a series sampled at the seconds `at`; `ValueError` where there are too few samples to tell."""
    if len(at) != len(series.values) or len(at) < FEWEST:
        raise ValueError(f"{series.name}: {len(series.values)} samples at {len(at)} moments are too few to judge")
    times, values = _second_half(at, series.values)
    median = statistics.median(values)
    growth = slope(times, values) * (times[-1] - times[0])
    return Verdict(series.name, series.unit, median, growth, max(series.floor, SHARE * abs(median)))


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between any two samples, per second."""
    points = list(zip(times, values, strict=True))
    return statistics.median((v - u) / (t - s) for (s, u), (t, v) in combinations(points, 2))


def _second_half(at: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    middle = (at[0] + at[-1]) / 2
    kept = [(t, v) for t, v in zip(at, values, strict=True) if t >= middle]
    step = -(-len(kept) // _MOST_POINTS)
    return [t for t, _ in kept[::step]], [v for _, v in kept[::step]]
