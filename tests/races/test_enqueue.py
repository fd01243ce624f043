"""One live row per key, whoever comes at once: K01, K02, K31, and the deadlocks of batches."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.races.sessions import Meeting

ENQUEUE_MANY = """
select id from public.enqueue_jobs(jsonb_build_array(jsonb_build_object('type', 't', 'idempotency_key', %s::text)))
"""
ENQUEUE = "select id from public.enqueue_job('t', '{}', p_idempotency_key => %s)"


@contextmanager
def connected(dsn: str, *, autocommit: bool = True) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=autocommit) as connection:
        yield connection


def one(connection: psycopg.Connection[Any], text: str, *parameters: object) -> Any:
    row = connection.execute(text, parameters).fetchone()
    assert row is not None
    return row[0]


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def one_of(connections: list[psycopg.Connection[Any]], key: str, number: int) -> Any:
    return one(connections[number], ENQUEUE, key)


def test_twenty_at_once_get_one_id(database: str) -> None:
    with ThreadPoolExecutor(20) as pool:
        connections = list(pool.map(lambda _: psycopg.connect(database, autocommit=True), range(20)))
    for turn in range(20):
        ids = together(20, partial(one_of, connections, f"race {turn}"))
        assert len(set(ids)) == 1
    with connected(database) as connection:
        assert one(connection, "select count(*) from public.marian_jobs") == 20
    for connection in connections:
        connection.close()


enqueues = pytest.mark.parametrize("call", [ENQUEUE, ENQUEUE_MANY], ids=["enqueue_job", "enqueue_jobs"])
ends = pytest.mark.parametrize("end", ["commit", "rollback"])


@enqueues
@ends
def test_a_key_belongs_to_who_makes_its_job_first_unless_that_is_taken_back(met: Meeting, call: str, end: str) -> None:
    made = met.first.one(call, "k")
    waiting = met.second.start_and_wait(call, "k")
    met.first.end(end)
    ((kept,),) = waiting.result(2)
    assert (kept == made) is (end == "commit")
    met.second.commit()
    assert met.ask("select id from public.marian_jobs") == [(kept,)]


@enqueues
@ends
def test_an_enqueue_waits_for_the_death_of_the_keys_holder(met: Meeting, call: str, end: str) -> None:
    holder = met.queued("k")
    met.first.do("select public.cancel_job(%s)", holder)
    waiting = met.second.start_and_wait(call, "k")
    met.first.end(end)
    ((found,),) = waiting.result(2)
    assert (found == holder) is (end == "rollback")
    met.second.commit()
    assert met.ask("select id from public.marian_jobs where status <> 'dead'") == [(found,)]


@enqueues
def test_who_has_found_the_keys_holder_does_not_keep_it_alive(met: Meeting, call: str) -> None:
    holder = met.queued("k")
    assert met.first.one(call, "k") == holder
    assert met.second.do("select id from public.cancel_job(%s)", holder) == [(holder,)]
    met.second.commit()
    assert met.first.one(call, "k") != holder


@enqueues
@ends
def test_an_enqueue_waits_for_the_retry_of_the_keys_dead_job(met: Meeting, call: str, end: str) -> None:
    dead = met.dead("k")
    met.first.do("select public.retry_job(%s)", dead)
    waiting = met.second.start_and_wait(call, "k")
    met.first.end(end)
    assert (waiting.result(2) == [(dead,)]) is (end == "commit")
    met.second.commit()
    assert met.ask("select count(*) from public.marian_jobs where status <> 'dead'") == [(1,)]


@enqueues
@ends
def test_a_retry_waits_for_the_enqueue_of_its_key_and_is_refused_unless_that_is_taken_back(
    met: Meeting, call: str, end: str
) -> None:
    dead = met.dead("k")
    live = met.first.one(call, "k")
    waiting = met.second.start_and_wait("select id from public.retry_job(%s)", dead)
    met.first.end(end)
    if end == "rollback":
        assert waiting.result(2) == [(dead,)]
        return
    with pytest.raises(psycopg.Error, match=str(live)) as refusal:
        waiting.result(2)
    assert refusal.value.sqlstate == "MJ410"
    assert met.status(dead) == "dead"


@enqueues
@ends
def test_an_enqueue_waits_for_the_pruning_of_the_keys_finished_job(met: Meeting, call: str, end: str) -> None:
    done = met.queued("k", status="succeeded")
    assert met.first.one("select public.prune_jobs('0', null)") == 1
    waiting = met.second.start_and_wait(call, "k")
    met.first.end(end)
    assert (waiting.result(2) == [(done,)]) is (end == "rollback")


def test_a_holder_that_keeps_dying_never_leaves_a_caller_with_nothing(database: str) -> None:
    stop = threading.Event()

    def kill() -> None:
        with connected(database) as connection:
            while not stop.is_set():
                connection.execute(
                    "update public.marian_jobs set status = 'dead' where idempotency_key = 'k' and status <> 'dead'"
                )

    killer = threading.Thread(target=kill)
    killer.start()

    def enqueue(_: int) -> int:
        with connected(database) as connection:
            return sum(one(connection, ENQUEUE, "k") is not None for _ in range(200))

    try:
        assert together(8, enqueue) == [200] * 8
    finally:
        stop.set()
        killer.join()


def test_batches_with_the_same_keys_in_other_orders_do_not_deadlock(database: str) -> None:
    keys = [f"k{n}" for n in range(50)]

    def load(number: int) -> int:
        with connected(database) as connection:
            for turn in range(10):
                ordered = keys if number % 2 else keys[::-1]
                jobs = [{"type": "t", "idempotency_key": f"{turn}:{key}"} for key in ordered]
                rows = connection.execute("select id from public.enqueue_jobs(%s)", (Jsonb(jobs),)).fetchall()
                assert len(rows) == 50
        return number

    assert together(6, load) == list(range(6))
    with connected(database) as connection:
        assert one(connection, "select count(*) from public.marian_jobs") == 500


def test_a_job_from_a_long_transaction_is_due_when_it_was_enqueued(database: str) -> None:
    with connected(database, autocommit=False) as connection:
        connection.execute("select pg_sleep(1.0)")
        late = one(connection, "select clock_timestamp() - run_after from public.enqueue_job('t')")
        assert late.total_seconds() < 0.5


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_snapshot_too_old_for_an_answer_is_refused_as_such(database: str, level: str) -> None:
    with connected(database, autocommit=False) as old, connected(database) as other:
        old.execute(f"set transaction isolation level {level}")
        old.execute("select 1 from public.marian_jobs")
        other.execute(ENQUEUE, ("k",))
        with pytest.raises(psycopg.Error) as refusal:
            old.execute(ENQUEUE, ("k",))
        assert refusal.value.sqlstate == "MJ425"
    with connected(database, autocommit=False) as old:
        old.execute(f"set transaction isolation level {level}")
        assert one(old, ENQUEUE, "fresh")
        assert one(old, ENQUEUE, None)
        with pytest.raises(psycopg.Error) as refusal:
            old.execute("select * from public.claim_jobs(1)")
        assert refusal.value.sqlstate == "MJ425"
