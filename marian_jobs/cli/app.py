"""The commands, put together."""

from typing import Annotated

import typer

import marian_jobs
from marian_jobs import logs
from marian_jobs.cli import dev, doctor, enqueue, jobs, limits, project, work

app = typer.Typer(
    name="marian",
    help="Background jobs for AI applications on Supabase: one Postgres table is the queue.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

for group in (project.app, enqueue.app, work.app, jobs.app, limits.app, doctor.app):
    app.registered_commands += group.registered_commands
app.add_typer(dev.app, name="dev")


def _version(wanted: bool) -> None:
    if wanted:
        print(marian_jobs.__version__)
        raise typer.Exit


@app.callback()
def marian(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Background jobs for AI applications on Supabase: one Postgres table is the queue."""
    logs.set_up(level="WARNING")
