"""Claims begin where the last ones ended, and nothing is stranded behind them."""

from datetime import timedelta

import psycopg
import pytest

from marian_jobs import PostgresStore, Queue, new_job
from marian_jobs.worker.frontier import BEHIND, Frontier

LEASE = timedelta(seconds=30)


@pytest.fixture
async def store(database: str) -> object:
    async with PostgresStore(database) as store:
        yield store


async def test_a_type_and_priority_has_a_floor_once_a_few_claims_have_ended_in_it(store: PostgresStore) -> None:
    await store.enqueue([new_job("t", {"i": i}, priority=i % 2) for i in range(20)])
    frontier = Frontier()
    claimed = []
    for _ in range(BEHIND):
        assert frontier.floors() == {}
        jobs = await store.claim(2, ["t"], LEASE)
        claimed.append(jobs)
        frontier.note(jobs)
    last = claimed[0][-1]
    assert frontier.floors() == {("t", 1): (last.run_after, last.created_at)}
    frontier.forget()
    assert frontier.floors() == {}


async def test_what_lies_below_a_floor_waits_for_a_claim_without_floors(store: PostgresStore) -> None:
    [first] = await store.enqueue([new_job("t")])
    late = new_job("t", run_after=first.run_after - timedelta(hours=1))
    other = new_job("u", run_after=first.run_after - timedelta(hours=1))
    better = new_job("t", priority=1, run_after=first.run_after - timedelta(hours=1))
    worse = new_job("t", priority=-1)
    await store.enqueue([late, other, better, worse])
    floors = {("t", 0): (first.run_after, first.created_at), ("t", -7): (first.run_after, first.created_at)}

    bounded = await store.claim(10, ["t", "u"], LEASE, None, floors)
    assert [job.id for job in bounded] == [better.id, other.id, first.id, worse.id]
    assert [job.id for job in await store.claim(10, ["t", "u"], LEASE)] == [late.id]


async def test_rows_not_due_above_below_and_at_a_floor_are_passed(store: PostgresStore) -> None:
    hour = timedelta(hours=1)
    [due] = await store.enqueue([new_job("t", priority=5)])
    await store.enqueue([new_job("t", priority=p, delay=hour) for p in (9, 6, 5, 4)])
    [low] = await store.enqueue([new_job("t", priority=3)])
    floors = {("t", p): (due.run_after, due.created_at) for p in (8, 6, 5, 4)}
    assert [job.id for job in await store.claim(10, ["t"], LEASE, None, floors)] == [due.id, low.id]


async def test_under_an_old_snapshot_a_claim_with_floors_does_not_walk_over_what_was_claimed(
    store: PostgresStore, database: str
) -> None:
    queue = Queue(store)
    await queue.enqueue_stream(new_job("t", {"i": i}) for i in range(20_000))
    frontier = Frontier()
    with psycopg.connect(database) as old, psycopg.connect(database, autocommit=True) as reader:
        old.execute("set transaction isolation level repeatable read")
        old.execute("select 1 from public.marian_jobs limit 1")
        for _ in range(18):
            jobs = await store.claim(1000, ["t"], LEASE)
            frontier.note(jobs)
            await store.complete([job.held for job in jobs])
        due, made = frontier.floors()["t", 0]
        reader.execute("set enable_seqscan = off")
        plain = _buffers(reader, "select * from public.marian_jobs_take(1, array['t'], '30 s')")
        bounded = _buffers(
            reader,
            "select * from public.marian_jobs_take(1, array['t'], '30 s', null,"
            " array['t'], array[0], array[%s], array[%s])",
            due,
            made,
        )
    assert bounded * 3 < plain


def _buffers(connection: psycopg.Connection[tuple[object, ...]], statement: str, *values: object) -> int:
    """Pages touched by a statement, once its session has planned it."""
    for _ in range(2):
        row = connection.execute(
            f"explain (analyze, buffers, format json) {statement}", values, binary=False
        ).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]  # type: ignore[index]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
