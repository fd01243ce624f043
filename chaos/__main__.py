"""The command behind `scripts/chaos`."""

import asyncio
import logging
import time
from typing import Annotated

import typer

from chaos import report
from chaos.plan import described, plan
from chaos.run import SHORT, Shape, run


def chaos(
    seconds: Annotated[
        float, typer.Option(min=5, help="How long events fall; working off the rest comes on top.")
    ] = 120,
    seed: Annotated[int, typer.Option(help="Of the events and the jobs; drawn from the clock unless given.")] = 0,
    short: Annotated[bool, typer.Option("--short", help="What CI runs: 16 s of it, dense.")] = False,
    show_plan: Annotated[bool, typer.Option("--plan", help="Print what would happen when, and do nothing.")] = False,
) -> None:
    """Works thousands of jobs while processes, server and network fail, and proves what was kept."""
    begun = time.time()
    seed = seed or int(begun) % 1_000_000
    # A long run is thinner: its evidence is kept whole until the end.
    shape = SHORT if short else Shape(seconds, gap=1.0, pause=0.03 if seconds <= 600 else 0.06, patience=180)
    if show_plan:
        typer.echo("\n".join(described(plan(seed, shape.seconds, shape.gap))))
        return
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # the operator's own connections suffer too
    outcome = asyncio.run(run(seed, shape, lambda line: typer.echo(f"{time.time() - begun:6.1f} s  {line}")))
    typer.echo("\n".join(report.lines(outcome)))
    typer.echo(f"\nseed {seed}, {time.time() - begun:.0f} s: {'PASS' if outcome.holds else 'FAIL'}")
    raise typer.Exit(0 if outcome.holds else 1)


if __name__ == "__main__":
    typer.run(chaos)
