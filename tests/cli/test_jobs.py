"""Looking at jobs and moving them by hand."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.cli.conftest import Marian, answer, answers


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection on which every statement stands at once."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def enqueued(connection: psycopg.Connection[Any], type: str, key: str | None = None) -> str:
    row = connection.execute("select id from public.enqueue_job(%s, p_idempotency_key => %s)", (type, key)).fetchone()
    assert row is not None
    return str(row[0])


def dead(connection: psycopg.Connection[Any], type: str, key: str | None = None, error: str = "oops") -> str:
    made = enqueued(connection, type, key)
    claimed = "select public.fail_job(id, attempts, %s, null, true) from public.claim_job(array[%s])"
    connection.execute(claimed, (error, type))
    return made


def test_jobs_are_listed_newest_first_by_state_type_key_and_page(
    marian: Marian, database: str, connection: psycopg.Connection[Any]
) -> None:
    a, b, c = enqueued(connection, "a"), enqueued(connection, "b", "k"), dead(connection, "c")

    def ids(*options: str) -> list[str]:
        return [job["id"] for job in answers(marian("jobs", "--json", *options, dsn=database))]

    assert ids() == [c, b, a]
    assert ids("--status", "queued", "--limit", "1") == [b]
    assert ids("--type", "a") == [a]
    assert ids("--key", "k") == [b]
    assert ids("--before", c, "--limit", "1") == [b]
    assert ids("--user-id", str(uuid4())) == []


def test_a_job_is_shown_whole(marian: Marian, database: str, connection: psycopg.Connection[Any]) -> None:
    job_id = dead(connection, "c", error="first line\nsecond line")
    shown = answer(marian("show", job_id, "--json", dsn=database))
    assert len(shown) == 14
    assert (shown["id"], shown["status"], shown["error"]) == (job_id, "dead", "first line\nsecond line")
    assert "second line" in marian("show", job_id, dsn=database).stdout


def test_no_text_of_a_job_takes_hold_of_the_terminal(
    marian: Marian, database: str, connection: psycopg.Connection[Any]
) -> None:
    job_id = dead(connection, "[bold]x", error="\x1b[2J\x1b]0;title\x07 [/nothing]")
    for done in (marian("jobs", dsn=database), marian("show", job_id, dsn=database), marian("stats", dsn=database)):
        assert done.returncode == 0, done.stderr
        assert "[bold]x" in done.stdout
        assert not {"\x1b", "\x07"} & set(done.stdout)


def test_a_dead_job_is_queued_again_with_a_fresh_budget_and_a_live_one_is_not(
    marian: Marian, database: str, connection: psycopg.Connection[Any]
) -> None:
    job_id = dead(connection, "c")
    again = answer(marian("retry", job_id, "--json", dsn=database))
    refused = marian("retry", job_id, dsn=database)

    assert (again["status"], again["attempts"], again["max_attempts"]) == ("queued", 1, 4)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "not dead" in refused.stderr


def test_retry_is_refused_where_a_live_job_owns_the_key_and_names_it(
    marian: Marian, database: str, connection: psycopg.Connection[Any]
) -> None:
    gone, live = dead(connection, "c", "k"), enqueued(connection, "c", "k")
    refused = marian("retry", gone, dsn=database)
    assert refused.returncode == 1
    assert live in refused.stderr
    assert "Cancel or await" in refused.stderr


def test_cancel_ends_a_job_once(marian: Marian, database: str, connection: psycopg.Connection[Any]) -> None:
    job_id = enqueued(connection, "a")
    assert answer(marian("cancel", job_id, "--json", dsn=database))["status"] == "dead"
    assert marian("cancel", job_id, dsn=database).returncode == 1


def test_reclaim_takes_back_what_is_overdue(marian: Marian, database: str, connection: psycopg.Connection[Any]) -> None:
    job_id = enqueued(connection, "a")
    connection.execute("select public.claim_job(null, '1 millisecond')")
    [job] = answers(marian("reclaim", "--json", dsn=database))
    assert (job["id"], job["status"]) == (job_id, "retrying")
    assert marian("reclaim", dsn=database).stdout == "0 reclaimed\n"


def test_prune_goes_on_in_short_transactions_until_nothing_that_old_is_left(
    marian: Marian, database: str, connection: psycopg.Connection[Any]
) -> None:
    old = [dead(connection, "c") for _ in range(5)]
    connection.execute("update public.marian_jobs set updated_at = now() - interval '8 days'")
    young = dead(connection, "c")

    pruned = answer(marian("prune", "--dead-older", "7d", "--limit", "2", "--json", dsn=database))
    assert pruned == {"pruned": len(old)}
    assert [job["id"] for job in answers(marian("jobs", "--json", dsn=database))] == [young]


def test_prune_deletes_only_what_was_asked_for(marian: Marian, database: str) -> None:
    done = marian("prune", dsn=database)
    assert done.returncode == 2
    assert "--succeeded-older" in done.stderr


def test_stats_count_by_type_and_state(marian: Marian, database: str, connection: psycopg.Connection[Any]) -> None:
    for type in ("a", "a", "b"):
        enqueued(connection, type)
    counted = answers(marian("stats", "--json", dsn=database))
    assert [(line["type"], line["status"], line["count"]) for line in counted] == [
        ("a", "queued", 2),
        ("b", "queued", 1),
    ]
    assert all(line["oldest_due_age"] >= 0 for line in counted)


def test_a_job_that_is_not_there_is_said_to_be_missing(marian: Marian, database: str) -> None:
    for command in (["show"], ["cancel"], ["retry"], ["jobs", "--before"]):
        done = marian(*command, str(uuid4()), dsn=database)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
