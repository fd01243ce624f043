"""Input is checked before anything is sent: the same rules for every store, and an error that names the place.

What passes here, Postgres can keep: the database's own checks state the same limits once more.
"""

import json
import math
import reprlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from marian_jobs import clock
from marian_jobs.job import JsonObject, NewJob

INT32: Final = (-(2**31), 2**31 - 1)
DEEPEST: Final = 512
LARGEST_PAYLOAD: Final = 1024 * 1024
EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
LONGEST_DELAY: Final = timedelta(days=365 * 100)


def new_job(
    type: str,
    payload: JsonObject | None = None,
    *,
    user_id: UUID | str | None = None,
    key: str | None = None,
    priority: int = 0,
    max_attempts: int = 3,
    run_after: datetime | None = None,
    delay: timedelta | None = None,
    id: UUID | None = None,
    largest_payload: int = LARGEST_PAYLOAD,
) -> NewJob:
    """A job ready to be sent; `ValueError` or `TypeError`, naming the argument or payload path, for what is none."""
    if run_after is not None and delay is not None:
        raise ValueError("run_after and delay: give one of the two")
    kind = text("type", type, longest=128)
    payload = {} if payload is None else payload
    size = payload_size(payload, largest_payload)
    return NewJob(
        id=clock.new_id() if id is None else id,
        type=kind,
        payload=payload,
        user_id=uuid("user_id", user_id) if user_id is not None else None,
        idempotency_key=text("key", key, longest=512) if key is not None else None,
        priority=integer("priority", priority, *INT32),
        max_attempts=integer("max_attempts", max_attempts, 1, INT32[1]),
        run_after=instant("run_after", run_after) if run_after is not None else None,
        delay=duration("delay", delay) if delay is not None else None,
        size=size,
    )


def text(name: str, value: object, *, longest: int) -> str:
    """The text, if Postgres can store it, it is not blank and at most `longest` characters long."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a string, got {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{name}: must not be empty or blank")
    if len(value) > longest:
        raise ValueError(f"{name}: must be at most {longest} characters, got {len(value)}")
    return _storable(name, value)


def integer(name: str, value: object, least: int, most: int) -> int:
    """The integer, if it is one (not a bool, a float or a string) between `least` and `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name}: must be between {least} and {most}, got {_brief(value)}")
    return value


def uuid(name: str, value: object) -> UUID:
    """The UUID, from a UUID or its text."""
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a UUID, got {type(value).__name__}")
    try:
        return UUID(value)
    except ValueError:
        raise ValueError(f"{name}: {value!r} is not a UUID") from None


def instant(name: str, value: object) -> datetime:
    """The moment, if it is aware and within what the table holds."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name}: expected a datetime, got {type(value).__name__}")
    if value.utcoffset() is None:
        raise ValueError(f"{name}: must have a time zone, e.g. datetime.now(UTC)")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{name}: must lie between the years 1 and 9999 in UTC") from None


def duration(name: str, value: object, longest: timedelta = LONGEST_DELAY) -> timedelta:
    """The duration, if it is a timedelta that is not negative and not longer than `longest`."""
    if not isinstance(value, timedelta):
        raise TypeError(f"{name}: expected a timedelta, got {type(value).__name__}")
    if not timedelta(0) <= value <= longest:
        raise ValueError(f"{name}: must be between zero and {longest.days} days, got {value}")
    return value


def lease(name: str, value: object) -> timedelta:
    """The lease, if it is longer than zero and at most 365 days."""
    checked = duration(name, value, timedelta(days=365))
    if not checked:
        raise ValueError(f"{name}: must be longer than zero")
    return checked


def limit(max_running: int | None, rate: int | None, per: timedelta | None) -> None:
    """Refuses what bounds nothing: numbers below 1, a rate without its time or the other way round."""
    if max_running is not None:
        integer("max_running", max_running, 1, INT32[1])
    if (rate is None) != (per is None):
        raise ValueError("rate and per: give both or neither")
    if rate is not None:
        integer("rate", rate, 1, 100_000)
        lease("per", per)


def payload_size(payload: object, largest: int = LARGEST_PAYLOAD) -> int:
    """The size of the payload in bytes of UTF-8 JSON, or a few more, if it is a JSON object of plain JSON values, at
    most `largest` bytes, and 512 deep."""
    if not isinstance(payload, Mapping):
        raise TypeError(f"payload: expected a JSON object (a dict), got {type(payload).__name__}")
    size = _walk(payload)
    if size > largest:
        raise ValueError(f"payload: must be at most {largest} bytes of JSON, got {size}")
    return size


def json_text(payload: JsonObject) -> str:
    """The checked payload as compact JSON text, as it is sent."""
    return "{}" if not payload else _ENCODER.encode(payload)


def json_copy(payload: JsonObject) -> JsonObject:
    """The payload as the database would give it back: a copy, tuples as lists."""
    copy: JsonObject = json.loads(json_text(payload))
    return copy


def _as_dict(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


# Made once; a checked payload is bounded in depth, so nothing in it holds itself.
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_as_dict
)


def _walk(payload: Mapping[Any, Any]) -> int:
    """The payload's length as compact JSON; iterative, so that depth is judged by our limit and not the stack's."""
    size = 0
    todo: list[tuple[Any, str, int]] = [(payload, "payload", 1)]
    while todo:
        value, path, depth = todo.pop()
        kind = type(value)
        if kind is str:
            size += _text_size(path, value)
        elif value is None or kind is bool:
            size += 5
        elif kind is int:
            size += _int_size(path, value)
        elif kind is float:
            size += _float_size(path, value)
        elif isinstance(value, Mapping):
            _not_too_deep(path, depth)
            size += 2 + 2 * len(value)
            for name, item in value.items():
                if type(name) is not str:
                    raise TypeError(f"{path}: keys must be strings, got {type(name).__name__} {_brief(name)}")
                size += _text_size(f"{path}, a key", name)
                todo.append((item, f"{path}.{name}", depth + 1))
        elif kind is list or kind is tuple:
            _not_too_deep(path, depth)
            size += 2 + len(value)
            todo.extend((item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value))
        else:
            raise TypeError(f"{path}: {kind.__name__} is not a JSON value; convert it first")
    return size


def _brief(value: object) -> str:
    """The value, shortened; Python itself refuses to write integers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"one of {value.bit_length()} bits"
    return reprlib.repr(value)


def _text_size(path: str, value: str) -> int:
    if value.isascii() and value.isprintable():
        return len(value) + 2
    _storable(path, value)
    return len(value.encode()) + 2


def _int_size(path: str, value: int) -> int:
    if value.bit_length() > 13_000:
        raise ValueError(f"{path}: an integer of more than 3,900 digits is not supported")
    return value.bit_length() // 3 + 1


def _float_size(path: str, value: float) -> int:
    if not math.isfinite(value):
        raise ValueError(f"{path}: {value} is not a JSON number")
    return 24


def _not_too_deep(path: str, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"payload: nested deeper than {DEEPEST} levels, at {path[:80]}…")


def _storable(name: str, value: str) -> str:
    if "\0" in value:
        raise ValueError(f"{name}: must not contain the character NUL (\\x00), which Postgres cannot store")
    try:
        value.encode()
    except UnicodeEncodeError as e:
        raise ValueError(f"{name}: must not contain a lone surrogate (\\u{ord(value[e.start]):04x})") from None
    return value
