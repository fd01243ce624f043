"""The figures that our queue is measured by alone: against itself, against limits, and against the server's floor."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import floor, http, memory, pinned
from benchmarks.flat import BATCH, Rows, claim, idle_poll
from benchmarks.plan import Plan
from benchmarks.server import Server

Tell = Callable[[str], None]

FEW = 8_000  # as many as one measurement claims, and some to spare
OTHER = "another-type"


@dataclass(frozen=True)
class Pair:
    """A figure in a hard case and in the easy one."""

    title: str
    unit: str
    hard: float
    easy: float

    @property
    def ratio(self) -> float:
        return self.hard / self.easy


@dataclass(frozen=True)
class Alone:
    """Everything taken by `measure`."""

    pairs: list[Pair]
    amounts: dict[str, float]  # title with unit: value


def measure(server: Server, plan: Plan, tell: Tell) -> Alone:
    """Takes all of it; hard and easy cases in turn, medians."""
    pairs = _flat(server, plan, tell)
    tell(f"drain on a filled queue for {plan.pinned_seconds:g} s, with and without an old snapshot")
    held, free = pinned.ratio(server, plan.pinned_seconds, 1)
    pairs.append(
        Pair(f"drain after {plan.pinned_seconds:g} s under an old snapshot, and without", "jobs/s", held, free)
    )
    return Alone(pairs, {**_api(server, plan, tell), **_memory(server, plan, tell), **_floor(server, plan, tell)})


def _flat(server: Server, plan: Plan, tell: Tell) -> list[Pair]:
    many, few, thousand = [Rows(plan.backlog)], [Rows(FEW)], [Rows(1_000)]
    future = [Rows(plan.backlog, priority=5, due="1 day")]
    foreign = Rows(plan.foreign, type=OTHER)
    finished = Rows(plan.finished, status="succeeded")
    cases: list[tuple[str, Callable[[], tuple[float, float]]]] = [
        (
            f"claim of one job, {plan.backlog:,} waiting and 1,000",
            lambda: claim(server, many, thousand, 1),
        ),
        (
            f"claim of 100, per job, {plan.backlog:,} waiting and {FEW:,}",
            lambda: claim(server, many, few, BATCH),
        ),
        (
            f"idle look, {plan.backlog:,} rows of a better priority not due, and an empty table",
            lambda: idle_poll(server, future, []),
        ),
        (
            f"claim of one job of a rare type behind {plan.foreign:,} of another, and without",
            lambda: claim(server, [foreign, *thousand], thousand, 1),
        ),
        (
            f"idle look of a rare type behind {plan.foreign:,} of another, and without",
            lambda: idle_poll(server, [foreign], []),
        ),
        (
            f"claim of 100, per job, {plan.finished:,} finished rows and none",
            lambda: claim(server, [finished, *few], few, BATCH),
        ),
    ]
    return [_pair(title, taken, plan.runs, tell) for title, taken in cases]


def _pair(title: str, take: Callable[[], tuple[float, float]], runs: int, tell: Tell) -> Pair:
    tell(title)
    taken = [take() for _ in range(runs)]
    pair = Pair(title, "ms", statistics.median(t[0] for t in taken), statistics.median(t[1] for t in taken))
    tell(f"    {pair.hard:.4f} and {pair.easy:.4f} ms: {pair.ratio:.2f}")
    return pair


def _memory(server: Server, plan: Plan, tell: Tell) -> dict[str, float]:
    tell(f"memory for {plan.remembered:,} jobs")
    worker = memory.of_worker(server, plan.remembered)
    return {
        f"most memory of a worker that drains {plan.remembered:,} jobs, MiB": worker.most,
        "the same worker's growth over the last four fifths, MiB": worker.late - worker.early,
        f"most memory of a process that enqueues {plan.remembered:,} jobs, MiB": memory.of_enqueuer(
            server, plan.remembered
        ),
    }


def _api(server: Server, plan: Plan, tell: Tell) -> dict[str, float]:
    tell("over the API: PostgREST and the local gateway")
    return http.measure(server, plan.bulk // 2, plan.runs)


def _floor(server: Server, plan: Plan, tell: Tell) -> dict[str, float]:
    tell("the server's floor")
    return {
        "floor: rows inserted by one statement, per second": floor.inserts(server, plan.bulk, plan.runs),
        "floor: single inserts, each with its commit, per second": floor.commits(server, plan.runs),
        "floor: jobs updated twice over one connection, per second": floor.updates(server, plan.drained, 1, plan.runs),
        "floor: jobs updated twice over two connections, per second": floor.updates(server, plan.drained, 2, plan.runs),
    }
