"""The Python API with hostile values: an answer, or a `ValueError`, `TypeError` or `MarianError` naming the argument.

Over memory and Postgres: what is refused is refused before anything is sent, so both keep as many jobs as before.
"""

import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marian_jobs import Backoff, JobFilter, MarianError, MemoryStore, PostgresStore, Queue, Store, Worker, new_job
from marian_jobs.cron import Schedule
from marian_jobs.store import Failure
from tests.fuzz.hostile import LONG, fuzzing

NOBODY = UUID(int=0)
HALF_A_DAY = timedelta(hours=12)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)

texts = st.sampled_from(["", " ", "t", "k", "a\0b", "\ud800", "🦆", "x" * 129, "x" * 513, LONG, "\u00a0"]) | st.text(
    max_size=5
)
numbers = st.sampled_from(
    [0, -1, 1, 3, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 1.5, math.nan, math.inf, True, Decimal(1)]
) | st.just(5000).map(lambda digits: 10**digits)
moments = st.sampled_from(
    [
        end.replace(tzinfo=zone)
        for end in (FIRST, LAST)
        for zone in (None, UTC, timezone(HALF_A_DAY), timezone(-HALF_A_DAY))
    ]
) | st.datetimes(timezones=st.none() | st.just(UTC))
durations = st.sampled_from(
    [timedelta.max, timedelta.min, timedelta(0), timedelta(-1), timedelta(microseconds=1), timedelta(days=36501)]
)
anything = st.one_of(
    st.none(), texts, numbers, moments, durations, st.binary(max_size=3), st.just(object()), st.just({1}), st.just([]),
    st.just({}), st.just(uuid4()), st.just(NOBODY),
)  # fmt: skip
payloads = st.dictionaries(
    texts | numbers, st.recursive(anything, lambda inner: st.lists(inner, max_size=2), max_leaves=4), max_size=2
)
expressions = st.sampled_from(
    ["* * * * *", "0 3 * * *", "61 * * * *", "0 0 31 2 *", "@daily", "*/0 * * * *", "9" * 5000, "* * * * * * *"]
)
zones = st.sampled_from(["UTC", "../etc/passwd", "/", "Nowhere", ".", "Asia/Tokyo"])

NEW = {
    "payload": payloads | anything, "user_id": anything, "key": texts | anything, "priority": numbers | anything,
    "max_attempts": numbers | anything, "run_after": moments | anything, "delay": durations | anything,
}  # fmt: skip
OPTIONS: dict[str, tuple[Callable[..., object], dict[str, st.SearchStrategy[Any]]]] = {
    "Worker": (lambda **o: Worker(MemoryStore(), **o), dict.fromkeys(
        ["concurrency", "lease", "poll", "grace", "most_abandoned"], anything)),
    "handler": (lambda type="t", **o: Worker(MemoryStore()).handler(type, **o)(handle), dict.fromkeys(
        ["type", "timeout", "backoff", "limit", "isolation", "memory_limit"], anything)),
    "Schedule": (lambda expression="* * * * *", type="t", **o: Schedule(expression, type, **o), {
        "expression": expressions | anything, "type": texts | anything, "tz": zones | anything,
        **dict.fromkeys(["name", "payload", "user_id", "priority", "max_attempts", "look_back"], anything)}),
    "Backoff": (Backoff, dict.fromkeys(["base", "factor", "max", "jitter"], anything)),
    "new_job": (lambda type="t", **o: new_job(type, **o), {
        **NEW, "type": texts | anything, "largest_payload": st.just(10)}),
}  # fmt: skip


def handle(job: Any) -> None: ...


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> Any:
    store: Store = MemoryStore() if request.param == "memory" else PostgresStore(request.getfixturevalue("database"))
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("what", OPTIONS)
def test_options_are_taken_or_refused_by_name(what: str) -> None:
    make, options = OPTIONS[what]

    @fuzzing(100)
    @given(st.fixed_dictionaries({}, optional=options))
    def call(given: dict[str, Any]) -> None:
        try:
            make(**given)
        except (ValueError, TypeError) as refusal:
            names_one_of(refusal, [*given, "handler of", "rate"])

    call()


def names_one_of(refusal: Exception, names: list[str]) -> None:
    """The message says which argument, and is not Python's own about something deeper."""
    assert any(name in str(refusal) for name in names), repr(refusal)
    assert not isinstance(refusal, UnicodeError)


CALLS: dict[str, tuple[Callable[..., Callable[[Queue], Awaitable[object]]], dict[str, st.SearchStrategy[Any]]]] = {
    "enqueue": (lambda type="t", **o: lambda q: q.enqueue(type, **o), NEW | {"type": texts | anything}),
    "get": (lambda job_id=None: lambda q: q.get(job_id), {"job_id": anything}),
    "cancel": (lambda job_id=None: lambda q: q.cancel(job_id), {"job_id": anything}),
    "retry": (lambda job_id=NOBODY, **o: lambda q: q.retry(job_id, **o), {
        "job_id": anything, "max_attempts": anything}),
    "find": (lambda **o: lambda q: q.find(JobFilter(**o)), {
        "status": texts, "type": texts, "user_id": st.uuids(), "idempotency_key": texts, "limit": numbers | anything}),
    "prune": (lambda succeeded_older=None, dead_older=None, **o: lambda q: q.prune(
        succeeded_older=succeeded_older, dead_older=dead_older, **o), {
        "succeeded_older": durations | anything, "dead_older": durations | anything, "limit": numbers}),
    "pause": (lambda type="t": lambda q: q.pause(type), {"type": texts | anything}),
    "resume": (lambda type="t": lambda q: q.resume(type), {"type": texts | anything}),
    "limit": (lambda type="t", **o: lambda q: q.limit(type, **o), {
        "type": texts | anything, "max_running": numbers, "rate": numbers, "per": durations | anything}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_of_the_queue_is_answered_or_refused_by_name(store: Store, name: str) -> None:
    make, arguments = CALLS[name]
    queue = Queue(store)
    examples: list[dict[str, Any]] = []

    @fuzzing(60)
    @given(st.fixed_dictionaries({}, optional=arguments))
    def collect(chosen: dict[str, Any]) -> None:
        examples.append(chosen)

    collect()
    for chosen in examples:
        before = sum(stat.count for stat in await queue.stats())
        try:
            await make(**chosen)(queue)
        except (ValueError, TypeError, MarianError) as refusal:
            names_one_of(refusal, [*chosen, "id", "argument", "such user"])
            assert sum(stat.count for stat in await queue.stats()) == before


@pytest.mark.parametrize("error", ["a\0b", "\ud800", "x" * 2_000_000, "\0" * 9000, "", "🦆" * 9000, "\x1b[31m", "%s{}"])
async def test_an_error_of_any_text_is_kept_readable_and_counts_once_when_sent_again(store: Store, error: str) -> None:
    await store.enqueue([new_job("t")])
    (job,) = await store.claim(1, None, timedelta(seconds=30))
    (failed,) = await store.fail([Failure(*job.held, error)])
    assert failed.error is not None
    assert len(failed.error) <= 8192
    assert "\0" not in failed.error
    failed.error.encode()
    assert await store.fail([Failure(*job.held, error)]) == [failed]
