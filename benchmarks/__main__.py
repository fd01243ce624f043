"""The command behind `scripts/bench`."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks import alone, chart, compared, report
from benchmarks.plan import plan
from benchmarks.server import running
from benchmarks.systems import OWN, System


def bench(
    peers: Annotated[bool, typer.Option("--peers", help="Measure the other queues beside ours.")] = False,
    short: Annotated[bool, typer.Option("--short", help="A small run that shows that all works.")] = False,
    runs: Annotated[int, typer.Option(min=1, help="How often each figure is taken; medians are shown.")] = 3,
    scale: Annotated[float, typer.Option(min=0.001, help="Size of tables and durations of our own figures.")] = 1.0,
    only: Annotated[str, typer.Option(help="Only `compared` or only `alone`.")] = "",
    output: Annotated[Path, typer.Option(help="Where benchmarks.md, .json and .svg go.")] = Path("docs"),
) -> None:
    """Measures the queue on a local server with durable settings, alone and beside others."""
    sized = plan(runs=runs, scale=scale, short=short)
    systems = [OWN, *(_peers() if peers else [])]
    versions = {system.name: system.version() for system in systems}
    with running() as server:
        settings = server.settings()
        _tell(f"{report.machine()}; PostgreSQL {settings}; {versions}")
        comparison = compared.Comparison()
        if only != "alone":
            comparison = compared.compare(server, systems, sized, _tell)
        ours = alone.measure(server, sized, _tell) if only != "compared" else None
    results = report.Results(sized, settings, versions, systems, comparison, ours)
    written = report.write(results, output)
    if peers and comparison.values:
        written.append(chart.write(results, output))
    typer.echo(report.as_markdown(results))
    for line in [*report.ratios(results), *(f"written: {path}" for path in written)]:
        typer.echo(line)


def _peers() -> list[System]:
    from benchmarks.peers.systems import all_peers  # installs their Node packages: only where they are wanted

    return all_peers()


def _tell(line: str) -> None:
    typer.echo(line, err=True)


if __name__ == "__main__":
    typer.run(bench)
