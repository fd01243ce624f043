"""Hostile values for each type of argument that our SQL functions take, as texts that Postgres reads."""

import json
import os
import re
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

DOCUMENTED = Path(__file__).parent.parent.parent / "docs" / "errors.md"
TIMES = int(os.environ.get("MARIAN_FUZZ", "1"))

STATES = ["queued", "running", "retrying", "succeeded", "dead"]
IDS = {state: str(UUID(int=n + 1)) for n, state in enumerate(STATES)}
KEYS = {state: f"key of {state}" for state in STATES}
LONG = "x" * 10_000
# What PostgREST itself refuses: a body that is no JSON object, arguments that no function has.
API_CODES = {"PGRST102": 400, "PGRST202": 404, "42883": 404}


def fuzzing(examples: int) -> settings:
    """That many examples in the suite; MARIAN_FUZZ=100 makes a hundred times as many."""
    return settings(max_examples=examples * TIMES, deadline=None, suppress_health_check=list(HealthCheck))


def documented_codes() -> dict[str, int]:
    """The SQLSTATEs that docs/errors.md admits, each with its HTTP status."""
    return {code: int(status) for code, status in re.findall(r"^\| `(\w{5})` \| (\d+)", DOCUMENTED.read_text(), re.M)}


_TEXTS = [
    "",
    " ",
    "\t\n",
    "t",
    "limited",
    "paused",
    "x" * 129,
    LONG,
    "é" * 128,
    "'; --",
    "$$",
    "%s",
    "\\",
    "{}",
    "🦆",
    "\u202e",
]
_INTEGERS = ["0", "1", "-1", "2", "7", "1000", "1001", "2147483647", "-2147483648"]
_INTERVALS = [
    "0", "1 microsecond", "1 second", "-1 second", "365 days", "366 days", "1 mon -31 days", "2147483647 days",
    "-2147483648 days", "178000000 years", "-178000000 years",
]  # fmt: skip
_MOMENTS = [
    "2026-01-01 00:00:00+00", "infinity", "-infinity", "0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00",
    "10000-01-01 00:00:00+00", "4714-11-24 00:00:00+00 BC", "294276-12-31 23:59:59+00",
]  # fmt: skip
_UUIDS = [*IDS.values(), str(UUID(int=0)), str(UUID(int=2**128 - 1)), "deadbeef-0000-4000-8000-000000000000"]

_SCALARS = {
    "text": st.sampled_from([*_TEXTS, *KEYS.values()]) | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    "integer": st.sampled_from(_INTEGERS) | st.integers(-(2**31), 2**31 - 1).map(str),
    "boolean": st.sampled_from(["true", "false"]),
    "uuid": st.sampled_from(_UUIDS) | st.uuids().map(str),
    "interval": st.sampled_from(_INTERVALS),
    "timestamp with time zone": st.sampled_from(_MOMENTS),
}

_ANY_JSON = st.recursive(
    st.sampled_from(
        [None, True, 0, -1, 1.5, 1e300, 10**40, "", "t", " ", "\0", "\ud800", LONG, *_MOMENTS, *_INTERVALS, *_UUIDS]
    )
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "type", "id"]), inner, max_size=2)
    ),
    max_leaves=5,
)
_LIKELY = {
    "type": st.sampled_from(["t", "limited", "paused"]),
    "payload": st.just({"a": 1}),
    "idempotency_key": st.sampled_from([*KEYS.values(), "fresh"]),
    "priority": st.integers(-(2**31), 2**31 - 1),
    "max_attempts": st.integers(1, 2**31 - 1),
    "run_after": st.sampled_from(_MOMENTS),
    "delay": st.sampled_from(_INTERVALS),
    "id": st.sampled_from(_UUIDS),
    "user_id": st.none() | st.sampled_from(_UUIDS),
}
_HOSTILE = {name: likely | _ANY_JSON for name, likely in [*_LIKELY.items(), ("n", _ANY_JSON), ("\u202e", _ANY_JSON)]}
_LIKELY_ELEMENT = st.fixed_dictionaries(
    {"type": _LIKELY["type"]}, optional={name: likely for name, likely in _LIKELY.items() if name != "type"}
)
_ELEMENT = _LIKELY_ELEMENT | st.fixed_dictionaries({}, optional=_HOSTILE)
json_scalars = _ANY_JSON
json_values = _ANY_JSON | st.lists(_ELEMENT, max_size=4) | st.lists(_ELEMENT | _ANY_JSON, max_size=4)


def infinite_intervals(version: int) -> list[str]:
    """Intervals that have no end, where the server has them."""
    return ["infinity", "-infinity"] if version >= 170000 else []


def arguments(type: str, version: int) -> st.SearchStrategy[str | None]:
    """Texts (None: null) that the server reads as values of a type."""
    if type == "jsonb":
        return st.none() | json_values.map(json.dumps)
    if type == "regprocedure[]":  # what it is for is to change grants: there is nothing hostile that it should survive
        return st.just("{}")
    if type.endswith("[]"):
        return _arrays(scalars(type[:-2], version))
    return st.none() | scalars(type, version)


def scalars(type: str, version: int) -> st.SearchStrategy[str]:
    """Values of a type that is no array; an unknown type is a gap in this file."""
    endless = infinite_intervals(version) if type == "interval" else []
    return _SCALARS[type] | st.sampled_from(endless) if endless else _SCALARS[type]


def _arrays(elements: st.SearchStrategy[str]) -> st.SearchStrategy[str | None]:
    items = (elements | st.none()).map(_quoted)
    flat = st.lists(items, max_size=4)
    return (
        st.none()
        | flat.map(lambda e: f"{{{','.join(e)}}}")
        | st.lists(items, min_size=2, max_size=2).map(lambda e: f"{{{{{e[0]}}},{{{e[1]}}}}}")
        | st.lists(items, min_size=2, max_size=2).map(lambda e: f"[-3:-2]={{{e[0]},{e[1]}}}")
        | items.map(lambda e: f"{{{','.join([e] * 1500)}}}")
    )


def _quoted(element: Any) -> str:
    if element is None:
        return "NULL"
    escaped = element.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
