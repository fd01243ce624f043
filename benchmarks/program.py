"""A queue under test is a program: `PROGRAM ACTION DSN [N]`, one line of JSON per answer. This is its Python side.

    install      makes the schema in an empty database
    version      {"version": text}
    bulk N       enqueues N jobs as fast as the library can; {"seconds": s}, connecting not counted
    single N     enqueues N jobs, one call and one transaction each; {"seconds": s}
    ping N       enqueues one job every 25 ms: {"job": i, "at": ns} when its commit has returned
    work         after a line on stdin works: {"done": n} as the count of handled jobs grows, until stdin ends
    listen       the same for an idle worker: {"job": i, "at": ns} at the start of each handler

Times `at` are nanoseconds of the machine's monotonic clock, which all processes share.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

PING_EVERY = 0.025
REPORT_EVERY = 0.01

Handled = Callable[[int], None]


class Program(Protocol):
    """What a Python queue implements; `handled` is to be called at the start of each handler with the job's number."""

    async def install(self, dsn: str) -> None: ...
    def version(self) -> str: ...
    async def bulk(self, dsn: str, count: int) -> float: ...
    async def single(self, dsn: str, count: int, enqueued: Handled, pause: float) -> float: ...
    async def work(self, dsn: str, handled: Handled, stop: asyncio.Event) -> None: ...


def say(**answer: object) -> None:
    """One line of JSON, at once."""
    print(json.dumps(answer), flush=True)


class Counter:
    """Counts handled jobs, and says so every 10 ms while the count grows: less often than once per job on purpose."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, _: int) -> None:
        self.count += 1

    async def report(self) -> None:
        said = 0
        while True:
            await asyncio.sleep(REPORT_EVERY)
            if self.count != said:
                said = self.count
                say(done=said)


def say_start(job: int) -> None:
    """Tells when a job's handler has started (or its enqueueing has returned)."""
    say(job=job, at=time.monotonic_ns())


async def timed(work: Awaitable[object]) -> float:
    """Seconds that it took."""
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


async def _until_stdin_ends(stop: asyncio.Event) -> None:
    await asyncio.to_thread(sys.stdin.read)
    stop.set()


async def _work(program: Program, dsn: str, counted: bool) -> None:
    stop = asyncio.Event()
    counter = Counter()
    say(ready=True)
    await asyncio.to_thread(sys.stdin.readline)
    aside = [asyncio.create_task(_until_stdin_ends(stop))]
    if counted:
        aside.append(asyncio.create_task(counter.report()))
    await program.work(dsn, counter.add if counted else say_start, stop)
    for task in aside:
        task.cancel()


def _nothing(_: int) -> None:
    pass


async def _run(program: Program, action: str, dsn: str, count: int) -> None:
    match action:
        case "install":
            await program.install(dsn)
        case "bulk":
            say(seconds=await program.bulk(dsn, count))
        case "single":
            say(seconds=await program.single(dsn, count, _nothing, 0))
        case "ping":
            await program.single(dsn, count, say_start, PING_EVERY)
        case "work" | "listen":
            await _work(program, dsn, action == "work")
        case _:
            raise SystemExit(f"unknown action {action}")


def main(program: Program) -> None:
    """Runs the action of the command line."""
    action, dsn, count = [*sys.argv[1:], "", ""][:3]
    if action == "version":
        say(version=program.version())
    else:
        asyncio.run(_run(program, action, dsn, int(count or 0)))
