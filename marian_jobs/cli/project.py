"""Putting the queue into a Supabase project, and into a database."""

import shutil
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from marian_jobs import migrations
from marian_jobs.cli.options import DatabaseUrl, Json
from marian_jobs.cli.output import console, print_json
from marian_jobs.cli.stores import settings
from marian_jobs.errors import MarianError

app = typer.Typer()

# The gateway's own check would refuse the newer secret keys, which are no tokens, and let users' tokens pass.
FUNCTION_SETTING = ("[functions.marian-worker]", "verify_jwt = false")


@app.command()
def migrate(
    dry_run: Annotated[bool, typer.Option(help="Print the SQL that would be run, and change nothing.")] = False,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Brings a database to the newest version; safe to run at any time, and by many at once."""
    dsn = settings(database_url).need_database()
    if dry_run:
        steps = migrations.pending(dsn)
        if not json:
            for step in steps:
                print(f"-- {step.version}_{step.name}\n{step.sql}")
            return
    else:
        steps = migrations.migrate(dsn, on_step=lambda step: None if json else console.print(f"applied {step.name}"))
    if json:
        print_json({"dry_run": dry_run, "migrations": [f"{step.version}_{step.name}" for step in steps]})
    elif not steps:
        console.print("nothing to do: the database is up to date")


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="The project, i.e. the parent of supabase/.")] = Path(),
    force: Annotated[bool, typer.Option(help="Overwrite files that differ.")] = False,
    json: Json = False,
) -> None:
    """Puts the migrations and the edge functions into a Supabase project; then `supabase db push` applies them.

    A project's own config.toml is never changed: what the edge function needs there is printed.
    """
    source, target = migrations.project(), directory / "supabase"
    wanted = [
        path.relative_to(source)
        for part in ("migrations", "functions")
        for path in sorted((source / part).rglob("*"))
        if path.is_file()
    ]
    if not (target / "config.toml").exists():  # a project's own configuration, and with it its seeds, are left alone
        wanted += [Path(name) for name in ("config.toml", "seed.sql") if not (target / name).exists()]
    differing = [path for path in wanted if (target / path).exists() and not _same(source / path, target / path)]
    if differing and not force:
        raise MarianError(f"{target / differing[0]} is there and differs; --force overwrites it. Nothing was changed.")
    written = [path for path in wanted if path in differing or not (target / path).exists()]
    for path in written:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, target / path)
    missing = [] if _leaves_keys_to_the_function(target / "config.toml") else list(FUNCTION_SETTING)
    if json:
        print_json({"written": [str(target / path) for path in written], "add_to_config": missing})
        return
    for path in written:
        console.print(f"wrote {target / path}", markup=False, highlight=False, soft_wrap=True)
    if missing:
        why = "for the edge function to be called with a secret key, add these lines"
        console.print(f"{target / 'config.toml'} is yours and left alone; {why}:", markup=False, soft_wrap=True)
        console.print("\n".join(missing), markup=False, highlight=False)
    console.print("next: supabase db push" if written else "nothing to do: the project has it all")


def _leaves_keys_to_the_function(config: Path) -> bool:
    """Whether a project's configuration says so; one that cannot be read does not."""
    try:
        setting: object = tomllib.loads(config.read_text("utf-8"))["functions"]["marian-worker"]["verify_jwt"]
    except (ValueError, KeyError, TypeError):
        return False
    return setting is False


def _same(a: Path, b: Path) -> bool:
    return a.read_bytes() == b.read_bytes()
