"""Options that several commands share, and how their texts are read."""

import re
from datetime import datetime, timedelta
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="Postgres connection string [env: MARIAN_DATABASE_URL].", show_default=False),
]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SHORT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")


def duration(text: str) -> timedelta:
    """`90`, `30s`, `5m`, `2h`, `7d` or ISO 8601 (`PT1H`)."""
    if match := _SHORT.fullmatch(text.strip()):
        try:
            return timedelta(seconds=float(match[1]) * _UNITS[match[2] or "s"])
        except OverflowError:
            raise typer.BadParameter(f"{text!r} is too long") from None
    try:
        return TypeAdapter(timedelta).validate_python(text)
    except ValidationError:
        raise typer.BadParameter(f"{text!r} is not a duration; write 30s, 5m, 2h or 7d") from None


def moment(text: str) -> datetime:
    """An ISO 8601 moment with a time zone."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a moment; write 2030-01-31T12:00:00+00:00") from None
