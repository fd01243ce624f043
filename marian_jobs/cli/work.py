"""Running a worker."""

import asyncio
import importlib
import logging
import os
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import ModuleType
from typing import Annotated, Literal

import typer

from marian_jobs import logs
from marian_jobs.cli.options import duration, option, wrong_usage
from marian_jobs.cli.output import errors, print_json
from marian_jobs.errors import MarianError
from marian_jobs.health.address import checked
from marian_jobs.redaction import redact
from marian_jobs.worker import Worker, WorkerExhausted
from marian_jobs.worker.supervisor import Supervisor, same_command_without

logger = logging.getLogger("marian_jobs.worker")

app = typer.Typer()

EXHAUSTED = 75  # EX_TEMPFAIL: a supervisor should start the process anew


@app.command()
def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:WORKER", help="Where the Worker object is.")],
    drain: Annotated[bool, typer.Option(help="End when nothing is due any more.")] = False,
    once: Annotated[bool, typer.Option(help="Run at most one job and end.")] = False,
    processes: Annotated[int, typer.Option(min=1, help="How many processes; restarted when they end unasked.")] = 1,
    health: Annotated[
        str | None, option(checked, "Serve /healthz, /readyz and /metrics there (extra: health).", "[HOST:]PORT")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="How many jobs at once, whatever the module says.", show_default=False)
    ] = None,
    lease: Annotated[timedelta | None, option(duration, "How long a lease lasts, e.g. 30s.", "DURATION")] = None,
    poll: Annotated[timedelta | None, option(duration, "The longest pause between two looks.", "DURATION")] = None,
    grace: Annotated[
        timedelta | None, option(duration, "How long handlers may go on after SIGTERM.", "DURATION")
    ] = None,
    log_format: Annotated[Literal["console", "json"], typer.Option(help="How the log looks.")] = "console",
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], typer.Option(case_sensitive=False, help="What is worth a line.")
    ] = "INFO",
) -> None:
    """Runs the handlers of a worker until SIGTERM or Ctrl-C."""
    logs.set_up(log_format, log_level)
    if processes > 1 and not once:
        raise typer.Exit(asyncio.run(_supervise(processes, health)))
    found = load(target)
    with wrong_usage():
        found.tune(concurrency=concurrency, lease=lease, poll=poll, grace=grace)
    asyncio.run(_work(found, drain=drain, once=once, health=health))


async def _supervise(processes: int, health: str | None) -> int:
    command = same_command_without("--processes", "--health")
    if health is None:
        return await Supervisor(lambda _: command, processes).run()
    from marian_jobs.health import serve_fleet  # an extra

    with serve_fleet(health, processes) as fleet:
        logger.info("health is served at %s", fleet.url)
        return await Supervisor(lambda place: [*command, "--health", fleet.address(place)], processes).run()


async def _work(found: Worker, *, drain: bool, once: bool, health: str | None) -> None:
    try:
        async with _serving(found, health):
            if once:
                tick = await found.tick()
                print_json({"reclaimed": tick.reclaimed, "job": str(tick.job.id) if tick.job else None})
            else:
                await found.run(drain=drain)
    except WorkerExhausted as e:
        errors.print(f"marian: {e}", markup=False, highlight=False)
        _exit_at_once(EXHAUSTED)
    finally:
        await found.close()
        if found.abandoned:
            _exit_at_once(0)


@asynccontextmanager
async def _serving(found: Worker, address: str | None) -> AsyncIterator[None]:
    if address is None:
        yield
        return
    from marian_jobs.health import serve_health  # an extra

    async with serve_health(found, address) as server:
        logger.info("health is served at %s", server.url)
        yield


def _exit_at_once(code: int) -> None:
    """Ends the process past the handlers that would not: an ordinary exit waits for them, perhaps for ever."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def load(target: str) -> Worker:
    """The Worker that `MODULE:NAME` names; modules are looked for in the current directory first."""
    module_name, _, name = target.partition(":")
    if not module_name or not name or module_name.startswith("."):
        raise typer.BadParameter(f"{target!r}: expected MODULE:WORKER, e.g. app.jobs:worker")
    found = _imported(module_name)
    try:
        made = getattr(found, name)
    except AttributeError:
        raise MarianError(f"module {module_name!r} has no {name!r}") from None
    if not isinstance(made, Worker):
        raise MarianError(f"{target}: expected a marian_jobs.Worker, found a {type(made).__name__}")
    return made


def _imported(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as e:
        if isinstance(e, ModuleNotFoundError) and e.name and f"{name}.".startswith(f"{e.name}."):
            raise MarianError(f"no module {e.name!r} here; run the command where it can be imported") from None
        # What went wrong is in the user's code, and so is the line that is looked for.
        sys.stderr.write(redact(traceback.format_exc()))
        raise MarianError(f"module {name!r} could not be imported: {type(e).__name__}: {e}") from None
