"""The figures that all queues are compared by, taken in turn: each round measures every queue once."""

import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks import measure
from benchmarks.plan import Plan
from benchmarks.server import Server
from benchmarks.systems import OWN, BenchmarkError, System

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Figure:
    """What is measured, in which unit, and which end is the better one."""

    key: str
    title: str
    unit: str
    higher_is_better: bool = True


FIGURES = (
    Figure("drain_one", "drain, one worker process", "jobs/s"),
    Figure("drain_two", "drain, two worker processes", "jobs/s"),
    Figure("bulk", "bulk enqueue", "jobs/s"),
    Figure("single", "single enqueue, one commit each", "jobs/s"),
    Figure("latency_p50", "pickup by an idle worker, p50", "ms", higher_is_better=False),
    Figure("latency_p99", "pickup by an idle worker, p99", "ms", higher_is_better=False),
    Figure("idle", "statements of an idle worker", "per minute", higher_is_better=False),
)


@dataclass
class Comparison:
    """The values taken of each queue and figure, and why a queue has none."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def median(self, system: str, figure: str) -> float | None:
        """The median, or None where nothing was measured."""
        values = self.values.get(system, {}).get(figure)
        return statistics.median(values) if values else None

    def add(self, system: str, figure: str, value: float) -> None:
        self.values.setdefault(system, {}).setdefault(figure, []).append(value)


def compare(server: Server, systems: Sequence[System], plan: Plan, tell: Tell) -> Comparison:
    """All figures of all queues; one that fails is left out from there on, and the reason kept. Ours may not fail."""
    comparison = Comparison()
    for number in range(plan.runs):
        for take in (_drain_one, _drain_two, _bulk, _single, _latency):
            for system in systems:
                if system.name not in comparison.failures:
                    tell(f"round {number + 1} of {plan.runs}: {take.__name__.strip('_')} {system.name}")
                    _take(comparison, system, partial(take, server, system, plan), tell)
    tell("statements of idle workers")
    working = [system for system in systems if system.name not in comparison.failures]
    for name, value in measure.idle_statements(server, working, plan.idle_seconds).items():
        comparison.add(name, "idle", value)
    return comparison


def _take(comparison: Comparison, system: System, measured: Callable[[], dict[str, float]], tell: Tell) -> None:
    try:
        for key, value in measured().items():
            comparison.add(system.name, key, value)
            tell(f"    {key} {value:,.2f}")
    except (BenchmarkError, subprocess.CalledProcessError) as e:
        if system is OWN:
            raise
        comparison.failures[system.name] = str(e)
        tell(f"    left out: {e}")


def _drain_one(server: Server, system: System, plan: Plan) -> dict[str, float]:
    return {"drain_one": measure.drain(server, system, int(plan.drained * system.share), 1)}


def _drain_two(server: Server, system: System, plan: Plan) -> dict[str, float]:
    return {"drain_two": measure.drain(server, system, int(plan.drained * system.share), 2)}


def _bulk(server: Server, system: System, plan: Plan) -> dict[str, float]:
    return {"bulk": measure.bulk(server, system, plan.bulk)}


def _single(server: Server, system: System, plan: Plan) -> dict[str, float]:
    return {"single": measure.single(server, system, plan.singles)}


def _latency(server: Server, system: System, plan: Plan) -> dict[str, float]:
    p50, p99 = measure.latency(server, system, plan.pings)
    return {"latency_p50": p50, "latency_p99": p99}
