"""SQL makes the jobs of schedules exactly as Python does, so that both may make them side by side."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from marian_jobs import PostgresStore
from marian_jobs.cron import Schedule
from marian_jobs.worker.scheduler import Scheduler

NAME = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=128).filter(str.strip)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SLOT = st.integers(0, 253402300799).map(lambda seconds: EPOCH + timedelta(seconds=seconds))
ENQUEUE_SLOT = "select * from public.enqueue_slot(p_name => %s, p_type => %s, p_slot => %s)"
PARTS = ("id", "idempotency_key", "type", "payload", "user_id", "priority", "max_attempts", "run_after")


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True, row_factory=psycopg.rows.dict_row) as connection:
        yield connection


def one(connection: psycopg.Connection[Any], text: str, *parameters: object) -> Any:
    (row,) = connection.execute(text, parameters).fetchall()
    return row


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(name=NAME, slot=SLOT)
def test_any_slot_has_the_key_and_the_id_that_python_gives_it(
    connection: psycopg.Connection[Any], name: str, slot: datetime
) -> None:
    job = Schedule("* * * * *", "t", name=name).job(slot)
    row = one(connection, ENQUEUE_SLOT, name, "t", slot)
    assert {part: row[part] for part in PARTS} == {part: getattr(job, part) for part in PARTS}


def test_the_job_has_all_that_is_asked_for(connection: psycopg.Connection[Any]) -> None:
    slot = datetime(2026, 5, 1, 18, tzinfo=UTC)
    schedule = Schedule("0 3 * * *", "report", tz="Asia/Tokyo", name="n", payload={"a": 1}, priority=3, max_attempts=7)
    row = one(connection, "select * from public.enqueue_slot('n', 'report', %s, %s, null, 3, 7)", slot, Jsonb({"a": 1}))
    assert {part: row[part] for part in PARTS} == {part: getattr(schedule.job(slot), part) for part in PARTS}


def test_a_slot_that_is_not_named_is_the_present_minute_whatever_zone_the_session_is_in(
    connection: psycopg.Connection[Any],
) -> None:
    for zone in ("Asia/Kathmandu", "America/St_Johns", "UTC"):
        connection.execute("select set_config('timezone', %s, false)", [zone])
        with connection.transaction():
            row = one(connection, "select * from public.enqueue_slot('n', 't')")
            now = one(connection, "select now()")["now"].astimezone(UTC)
        assert row["run_after"] == now.replace(second=0, microsecond=0)
        assert row["idempotency_key"] == f"schedule:n:{now:%Y-%m-%dT%H:%M}:00Z"


def test_python_and_sql_side_by_side_make_each_slot_once(database: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = [start + timedelta(seconds=n) for n in range(30)]

    def by_sql(_: int) -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            for moment in moments:
                connection.execute(ENQUEUE_SLOT, ["n", "t", moment])

    def by_python(_: int) -> None:
        async def make() -> None:
            async with PostgresStore(database) as store:
                scheduler = Scheduler(store, [Schedule("* * * * * *", "t", name="n")])
                for moment in moments:
                    await scheduler.turn(moment)

        asyncio.run(make())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: (by_sql, by_python)[n % 2](n), range(4)))
    with psycopg.connect(database) as connection:
        rows = connection.execute("select run_after from public.marian_jobs order by 1").fetchall()
    assert [row[0] for row in rows] == moments


def test_a_slot_whose_job_is_dead_is_not_made_again(connection: psycopg.Connection[Any]) -> None:
    slot = datetime(2026, 1, 1, tzinfo=UTC)
    first = one(connection, ENQUEUE_SLOT, "n", "t", slot)
    connection.execute("select public.cancel_job(%s)", [first["id"]])
    again = one(connection, ENQUEUE_SLOT, "n", "t", slot)
    assert (again["id"], again["status"]) == (first["id"], "dead")
    assert one(connection, "select count(*) as n from public.marian_jobs")["n"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("null, 't'", "p_name must have 1 to 128 characters"),
        ("E' \t', 't'", "p_name must have 1 to 128 characters"),
        ("repeat('x', 129), 't'", "p_name must have 1 to 128 characters"),
        ("'n', 't', '2026-01-01 00:00:00.5+00'", "p_slot must be a whole second"),
        ("'n', 't', 'infinity'", "p_slot must lie between"),
        ("'n', 't', '1969-12-31 23:59:59+00'", "p_slot must lie between"),
        ("'n', 't', '10000-01-01 00:00:00+00'", "p_slot must lie between"),
    ],
)
def test_what_is_no_slot_is_refused_and_makes_nothing(
    connection: psycopg.Connection[Any], arguments: str, message: str
) -> None:
    with pytest.raises(psycopg.Error, match=message) as refused:
        connection.execute(f"select public.enqueue_slot({arguments})")
    assert refused.value.sqlstate == "MJ400"
    assert one(connection, "select count(*) as n from public.marian_jobs")["n"] == 0


def test_a_slot_made_for_another_type_or_owner_is_told_and_stands(connection: psycopg.Connection[Any]) -> None:
    slot = datetime(2026, 1, 1, tzinfo=UTC)
    one(connection, ENQUEUE_SLOT, "n", "t", slot)
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(ENQUEUE_SLOT, ["n", "other", slot])
    assert refused.value.sqlstate == "MJ409"
    assert one(connection, "select type from public.marian_jobs")["type"] == "t"
