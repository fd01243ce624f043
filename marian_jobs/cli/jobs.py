"""Looking at jobs, and moving them by hand."""

from datetime import timedelta
from typing import Annotated
from uuid import UUID

import typer

from marian_jobs.cli.options import DatabaseUrl, Json, duration, option
from marian_jobs.cli.output import as_dict, console, print_job, print_jobs, print_json, print_list, print_stats
from marian_jobs.cli.stores import with_queue
from marian_jobs.errors import MarianError
from marian_jobs.job import Job, Status
from marian_jobs.queue import Queue
from marian_jobs.store import JobFilter

app = typer.Typer()

JobId = Annotated[UUID, typer.Argument(help="The job's id.")]


@app.command()
def jobs(
    status: Annotated[Status | None, typer.Option(help="Only jobs in this state.")] = None,
    type: Annotated[str | None, typer.Option(help="Only jobs of this type.")] = None,
    user_id: Annotated[UUID | None, typer.Option(help="Only jobs of this user.")] = None,
    key: Annotated[str | None, typer.Option(help="Only jobs with this idempotency key.")] = None,
    before: Annotated[UUID | None, typer.Option(help="Continue behind the job with this id.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 50,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Lists jobs, newest first."""

    async def find(queue: Queue) -> list[Job]:
        cursor = None
        if before is not None:
            last = _there(await queue.get(before), before)
            cursor = (last.created_at, last.id)
        return list(await queue.find(JobFilter(status, type, user_id, key, cursor, limit)))

    found = with_queue(database_url, find)
    if json:
        print_list(found)
    else:
        print_jobs(found)


@app.command()
def show(job_id: JobId, json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Shows everything of one job."""
    job = _there(with_queue(database_url, lambda queue: queue.get(job_id)), job_id)
    print_json(as_dict(job)) if json else print_job(job)


@app.command()
def retry(
    job_id: JobId,
    max_attempts: Annotated[
        int | None, typer.Option(min=1, max=2**31 - 1, help="The new budget; by default the former one.")
    ] = None,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Queues a dead job again."""
    moved = with_queue(database_url, lambda queue: queue.retry(job_id, max_attempts))
    _tell(moved, json, f"job {job_id} is not dead: only a dead job can be queued again")


@app.command()
def cancel(job_id: JobId, json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Ends a job that is not finished."""
    moved = with_queue(database_url, lambda queue: queue.cancel(job_id))
    _tell(moved, json, f"job {job_id} is finished already, or there is none")


@app.command()
def reclaim(json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Takes back the jobs whose lease is over; workers do so by themselves."""

    async def reclaim_all(queue: Queue) -> list[Job]:
        reclaimed: list[Job] = []
        while batch := await queue.reclaim():
            reclaimed += batch
        return reclaimed

    reclaimed = with_queue(database_url, reclaim_all)
    if json:
        print_list(reclaimed)
    else:
        console.print(f"{len(reclaimed)} reclaimed")


@app.command()
def prune(
    succeeded_older: Annotated[
        timedelta | None, option(duration, "Delete succeeded jobs older than this, e.g. 7d.", metavar="DURATION")
    ] = None,
    dead_older: Annotated[
        timedelta | None, option(duration, "Delete dead jobs older than this, e.g. 30d.", metavar="DURATION")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many in one transaction.")] = 10_000,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Deletes finished jobs, in short transactions, until none is left that old."""
    if succeeded_older is None and dead_older is None:
        raise typer.BadParameter("say what to delete: --succeeded-older 7d and/or --dead-older 30d")

    async def prune_all(queue: Queue) -> int:
        total = 0
        while count := await queue.prune(succeeded_older=succeeded_older, dead_older=dead_older, limit=limit):
            total += count
        return total

    total = with_queue(database_url, prune_all)
    print_json({"pruned": total}) if json else console.print(f"{total} pruned")


@app.command()
def stats(json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Counts jobs by type and state."""
    found = with_queue(database_url, lambda queue: queue.stats())
    print_list(found) if json else print_stats(found)


def _there(job: Job | None, job_id: object) -> Job:
    if job is None:
        raise MarianError(f"there is no job {job_id}")
    return job


def _tell(job: Job | None, json: bool, otherwise: str) -> None:
    if job is None:
        raise MarianError(otherwise)
    print_json(as_dict(job)) if json else print_jobs([job])
