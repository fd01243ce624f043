"""Getting jobs in from the command line: one, or a file of them."""

import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from uuid import UUID

import typer
from rich.progress import Progress

from marian_jobs import checks
from marian_jobs.cli.jsonlines import JobLines, json_object
from marian_jobs.cli.options import DatabaseUrl, Json, duration, moment, option, wrong_usage
from marian_jobs.cli.output import as_dict, console, errors, print_jobs, print_json
from marian_jobs.cli.stores import with_queue
from marian_jobs.job import Enqueued, NewJob
from marian_jobs.queue import Queue
from marian_jobs.stream import Streamed

app = typer.Typer()

CHUNK = 1_000  # lines that go in together: what a bad line keeps out with it


@app.command()
def enqueue(
    type: Annotated[str, typer.Argument(help="The job's type.")],
    payload: Annotated[str | None, typer.Option(help="A JSON object; by default an empty one.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="JSON lines, each an object with payload, key, priority …; - for standard input."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: one live job per key.")] = None,
    priority: Annotated[int, typer.Option(help="Higher runs first.")] = 0,
    delay: Annotated[
        timedelta | None, option(duration, "Due this long from now: 30s, 5m, 2h.", metavar="DURATION")
    ] = None,
    run_after: Annotated[
        datetime | None, option(moment, "Due at this moment, ISO 8601 with a zone.", metavar="MOMENT")
    ] = None,
    max_attempts: Annotated[int, typer.Option(help="How often it may be started.")] = 3,
    user_id: Annotated[UUID | None, typer.Option(help="The user it belongs to.")] = None,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Enqueues a job of TYPE, or one for each line of a file."""
    common: dict[str, Any] = {
        "key": key,
        "priority": priority,
        "delay": delay,
        "run_after": run_after,
        "max_attempts": max_attempts,
        "user_id": user_id,
    }
    with wrong_usage():
        if file is not None and not (payload is None and key is None):
            raise ValueError("--payload and --key are for one job; with --file each line gives its own")
        if file is not None and str(file) != "-" and not file.exists():
            raise ValueError(f"--file: there is no {file}")
        job = checks.new_job(type, json_object("{}" if payload is None else payload), **common)
    if file is None:
        _enqueue_one(job, json, database_url)
    else:
        _enqueue_file(type, file, common, json, database_url)


def _enqueue_one(job: NewJob, json: bool, database_url: str | None) -> None:
    async def put(queue: Queue) -> Enqueued:
        return (await queue.enqueue_many([job]))[0]

    made = with_queue(database_url, put)
    print_json(as_dict(made)) if json else print_jobs([made])
    if not json and not made.created:
        console.print("a live job has this key already: nothing was added")


def _enqueue_file(type: str, file: Path, common: dict[str, Any], json: bool, database_url: str | None) -> None:
    size = file.stat().st_size if file.is_file() else None
    with _opened(file) as lines:
        jobs = JobLines(type, lines, common)

        async def put(queue: Queue) -> Streamed:
            with _progress() as progress:
                task = progress.add_task(type, total=size)

                def sent(done: Streamed) -> None:
                    jobs.done(done.total)
                    progress.update(task, completed=jobs.bytes_done, description=f"{type}: {done.total}")

                return await queue.enqueue_stream(jobs, chunk=CHUNK, sent=sent)

        try:
            done = with_queue(database_url, put)
        except BaseException:  # Ctrl-C too: whoever goes on must know from where
            told = (
                f"lines 1 to {jobs.last_line} were enqueued, go on behind them"
                if jobs.last_line
                else "no line was enqueued"
            )
            errors.print(f"{file}: {told}", markup=False, highlight=False, soft_wrap=True)
            raise
    counts = {"enqueued": done.created, "existing": done.existing}
    print_json(counts) if json else console.print(f"{done.created} enqueued, {done.existing} there already")


def _opened(file: Path) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb")


def _progress() -> Progress:
    return Progress(transient=True, console=errors, disable=not errors.is_terminal)
