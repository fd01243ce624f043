"""Every SQL function, called with hostile arguments: a documented SQLSTATE or an answer, and never half of one.

Names and types of the arguments come from the catalogue, so that a new function is called too.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.hostile import arguments, documented_codes, fuzzing
from tests.supabase.rls_matrix import FUNCTIONS

# Ours by their names in the matrix, which a test holds against the catalogue.
NAMES = sorted(function.name for function in FUNCTIONS)
SIGNATURE = """
select array(select format_type(t, null) from unnest(p.proargtypes) with ordinality a(t, n) order by n),
       p.pronargdefaults, p.provariadic <> 0
  from pg_proc p where p.proname = %s and p.pronamespace = 'public'::regnamespace
"""
ROWS = "select id::text, status, attempts, max_attempts, md5(j::text) from public.marian_jobs j"
CODES = documented_codes()

Row = tuple[str, int, int, str]


@pytest.fixture(scope="module")
def connection(filled: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(filled, autocommit=True, options="-c statement_timeout=5000") as connection:
        connection.execute("set role service_role")
        yield connection


@pytest.mark.parametrize("name", NAMES)
def test_a_function_answers_or_refuses_by_a_documented_code(connection: psycopg.Connection[Any], name: str) -> None:
    ((types, defaults, variadic),) = connection.execute(SIGNATURE, (name,)).fetchall()
    before = rows(connection)

    @fuzzing(25)
    @given(st.data())
    def call(data: st.DataObject) -> None:
        given = types[: len(types) - data.draw(st.integers(0, defaults), "defaults used")]
        values = [data.draw(arguments(type, connection.info.server_version), type) for type in given]
        places = ", ".join(f"%s::{type}" for type in given)
        text = f"select * from public.{name}({'variadic ' if variadic else ''}{places})"
        with connection.transaction(force_rollback=True):
            refused_by = attempt(connection, text, values)
            if refused_by is None:
                keeps_the_rules(before, rows(connection), name)
            else:
                assert refused_by in CODES
                assert rows(connection) == before

    call()
    assert rows(connection) == before


def attempt(connection: psycopg.Connection[Any], text: str, values: list[str | None]) -> str | None:
    """The SQLSTATE that the call was refused by, or None."""
    try:
        with connection.transaction():
            connection.execute(text.encode(), values).fetchall()
    except psycopg.Error as refusal:
        return refusal.sqlstate or repr(refusal)
    return None


def rows(connection: psycopg.Connection[Any]) -> dict[str, Row]:
    return {row[0]: row[1:] for row in connection.execute(ROWS).fetchall()}


def keeps_the_rules(before: dict[str, Row], after: dict[str, Row], name: str) -> None:
    """Only prune takes rows away; attempts and budgets only grow; nothing leaves `succeeded`."""
    lost = set(before) - set(after)
    assert name == "prune_jobs" or not lost
    for id in set(before) - lost:
        status, attempts, budget, _ = before[id]
        now_status, now_attempts, now_budget, _ = after[id]
        assert now_attempts - attempts in (0, 1)
        assert now_budget >= budget or name == "retry_job"
        assert (status == "succeeded") <= (now_status == "succeeded")
