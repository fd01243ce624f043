"""Each slot once: workers killed at random, deploys that overlap, outages, nights when clocks change."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from marian_jobs import PostgresStore
from marian_jobs.cron import Schedule, slot_of
from marian_jobs.worker.scheduler import Scheduler
from tests.worker.crew import Crew
from tests.worker.crew_programs import scheduled
from tests.worker.fleet import wait_for
from tests.worker.test_scheduler import made

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
SPEED = 5
LEDGER = """
create table slot_log (id bigint generated always as identity, slot timestamptz, pid int);
create table ready_log (pid int, at timestamptz)
"""


@pytest.fixture
def ledger(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(LEDGER)
        yield connection


@pytest.fixture
def crew(database: str, ledger: psycopg.Connection[Any]) -> Iterator[Crew]:
    crew = Crew(scheduled, database, ZERO, time.time(), SPEED)
    yield crew
    crew.stop()


def births(ledger: psycopg.Connection[Any], pids: list[int]) -> dict[int, datetime]:
    """The moment, by the moved clock, of each process's first turn; those that have had none are missing."""
    return dict(ledger.execute("select pid, max(at) from ready_log where pid = any (%s) group by 1", [pids]).fetchall())


def up_to(ledger: psycopg.Connection[Any], first: datetime) -> datetime:
    """The slot up to which, from the first on, all have jobs."""
    keys = ledger.execute("select idempotency_key from public.marian_jobs").fetchall()
    slots = {slot_of(row[0]) for row in keys}
    while first in slots:
        first += SECOND
    return first - SECOND


def test_five_workers_killed_at_random_run_each_of_fifty_slots_once(
    crew: Crew, ledger: psycopg.Connection[Any]
) -> None:
    chance = random.Random(5)
    crew.start(5)
    wait_for(lambda: len(births(ledger, crew.pids)) == 5, 30, "five workers have begun")
    first = max(births(ledger, crew.pids).values()).replace(microsecond=0) + SECOND
    last = first + 49 * SECOND
    killed = 0

    def safe() -> list[int]:
        """The workers that will miss nothing of what is not made yet: one of them must outlive the others."""
        reached = up_to(ledger, first)
        return [pid for pid, born in births(ledger, crew.pids).items() if born < reached]

    end = time.monotonic() + 60
    while up_to(ledger, first) < last:
        assert time.monotonic() < end, f"not beyond {up_to(ledger, first)}"
        if survivors := safe():
            survivor = chance.choice(survivors)
            doomed = set(chance.sample(crew.pids, chance.randrange(1, 5))) - {survivor}
            crew.kill(doomed)
            crew.start(len(doomed))
            killed += len(doomed)
        time.sleep(chance.uniform(0.1, 0.5))

    def ran() -> list[datetime]:
        rows = ledger.execute("select slot from slot_log where slot between %s and %s order by 1", (first, last))
        return [row[0] for row in rows.fetchall()]

    wait_for(lambda: len(set(ran())) == 50, 30, "all have run")
    assert ran() == [first + n * SECOND for n in range(50)]
    assert killed >= 5


@pytest.fixture
async def stores(database: str) -> AsyncIterator[list[PostgresStore]]:
    stores = [PostgresStore(database) for _ in range(5)]
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


async def let_by(fleet: list[Scheduler], start: datetime, end: datetime, step: timedelta) -> None:
    """Lets time go by for all at once, each a little later than the others."""
    while start <= end:
        await asyncio.gather(*(scheduler.turn(start + n * step / 10) for n, scheduler in enumerate(fleet)))
        start += step


async def test_a_deploy_with_a_changed_expression_makes_the_slots_of_both_once(stores: list[PostgresStore]) -> None:
    old, new = (Schedule(f"*/{n} * * * * *", "t", name="n") for n in (10, 15))
    before, after = [Scheduler(s, [old]) for s in stores[:2]], [Scheduler(s, [new]) for s in stores[2:]]
    await let_by(before, ZERO, ZERO + 59 * SECOND, SECOND)
    await let_by([*before, *after], ZERO + 60 * SECOND, ZERO + 119 * SECOND, SECOND)
    await let_by(after, ZERO + 120 * SECOND, ZERO + 180 * SECOND, SECOND)
    alone, both, then = [0, 10, 20, 30, 40, 50], [60, 70, 75, 80, 90, 100, 105, 110], [120, 135, 150, 165, 180]
    assert await made(stores[0]) == [ZERO + n * SECOND for n in [*alone, *both, *then]]


async def test_of_an_outage_the_latest_slot_is_made_up_once_by_all_who_come_back(stores: list[PostgresStore]) -> None:
    hourly = Schedule("0 * * * *", "t", look_back=3 * HOUR)
    await Scheduler(stores[0], [hourly]).turn(ZERO)
    back = ZERO + 9 * HOUR + timedelta(minutes=30)
    for _ in range(2):  # and once more, when they are restarted at once
        await asyncio.gather(*(Scheduler(store, [hourly]).turn(back) for store in stores))
    assert await made(stores[0]) == [ZERO, ZERO + 9 * HOUR]


async def test_and_none_that_lies_further_back(stores: list[PostgresStore]) -> None:
    daily = Schedule("0 0 * * *", "t", look_back=2 * HOUR)
    await asyncio.gather(*(Scheduler(store, [daily]).turn(ZERO + 3 * HOUR) for store in stores))
    assert await made(stores[0]) == []


@pytest.mark.parametrize(
    ("night", "slot"),
    [
        (datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),  # has 02:30 twice
        (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)),  # skips it
    ],
)
async def test_a_night_when_clocks_change_runs_once(
    stores: list[PostgresStore], night: datetime, slot: datetime
) -> None:
    nightly = Schedule("30 2 * * *", "t", tz="Europe/Berlin", look_back=timedelta(minutes=10))
    fleet = [Scheduler(store, [nightly]) for store in stores]
    await let_by(fleet, night - HOUR, night + 6 * HOUR, timedelta(minutes=7))
    assert await made(stores[0]) == [slot]
