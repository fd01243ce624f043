"""Row-level security and grants through SQL: the whole matrix, under both of Supabase's default privileges."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from tests.fix_postgres import Server
from tests.supabase.fix_rls import WHO, Who
from tests.supabase.rls_matrix import DONE, FUNCTIONS, READABLE, REFUSED, TABLES, VERBS, VIEWS, A, B, Function, Verb

ROLE = {"anon": "anon", "a": "authenticated", "b": "authenticated", "service": "service_role"}
SUBJECT = {"a": A, "b": B}
Project = tuple[Server, str]
Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def connection(project: Project) -> Iterator[Connection]:
    server, database = project
    with psycopg.connect(server.dsn(database=database)) as connection:
        yield connection
        connection.rollback()


def become(connection: Connection, who: Who) -> None:
    """What PostgREST does at the start of a request."""
    connection.execute(sql.SQL("set local role {}").format(sql.Identifier(ROLE[who])))
    claims = {"role": ROLE[who], "sub": SUBJECT.get(who)}
    connection.execute("select set_config('request.jwt.claims', %s, true)", [json.dumps(claims)])


def answer(connection: Connection, statement: str) -> int | str:
    try:
        if statement.startswith("copy"):
            return copied(connection, statement)
        cursor = connection.execute(statement.encode())
        return len(cursor.fetchall()) if cursor.description else DONE
    except psycopg.errors.InsufficientPrivilege:
        return REFUSED


def copied(connection: Connection, statement: str) -> int | str:
    with connection.cursor().copy(statement.encode()) as copy:
        return sum(1 for _ in copy.rows()) if "stdout" in statement else DONE


def call(function: Function) -> str:
    variadic = "variadic " if function.name == "marian_jobs_restrict" else ""
    arguments = ", ".join(f"{variadic}{name} => {literal(value)}" for name, value in function.arguments.items())
    return f"select * from public.{function.name}({arguments})"


def literal(value: Any) -> str:
    if isinstance(value, list) and not any(isinstance(item, dict) for item in value):
        return "'{" + ",".join(map(str, value)) + "}'"
    return (
        str(value) if isinstance(value, int) else "'" + (value if isinstance(value, str) else json.dumps(value)) + "'"
    )


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_a_verb_is_answered_as_the_matrix_says(connection: Connection, verb: Verb, who: Who) -> None:
    become(connection, who)

    assert getattr(verb, who) == answer(connection, verb.sql)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_a_function_is_answered_as_the_matrix_says(connection: Connection, function: Function, who: Who) -> None:
    become(connection, who)
    answered = answer(connection, call(function))

    assert getattr(function, who) == (REFUSED if answered == REFUSED else DONE)


def test_the_matrix_names_every_function_table_and_view_there_is(connection: Connection) -> None:
    ours = "select p.proname from pg_catalog.pg_proc p where p.pronamespace = 'public'::regnamespace"
    assert {f.name for f in FUNCTIONS} == {name for (name,) in connection.execute(ours)}

    relations = "select relname, relkind from pg_catalog.pg_class where relnamespace = 'public'::regnamespace"
    found = [(name, kind) for name, kind in connection.execute(relations) if kind not in ("i", "I")]
    assert {name for name, kind in found if kind in ("r", "p")} == TABLES
    assert {name for name, kind in found if kind in ("v", "m")} == VIEWS
    assert {kind for _, kind in found} <= {"r", "p", "v", "m"}


@pytest.mark.parametrize("role", ["anon", "authenticated"])
def test_users_hold_no_privilege_but_select(connection: Connection, role: str) -> None:
    """K60: also what a default of the project granted by name is gone."""
    functions = (
        "select p.oid::regprocedure::text from pg_catalog.pg_proc p where p.pronamespace = 'public'::regnamespace"
    )
    executable = f"{functions} and has_function_privilege(%s, p.oid, 'execute')"
    assert connection.execute(executable, [role]).fetchall() == []

    granted = """
        select distinct c.relname, a.privilege_type
          from pg_catalog.pg_class c cross join lateral aclexplode(c.relacl) a
         where c.relnamespace = 'public'::regnamespace and a.grantee in (0, %s::regrole)"""
    assert {(table, "SELECT") for table in READABLE} == set(connection.execute(granted, [role]))


def test_the_list_of_a_user_among_300_000_rows_asks_who_it_is_once(connection: Connection) -> None:
    """K63: and answers from the index in under 100 ms."""
    connection.execute(
        "insert into public.marian_jobs (user_id, type, created_at)"
        f" select case when n %% 100 = 0 then '{A}'::uuid end, 't', now() - n * interval '1 second'"
        " from generate_series(1, %s) n",
        [300_000],
    )
    become(connection, "a")
    listing = "select * from public.marian_jobs order by created_at desc limit 50"
    connection.execute(listing)
    row = connection.execute("explain (analyze, verbose, format json) " + listing).fetchone()
    assert row is not None
    plan = row[0][0]

    assert plan["Execution Time"] < 100
    asking = [node for node in nodes(plan["Plan"]) if "auth." in json.dumps(node.get("Output", ""))]
    asking = asking or [node for node in nodes(plan["Plan"]) if node.get("Parent Relationship") == "InitPlan"]
    assert [node["Actual Loops"] for node in asking] == [1]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)
