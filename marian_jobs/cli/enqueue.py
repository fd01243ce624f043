"""Getting jobs in from the command line: one, or a file of them."""

import json as jsonlib
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO
from uuid import UUID

import typer
from rich.progress import Progress

from marian_jobs import checks
from marian_jobs.cli.options import DatabaseUrl, Json, duration, moment
from marian_jobs.cli.output import as_dict, console, print_jobs, print_json
from marian_jobs.cli.stores import with_queue
from marian_jobs.job import NewJob
from marian_jobs.queue import Queue

app = typer.Typer()

BATCH = 1000
_NAMES = {"payload", "key", "user_id", "priority", "max_attempts", "run_after", "delay"}


@app.command()
def enqueue(
    type: Annotated[str, typer.Argument(help="The job's type.")],
    payload: Annotated[str, typer.Option(help="A JSON object.")] = "{}",
    file: Annotated[
        Path | None,
        typer.Option(
            help="JSON lines, each an object with payload, key, priority …; - for standard input.", allow_dash=True
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: one live job per key.")] = None,
    priority: Annotated[int, typer.Option(help="Higher runs first.")] = 0,
    delay: Annotated[str | None, typer.Option(help="Due this long from now: 30s, 5m, 2h.")] = None,
    run_after: Annotated[str | None, typer.Option(help="Due at this moment, ISO 8601 with a zone.")] = None,
    max_attempts: Annotated[int, typer.Option(help="How often it may be started.")] = 3,
    user_id: Annotated[UUID | None, typer.Option(help="The user it belongs to.")] = None,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Enqueues a job of TYPE, or one for each line of a file."""
    common: dict[str, Any] = {"key": key, "priority": priority, "max_attempts": max_attempts, "user_id": user_id}
    common["delay"] = None if delay is None else duration(delay)
    common["run_after"] = None if run_after is None else moment(run_after)
    if file is not None:
        _enqueue_file(type, file, common, json, database_url)
        return
    job = checks.new_job(type, _parsed(payload, "--payload"), **common)

    async def put(queue: Queue) -> Any:
        return (await queue.enqueue_many([job]))[0]

    made = with_queue(database_url, put)
    print_json(as_dict(made)) if json else print_jobs([made])
    if not json and not made.created:
        console.print("a live job has this key already: nothing was added")


def _enqueue_file(type: str, file: Path, common: dict[str, Any], json: bool, database_url: str | None) -> None:
    counts = {"enqueued": 0, "existing": 0}

    async def load(queue: Queue) -> None:
        with _opened(file) as lines, Progress(transient=True, disable=json) as progress:
            task = progress.add_task(type, total=None)
            jobs = _read(type, lines, common)
            while batch := list(islice(jobs, BATCH)):
                created = sum(answer.created for answer in await queue.enqueue_many(batch))
                counts["enqueued"] += created
                counts["existing"] += len(batch) - created
                progress.update(task, advance=len(batch), description=f"{type}: {sum(counts.values())}")

    try:
        with_queue(database_url, load)
    except ValueError as e:
        raise ValueError(f"{file}: {e} ({counts['enqueued']} jobs before it were enqueued)") from e
    print_json(counts) if json else console.print(f"{counts['enqueued']} enqueued, {counts['existing']} there already")


def _opened(file: Path) -> TextIO:
    return sys.stdin if str(file) == "-" else file.open(encoding="utf-8")


def _read(type: str, lines: Any, common: dict[str, Any]) -> Iterator[NewJob]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _job(type, _parsed(line, "the line"), common)
        except (ValueError, TypeError) as e:
            raise ValueError(f"line {number}: {e}") from None


def _job(type: str, fields: dict[str, Any], common: dict[str, Any]) -> NewJob:
    if unknown := fields.keys() - _NAMES:
        raise ValueError(f"unknown name {sorted(unknown)[0]!r}; known are {', '.join(sorted(_NAMES))}")
    options = {**common, **fields}
    payload = options.pop("payload", None)
    for name, read in (("delay", duration), ("run_after", moment)):
        if isinstance(options[name], str):
            options[name] = read(options[name])
    return checks.new_job(type, payload, **options)


def _parsed(text: str, what: str) -> dict[str, Any]:
    try:
        value = jsonlib.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"{what}: nested too deep") from None
    except ValueError as e:
        raise ValueError(f"{what} is not JSON: {e}") from None
    if not isinstance(value, dict):
        raise TypeError(f"{what}: expected a JSON object, got {text.strip()[:40]}")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
