"""Input is refused before anything is sent, naming the place: K05, K20, K30, K32, K40, K42."""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marian_jobs import MemoryStore, Queue, checks, new_job

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


def deep(levels: int) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    for _ in range(levels - 1):
        payload = {"a": payload}
    return payload


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.just("a") | st.just("ü"), JSON))
def test_any_json_object_is_taken_as_it_is(payload: dict[str, Any]) -> None:
    assert json.loads(checks.json_text(new_job("t", payload).payload)) == payload


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({"a": ["b", "x\0"]}, r"payload\.a\[1\].*NUL"),
        ({"a": {"x\0": 1}}, r"payload\.a, a key.*NUL"),
        ({"a": "\ud800"}, r"payload\.a.*surrogate"),
        ({"a": {"b": math.nan}}, r"payload\.a\.b.*nan"),
        ({"a": math.inf}, r"payload\.a.*inf"),
        ({"a": [-math.inf]}, r"payload\.a\[0\].*-inf"),
        (deep(513), "deeper than 512"),
        ({"a": "x" * 1_048_576}, "at most 1048576 bytes"),
        ({"a": 10**5000}, r"payload\.a.*digits"),
    ],
)
def test_a_value_that_is_no_plain_json_is_refused_by_its_path(payload: dict[str, Any], where: str) -> None:
    with pytest.raises(ValueError, match=where):
        new_job("t", payload)


@pytest.mark.parametrize("value", [datetime.now(UTC), uuid4(), Decimal(1), {1}, b"x", object(), 1j])
def test_a_value_of_another_type_is_refused_by_its_path(value: object) -> None:
    with pytest.raises(TypeError, match=r"payload\.a\[0\]"):
        new_job("t", {"a": [value]})


@pytest.mark.parametrize("payload", [[1], "text", 1, {1: 2}, {"a": {2: 3}}])
def test_a_payload_is_an_object_with_text_keys(payload: Any) -> None:
    with pytest.raises(TypeError, match="payload"):
        new_job("t", payload)


def test_the_deepest_payload_allowed_passes() -> None:
    assert checks.json_copy(new_job("t", deep(512)).payload) == deep(512)


@pytest.mark.parametrize("key", ["a" * 3000, "".join(map(chr, range(300, 3300))), "", "  ", "\u00a0", "a\0b", "\udfff"])
def test_a_key_is_judged_by_its_characters(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        new_job("t", {}, key=key)


@pytest.mark.parametrize("type", ["", "   ", "x" * 129, "a\0", "\ud800"])
def test_a_type_is_judged_by_its_characters(type: str) -> None:
    with pytest.raises(ValueError, match="type"):
        new_job(type, {})


@pytest.mark.parametrize("name", ["priority", "max_attempts"])
@pytest.mark.parametrize("value", [0.5, "5", True, None, 1.0])
def test_a_number_is_an_integer_and_nothing_like_one(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=name):
        new_job("t", {}, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", 2**31),
        ("priority", -(2**31) - 1),
        ("max_attempts", 0),
        ("max_attempts", -1),
        ("max_attempts", 2**31),
    ],
)
def test_a_number_stays_in_its_range(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        new_job("t", {}, **{name: value})  # type: ignore[arg-type]


def test_a_naive_moment_is_refused() -> None:
    with pytest.raises(ValueError, match="run_after"):
        new_job("t", {}, run_after=datetime(2030, 1, 1))  # noqa: DTZ001


def test_the_hour_that_comes_twice_is_two_moments() -> None:
    night = datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"))
    first, second = (new_job("t", {}, run_after=night.replace(fold=fold)).run_after for fold in (0, 1))
    assert first is not None
    assert second is not None
    assert second - first == timedelta(seconds=3600)


def test_one_instant_is_equal_in_every_zone() -> None:
    instant = datetime(2030, 6, 1, 12, tzinfo=UTC)
    moments = {
        new_job("t", {}, run_after=instant.astimezone(ZoneInfo(z))).run_after
        for z in ("America/New_York", "Asia/Tokyo", "UTC")
    }
    assert moments == {instant}


@pytest.mark.parametrize(
    "moment",
    [datetime.max.replace(tzinfo=ZoneInfo("America/New_York")), datetime.min.replace(tzinfo=ZoneInfo("Asia/Tokyo"))],
)
def test_a_moment_outside_the_calendar_is_refused(moment: datetime) -> None:
    with pytest.raises(ValueError, match="run_after"):
        new_job("t", {}, run_after=moment)


def test_due_at_and_due_in_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="delay"):
        new_job("t", {}, run_after=datetime.now(UTC), delay=timedelta(1))
    with pytest.raises(ValueError, match="delay"):
        new_job("t", {}, delay=timedelta(-1))


@dataclass
class Counting(MemoryStore):
    sent: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    async def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        self.sent += 1
        return await super().enqueue(*args, **kwargs)


async def test_nothing_is_sent_of_a_refused_call() -> None:
    store = Counting()
    with pytest.raises(ValueError, match="NUL"):
        await Queue(store).enqueue("t", {"a": "\0"})
    with pytest.raises(TypeError):
        await Queue(store).enqueue("t", [1])  # type: ignore[arg-type]
    assert store.sent == 0
