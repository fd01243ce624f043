"""A handler in a process of its own may crash, hang or eat memory: an ordinary failure, and the worker goes on."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest

from marian_jobs import Backoff, Context, Job, MemoryStore, Status, Worker, new_job
from marian_jobs.job import FINISHED
from tests.worker.isolated import work, work_async


async def become(*doings: str, function: object = work, timeout: float | None = None) -> list[Job]:
    store = MemoryStore()
    worker = Worker(store, concurrency=2, grace=timedelta(0), poll=timedelta(milliseconds=50))
    worker.handler(
        "t", isolation="process", timeout=timeout, memory_limit=4 * 2**30, backoff=Backoff(base=timedelta(0))
    )(function)  # type: ignore[type-var]
    jobs = await store.enqueue([new_job("t", {"do": doing}, max_attempts=1) for doing in doings])
    running = asyncio.create_task(worker.run(signals=False))
    async with asyncio.timeout(30):
        while not all(store._jobs[job.id].status in FINISHED for job in jobs):
            await asyncio.sleep(0.02)
    worker.stop()
    await running
    return [store._jobs[job.id] for job in jobs]


async def test_whatever_happens_in_the_process_is_an_ordinary_outcome() -> None:
    done = await become("return", "raise", "dead", "segfault", "exit", "eat", "snooze", "return")
    assert [job.status for job in done] == [Status.SUCCEEDED] + [Status.DEAD] * 5 + [Status.SUCCEEDED] * 2
    errors = [(job.error or "").splitlines()[0] for job in done[1:6]]
    assert errors[0] == "ValueError: boom"
    assert errors[1] == "bad input"
    assert errors[2].startswith("ProcessLost: the handler's process ended with exit code")
    assert errors[3].startswith("ProcessLost: the handler's process ended with exit code 3")
    assert errors[4].startswith("MemoryError")


async def test_a_timeout_kills_the_process() -> None:
    (hung,) = await become("hang", timeout=1.5)
    assert hung.error == "timeout: the handler took longer than 1.5 s"
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" and was_spawned(pid)]


def was_spawned(pid: str) -> bool:
    return "multiprocessing.spawn" in Path(f"/proc/{pid}/cmdline").read_text()


async def test_a_coroutine_runs_there_too() -> None:
    assert [job.status for job in await become("return", function=work_async)] == [Status.SUCCEEDED]


def test_what_a_process_could_not_run_is_refused() -> None:
    worker = Worker(MemoryStore())

    def local(job: Job) -> None: ...

    with pytest.raises(TypeError, match="import"):
        worker.handler("a", isolation="process")(local)
    with pytest.raises(ValueError, match="isolation"):
        worker.handler("a", memory_limit=1)(work)
    with pytest.raises(TypeError, match="job alone"):
        worker.handler("a", isolation="process")(takes_context)


def takes_context(job: Job, context: Context) -> None: ...
