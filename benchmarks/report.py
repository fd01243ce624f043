"""The results as Markdown, as JSON, and as lines of a terminal."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.alone import Alone
from benchmarks.compared import FIGURES, Comparison, Figure
from benchmarks.plan import Plan
from benchmarks.systems import OWN, System

CHART = "benchmarks.svg"

NOT_COMPARABLE = """\
- marian_jobs keeps its finished rows, in the table and its indexes, until they are pruned. pgqueuer (which keeps a log
  instead), graphile-worker and pgmq delete a finished job; procrastinate and pg-boss keep it.
- pgmq is a message queue without a worker: its figures are those of a bare loop that reads, and deletes in batches. It
  has no retries with back-off, no dead letters, no priorities and no handlers.
- A job of marian_jobs is checked before it is sent, may have an owner, an idempotency key and a lease; each of the
  others has a part of that.
- graphile-worker and pg-boss run on Node, whose event loop takes less time per job than Python's.
- Client and server share the processors of one machine: a server elsewhere adds its round trips to all of them.
- The latency is counted from when the enqueuer learns of its commit; a handler may have begun a little before."""


@dataclass(frozen=True)
class Results:
    """All that one run found out."""

    plan: Plan
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    systems: Sequence[System]
    comparison: Comparison
    alone: Alone | None


def as_json(results: Results) -> str:
    """Every value taken, beside its settings."""
    return json.dumps(
        {
            "machine": machine(),
            "plan": asdict(results.plan),
            "settings": dict(results.settings),
            "versions": dict(results.versions),
            "values": results.comparison.values,
            "failures": results.comparison.failures,
            "pairs": [{**asdict(p), "ratio": p.ratio} for p in results.alone.pairs] if results.alone else [],
            "amounts": results.alone.amounts if results.alone else {},
        },
        indent=2,
    )


def machine() -> str:
    """What it ran on."""
    return f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def as_markdown(results: Results) -> str:
    """The page docs/benchmarks.md."""
    parts = ["# Benchmarks", _preface(results), _comparison(results)]
    if len(results.systems) > 1:
        parts += [f"![The same as a chart]({CHART})", "## What is not comparable", NOT_COMPARABLE, _tuning(results)]
    if results.alone:
        parts += ["## By itself", _pairs(results.alone), _amounts(results.alone)]
    return "\n\n".join(parts) + "\n"


def _preface(results: Results) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in results.settings.items() if name != "version")
    plan = results.plan
    return (
        f"Written by `scripts/bench`, which measures anew on any machine. This run: {machine()}; PostgreSQL "
        f"{results.settings['version']} on the same machine, {settings}. Runs: {plan.runs}, their medians shown, the "
        f"queues taken in turn, each on a fresh database. {plan.drained:,} no-op jobs drained, {plan.bulk:,} enqueued "
        f"in bulk, {plan.singles:,} singly, {plan.pings:,} picked up."
        + (" **A short run: it shows that all works; starting up outweighs what is measured.**" if plan.short else "")
    )


def _comparison(results: Results) -> str:
    names = [system.name for system in results.systems if system.name not in results.comparison.failures]
    titles = [f"{name} {results.versions.get(name, '')}".strip() for name in names]
    lines = [_row(["figure", *titles]), _row(["---", *["---:"] * len(names)])]
    for figure in FIGURES:
        medians = [results.comparison.median(name, figure.key) for name in names]
        best = _best(figure, medians)
        cells = [_cell(value, best=len(names) > 1 and value == best) for value in medians]
        lines.append(_row([f"{figure.title}, {figure.unit}", *cells]))
    failures = [f"{name} was left out: {why}" for name, why in results.comparison.failures.items()]
    return "\n\n".join(["\n".join(lines), *failures])


def _best(figure: Figure, medians: Sequence[float | None]) -> float | None:
    known = [value for value in medians if value is not None]
    return (max if figure.higher_is_better else min)(known, default=None)


def _tuning(results: Results) -> str:
    notes = [f"- {system.name}: {system.note}" for system in results.systems if system.note]
    return "\n".join(["## How each is set up", "", *notes])


def _pairs(alone: Alone) -> str:
    lines = [_row(["hard case, and easy", "hard", "easy", "ratio"]), _row(["---", "---:", "---:", "---:"])]
    lines += [_row([f"{p.title}, {p.unit}", number(p.hard), number(p.easy), f"{p.ratio:.2f}"]) for p in alone.pairs]
    return "\n".join(lines)


def _amounts(alone: Alone) -> str:
    lines = [_row(["amount", "value"]), _row(["---", "---:"])]
    lines += [_row([title, number(value)]) for title, value in alone.amounts.items()]
    return "\n".join(lines)


def _cell(value: float | None, *, best: bool) -> str:
    text = "–" if value is None else number(value)
    return f"**{text}**" if best else text


def number(value: float) -> str:
    """Three digits or more, no more decimals than that takes."""
    decimals = 0 if value == 0 or abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 4
    return f"{value:,.{decimals}f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def ratios(results: Results) -> list[str]:
    """One line per figure: ours beside the best of the others."""
    lines = []
    for figure in FIGURES:
        ours = results.comparison.median(OWN.name, figure.key)
        others = [results.comparison.median(s.name, figure.key) for s in results.systems if s is not OWN]
        best = _best(figure, others)
        if ours is not None and best:
            lines.append(f"{figure.title}: {number(ours)} {figure.unit}, {ours / best:.2f} of the best other queue's")
    return lines


def write(results: Results, directory: Path) -> list[Path]:
    """Writes benchmarks.md and benchmarks.json, and returns where."""
    directory.mkdir(parents=True, exist_ok=True)
    page, data = directory / "benchmarks.md", directory / "benchmarks.json"
    page.write_text(as_markdown(results), "utf-8")
    data.write_text(as_json(results) + "\n", "utf-8")
    return [page, data]
