"""Options that several commands share, and how their texts are read."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, TypeVar

import typer
from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SHORT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")


def duration(text: str) -> timedelta:
    """`90`, `30s`, `5m`, `2h`, `7d` or ISO 8601 (`PT1H`); `ValueError` for what is none."""
    try:
        if match := _SHORT.fullmatch(text.strip()):
            return timedelta(seconds=float(match[1]) * _UNITS[match[2] or "s"])
        return TypeAdapter(timedelta).validate_python(text)
    except (OverflowError, ValidationError):
        raise ValueError(f"{text!r} is not a duration, or too long a one; write 30s, 5m, 2h or 7d") from None


def moment(text: str) -> datetime:
    """An ISO 8601 moment with a time zone; `ValueError` for what is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None:
        raise ValueError(f"{text!r} is not a moment with a time zone; write 2030-01-31T12:00:00+00:00")
    return found


@contextmanager
def wrong_usage() -> Iterator[None]:
    """What is refused inside was given on the command line, which is to be called differently: exit code 2."""
    try:
        yield
    except (ValueError, TypeError) as e:
        raise typer.BadParameter(str(e)) from e


def option(read: Callable[[str], T], help: str, metavar: str) -> T:
    """An option whose text `read` understands, or says why not."""

    def parse(text: str) -> T:
        with wrong_usage():
            return read(text)

    made: T = typer.Option(parser=parse, help=help, metavar=metavar, show_default=False)
    return made


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="Postgres connection string; by default MARIAN_DATABASE_URL.", show_default=False),
]
