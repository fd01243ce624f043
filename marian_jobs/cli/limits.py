"""What bounds job types over all workers: pauses, jobs at once, starts in a period."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Annotated

import typer

from marian_jobs import checks
from marian_jobs.cli.options import DatabaseUrl, Json, duration, option, wrong_usage
from marian_jobs.cli.output import as_dict, console, print_json, print_limits, print_list
from marian_jobs.cli.stores import with_store
from marian_jobs.store import Limit, Store, TypeLimit

app = typer.Typer()

Type = Annotated[str, typer.Argument(metavar="TYPE", help="The job type.")]


@app.command()
def pause(type: Type, json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Keeps every worker from claiming jobs of a type; those that run go on."""
    _set(type, json, database_url, lambda store: store.pause(type))


@app.command()
def resume(type: Type, json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Lets workers claim jobs of a type again."""
    _set(type, json, database_url, lambda store: store.resume(type))


@app.command()
def limit(
    type: Type,
    running: Annotated[
        int | None, typer.Option(help="At most this many run at once.", min=1, max=2**31 - 1, show_default=False)
    ] = None,
    rate: Annotated[
        int | None, typer.Option(help="At most this many start in any --per.", min=1, max=100_000, show_default=False)
    ] = None,
    per: Annotated[timedelta | None, option(duration, "The period of --rate, e.g. 1m.", metavar="DURATION")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take all limits off.")] = False,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Bounds a type over all workers; each call sets all of it anew. A pause stays as it is."""
    if clear is not ((running, rate, per) == (None, None, None)):
        raise typer.BadParameter("say what bounds the type: --running N, --rate N --per 1m, or both; or --clear alone")
    with wrong_usage():
        checks.limit(running, rate, per)
    _set(type, json, database_url, lambda store: store.limit(type, Limit(running, rate, per)))


@app.command()
def limits(json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Lists the types that are paused or limited, and how much of the limits is used."""

    async def read(store: Store) -> Sequence[TypeLimit]:
        return await store.limits()

    found = with_store(database_url, read)
    print_list(found) if json else print_limits(found)


def _set(type: str, json: bool, database_url: str | None, move: Callable[[Store], Awaitable[None]]) -> None:
    """Makes the move, and tells what bounds the type now."""
    with wrong_usage():
        checks.text("type", type, longest=128)

    async def run(store: Store) -> TypeLimit:
        await move(store)
        free = TypeLimit(type, paused=False, max_running=None, rate=None, per=None, running=0, started=0)
        return next((limit for limit in await store.limits() if limit.type == type), free)

    now = with_store(database_url, run)
    print_json(as_dict(now)) if json else console.print(_told(now), markup=False, highlight=False, soft_wrap=True)


def _told(limit: TypeLimit) -> str:
    bounds = []
    if limit.max_running is not None:
        bounds.append(f"at most {limit.max_running} at once")
    if limit.per is not None:
        bounds.append(f"at most {limit.rate} starts in {limit.per.total_seconds():g} s")
    return f"{limit.type!r} is {'paused' if limit.paused else 'claimed'}: {', '.join(bounds) or 'no limit'}"
