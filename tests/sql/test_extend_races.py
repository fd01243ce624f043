"""Extending leases while another session has one of the rows locked."""

from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[Any]
EXTEND = "select * from public.extend_leases(%s::uuid[], %s::int4[], '1 hour')"


@pytest.fixture
def held(database: str) -> list[tuple[Any, int]]:
    """The tokens of two running jobs."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute('select public.enqueue_jobs(jsonb \'[{"type": "t"}, {"type": "t"}]\')')
        return connection.execute("select id, attempts from public.claim_jobs(2, array['t'], '1 minute')").fetchall()


def extended(connection: Connection, held: list[tuple[Any, int]]) -> tuple[set[Any], set[Any]]:
    """The ids that are held, and those whose lease is the new one; an extension that waits is an error."""
    connection.execute("set lock_timeout = '1s'")
    ids, attempts = [id for id, _ in held], [attempt for _, attempt in held]
    answered = {id for (id,) in connection.execute(EXTEND, (ids, attempts))}
    longer = connection.execute("select id from public.marian_jobs where lease_until > now() + interval '50 minutes'")
    return answered, {id for (id,) in longer}


def test_a_row_that_is_being_completed_keeps_no_other_from_being_extended(
    database: str, held: list[tuple[Any, int]]
) -> None:
    (completing, attempt), (other, _) = held
    with psycopg.connect(database) as handler, psycopg.connect(database, autocommit=True) as keeper:
        handler.execute("select public.complete_job(%s, %s)", (completing, attempt))
        assert extended(keeper, held) == ({completing, other}, {other})
        handler.commit()
        assert extended(keeper, held) == ({other}, {other})


def test_a_row_whose_completion_was_rolled_back_is_extended_again(database: str, held: list[tuple[Any, int]]) -> None:
    (completing, attempt), (other, _) = held
    with psycopg.connect(database) as handler, psycopg.connect(database, autocommit=True) as keeper:
        handler.execute("select public.complete_job(%s, %s)", (completing, attempt))
        handler.rollback()
        assert extended(keeper, held) == ({completing, other}, {completing, other})


def test_a_token_of_another_attempt_is_not_held_though_its_row_is_locked(
    database: str, held: list[tuple[Any, int]]
) -> None:
    (completing, attempt), (other, _) = held
    with psycopg.connect(database) as handler, psycopg.connect(database, autocommit=True) as keeper:
        handler.execute("select public.complete_job(%s, %s)", (completing, attempt))
        assert extended(keeper, [(completing, attempt + 1), (other, 1)]) == ({other}, {other})
