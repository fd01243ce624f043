"""The local stack."""

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from marian_jobs import migrations
from marian_jobs.cli.options import Json
from marian_jobs.cli.output import console, print_json
from marian_jobs.local.postgres import LocalPostgres

app = typer.Typer(invoke_without_command=True, help="Runs a small Supabase on this machine until Ctrl-C.")


@app.callback()
def dev(
    context: typer.Context,
    data: Annotated[Path, typer.Option(help="Where the database is kept.")] = Path(".marian"),
    ephemeral: Annotated[bool, typer.Option(help="Throw the database away at the end.")] = False,
    db_port: Annotated[int, typer.Option(help="The database's port.")] = 54322,
    json: Json = False,
) -> None:
    """Runs Postgres, as Supabase sets it up, until Ctrl-C."""
    if context.invoked_subcommand is not None:
        return
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with LocalPostgres(None if ephemeral else data, db_port) as postgres:
        migrations.migrate(postgres.dsn())
        values = {"DB_URL": postgres.dsn()}
        if json:
            print_json(values)
        else:
            for name, value in values.items():
                console.print(f'{name}="{value}"', highlight=False, soft_wrap=True)
            console.print("Ctrl-C stops it")
        stop.wait()
