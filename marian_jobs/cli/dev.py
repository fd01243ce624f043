"""The local stack."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from marian_jobs import migrations
from marian_jobs.cli.options import Json
from marian_jobs.cli.output import console, print_json
from marian_jobs.errors import MarianError

app = typer.Typer(invoke_without_command=True, help="Runs a small Supabase on this machine until Ctrl-C.")

Data = Annotated[Path, typer.Option(help="Where the database is kept.")]
KEPT = Path(".marian")


@app.callback()
def dev(
    context: typer.Context,
    data: Data = KEPT,
    ephemeral: Annotated[bool, typer.Option(help="Throw the database away at the end.")] = False,
    port: Annotated[int, typer.Option(help="The API's port.", min=1, max=65535)] = 54321,
    db_port: Annotated[int, typer.Option(help="The database's port.", min=1, max=65535)] = 54322,
    db_only: Annotated[bool, typer.Option(help="The database alone, without the API.")] = False,
    json: Json = False,
) -> None:
    """Runs Postgres, PostgREST and a gateway, set up as Supabase sets them up, until Ctrl-C."""
    if context.invoked_subcommand is not None:
        return
    with _needing_the_extra():
        from marian_jobs.local.stack import LocalStack
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with LocalStack(
        None if ephemeral else data, migrate=migrations.migrate, port=port, db_port=db_port, database_only=db_only
    ) as stack:
        _print(stack.env(), json)
        if not json:
            console.print("\nmarian dev user EMAIL makes an account; Ctrl-C stops it all", highlight=False)
        stop.wait()


@app.command()
def user(
    email: Annotated[str, typer.Argument(help="The account's address.")], data: Data = KEPT, json: Json = False
) -> None:
    """Makes an account in the stack that runs, and prints an access token for it."""
    with _needing_the_extra():
        from marian_jobs.local.stack import create_user, running_in
    env = running_in(data)
    user_id, token = create_user(env, email)
    _print({"USER_ID": str(user_id), "ACCESS_TOKEN": token}, json)
    if not json:
        console.print(f"\nits jobs: {env['API_URL']}/#access_token={token}", highlight=False, soft_wrap=True)


@contextmanager
def _needing_the_extra() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise MarianError("the local stack is an extra: pip install 'marian-jobs[local]'") from None


def _print(values: dict[str, str], json: bool) -> None:
    if json:
        print_json(values)
        return
    for name, value in values.items():
        console.print(f'{name}="{value}"', highlight=False, markup=False, soft_wrap=True)
