"""What is wrong with the queue, and what to do about it."""

import asyncio
from collections import defaultdict
from datetime import timedelta
from typing import Annotated

import typer
from rich.table import Table

from marian_jobs.cli.options import DatabaseUrl, Json, duration, option
from marian_jobs.cli.output import as_dict, console, print_json, shown
from marian_jobs.cli.stores import DEADLINE, settings
from marian_jobs.doctor import Bounds, Finding, Outcome, Report, Severity, examine_database, examine_project

app = typer.Typer()

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@app.command()
def doctor(
    due: Annotated[
        timedelta | None,
        option(duration, "How long the oldest due job of a type may have waited; by default 15m.", metavar="DURATION"),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line for every check.")] = False,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Looks for what bites queues in production; exit code 0 when healthy, 1 when there is something to do."""
    report = _examine(database_url, Bounds() if due is None else Bounds(due=due))
    if json:
        print_json({"healthy": report.healthy, "checks": [_as_json(outcome) for outcome in report.outcomes]})
    else:
        _print(report, verbose)
    if not report.healthy:
        raise typer.Exit(1)


def _examine(database_url: str | None, bounds: Bounds) -> Report:
    known = settings(database_url)
    if known.database_url is not None:
        return examine_database(known.need_database(), bounds)
    url, key = known.need_project()
    from marian_jobs.stores.supabase import SupabaseStore  # its client takes a second to import

    return asyncio.run(examine_project(SupabaseStore(url, key, deadline=DEADLINE), bounds))


def _as_json(outcome: Outcome) -> dict[str, object]:
    status = "not run" if outcome.not_run else "found" if outcome.findings else "ok"
    return {
        "check": outcome.check,
        "status": status,
        "not_run": outcome.not_run,
        "findings": [as_dict(finding) for finding in outcome.findings],
    }


def _print(report: Report, verbose: bool) -> None:
    for outcome in report.outcomes:
        for finding in outcome.findings:
            _print_finding(outcome.check, finding)
    if verbose:
        _print_checks(report)
    else:
        _print_not_run(report)
    run = sum(outcome.not_run is None for outcome in report.outcomes)
    console.print(
        f"{'healthy' if report.healthy else 'not healthy'}: {run} of {len(report.outcomes)} checks run", highlight=False
    )


def _print_finding(check: str, finding: Finding) -> None:
    console.print(finding.severity, style=_COLOURS[finding.severity], end="")
    console.print(shown(f" {check}: {finding.text}"), highlight=False, soft_wrap=True)
    if finding.advice:
        console.print(shown(f"  {finding.advice}"), highlight=False, soft_wrap=True)


def _print_checks(report: Report) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for outcome in report.outcomes:
        state = "not run" if outcome.not_run else "found" if outcome.findings else "ok"
        table.add_row(outcome.check, state, shown(outcome.not_run or ""))
    console.print(table)


def _print_not_run(report: Report) -> None:
    """The checks that were not run, by reason."""
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for outcome in report.outcomes:
        if outcome.not_run:
            reasons[outcome.not_run].append(outcome.check)
    for reason, names in reasons.items():
        console.print(shown(f"not run: {', '.join(names)}: {reason}"), highlight=False, soft_wrap=True)
