"""The command behind `scripts/soak`."""

import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from soak.programs import Program, running
from soak.sample import Samples
from soak.verdict import FEWEST, SHARE, Verdict, judge

RULE = (
    "over the second half, the median of all slopes times the half's length is at most "
    f"{SHARE:.0%} of the half's median, or the floor of the series"
)


def soak(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long the load lasts.")] = 30,
    short: Annotated[bool, typer.Option("--short", help="A few seconds, which show that all works.")] = False,
    rate: Annotated[float, typer.Option(min=1, help="Jobs enqueued a second over Postgres; half as many by API.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the load.")] = 1,
    output: Annotated[Path, typer.Option(help="Where soak.svg and soak.json go.")] = Path("docs"),
) -> None:
    """Puts a local stack, three workers and a client under mixed load, and says whether anything grows."""
    seconds, every = (5.0, 0.5) if short else (minutes * 60, min(5.0, minutes * 60 / 40))
    logs = Path(tempfile.mkdtemp(prefix="marian-soak-"))
    typer.echo(f"logs: {logs}", err=True)
    with running(logs, rate, seed) as (dsn, programs):
        samples = _sampled(dsn, programs, seconds, every)
        counts = programs["client"].said
    verdicts = [judge(samples.at, series) for series in samples.series]
    _write(output, samples, verdicts, counts, seconds)
    _tell(verdicts, counts, short)
    raise typer.Exit(0 if short or all(verdict.holds for verdict in verdicts) else 1)


def _sampled(dsn: str, programs: dict[str, Program], seconds: float, every: float) -> Samples:
    samples = Samples({name: program.pid for name, program in programs.items()})
    programs["client"].wait_for_words()
    begun = time.monotonic()
    with psycopg.connect(dsn, autocommit=True) as connection:
        while (now := time.monotonic() - begun) < seconds or len(samples.at) < FEWEST:
            for program in programs.values():
                program.must_run()
            samples.take(now, connection)
            time.sleep(max(0.0, every - (time.monotonic() - begun - now)))
    return samples


def _write(output: Path, samples: Samples, verdicts: Sequence[Verdict], counts: dict[str, Any], seconds: float) -> None:
    from soak import chart  # loads matplotlib: after what is measured

    output.mkdir(parents=True, exist_ok=True)
    machine = (
        f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    )
    told = {
        "machine": machine,
        "seconds": round(seconds),
        "rule": RULE,
        "counts": counts,
        "verdicts": [{**asdict(v), "holds": v.holds} for v in verdicts],
        "at": [round(at, 1) for at in samples.at],
        "series": {series.name: series.values for series in samples.series},
    }
    (output / "soak.json").write_text(json.dumps(told) + "\n", "utf-8")
    chart.write(
        samples, f"{seconds / 60:.0f} minutes of mixed load; shaded: the half that is judged", output / "soak.svg"
    )


def _tell(verdicts: Sequence[Verdict], counts: dict[str, Any], short: bool) -> None:
    typer.echo("the load: " + ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())))
    for v in verdicts:
        said = "" if v.holds else "   GROWS"
        typer.echo(f"{v.name:38} {v.median:10,.1f} {v.unit:5} {v.growth:+9.2f} of {v.allowed:8.2f} allowed{said}")
    typer.echo(f"rule: {RULE}")
    growing = [verdict.name for verdict in verdicts if not verdict.holds]
    if short:
        typer.echo("a short run shows that all works; whether anything grows shows after minutes")
    else:
        typer.echo(f"GROWS: {', '.join(growing)}" if growing else "nothing grows that should not")


if __name__ == "__main__":
    typer.run(soak)
