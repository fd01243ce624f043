"""Planted in the schema, and found: versions, functions, constraints, indexes, grants, policies."""

import psycopg
import pytest
from psycopg import sql

from marian_jobs.doctor import Severity, examine_database
from marian_jobs.migrations import available, migrate
from tests.doctor.conftest import Connection, faults, not_run, said
from tests.fix_postgres import Server

NEWEST = available()[-1]


def ask(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_a_migration_that_is_not_applied_is_named(bare_database: str) -> None:
    migrate(bare_database)
    ask(bare_database, f"delete from supabase_migrations.schema_migrations where version = '{NEWEST.version}'")
    [finding] = said(bare_database, "schema-version")
    assert finding.figures == {"missing": [f"{NEWEST.version}_{NEWEST.name}"]}
    assert "marian migrate" in finding.advice


def test_a_database_newer_than_this_client_is_found_and_its_functions_are_left_alone(bare_database: str) -> None:
    migrate(bare_database)
    ask(
        bare_database,
        "insert into supabase_migrations.schema_migrations (version, name)"
        " values ('29990101000000', 'marian_jobs_future'), ('29990101000001', 'shop')",
    )
    ask(bare_database, "create or replace function public.job_backoff(p_attempt int) returns interval language sql"
                       " as $$ select interval '1 s' $$")  # fmt: skip
    report = examine_database(bare_database)
    assert faults(report)["schema-version"][0].figures == {"newer": ["29990101000000_marian_jobs_future"]}
    assert "newer" in not_run(report)["changed-functions"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cancel_job", "create or replace function public.cancel_job(p_id uuid) returns setof public.marian_jobs"
                       " language sql set search_path = '' as $$ select * from public.marian_jobs $$"),
        ("job_stats", "drop function public.job_stats()"),
        ("retry_job", "create function public.retry_job(p_id text) returns int language sql as $$ select 1 $$"),
        ("claim_job", "alter function public.claim_job(text[], interval) security definer"),
        ("prune_jobs", "alter function public.prune_jobs(interval, interval, integer) reset search_path"),
    ],
)  # fmt: skip
def test_a_changed_function_is_found(name: str, change: str, database: str, connection: Connection) -> None:
    assert said(database, "changed-functions") == []
    connection.execute(change.encode())
    [finding] = said(database, "changed-functions")
    assert (finding.severity, finding.figures) == (Severity.ERROR, {"functions": [name]})


def test_a_constraint_that_is_gone_or_that_rows_may_break_is_found(database: str, connection: Connection) -> None:
    assert said(database, "table-checks") == []
    connection.execute("alter table public.marian_jobs drop constraint marian_jobs_payload_check")
    connection.execute(
        "alter table public.marian_jobs add constraint marian_jobs_mine_check check (priority < 10) not valid"
    )
    missing, unchecked = said(database, "table-checks")
    assert missing.figures == {"constraints": ["marian_jobs_payload_check"]}
    assert unchecked.figures == {"constraints": ["marian_jobs_mine_check"]}


def test_an_index_that_is_missing_or_another_one_is_found_and_the_advice_restores_it(
    database: str, connection: Connection
) -> None:
    assert said(database, "missing-indexes") == []
    connection.execute("drop index public.marian_jobs_claim_idx, public.marian_jobs_idem_active_idx")
    connection.execute(
        "create index marian_jobs_claim_idx on public.marian_jobs (status, run_after, priority desc, created_at)"
    )
    missing, other = said(database, "missing-indexes")
    assert [f.figures["index"] for f in (missing, other)] == ["marian_jobs_idem_active_idx", "marian_jobs_claim_idx"]
    for statement in [part for f in (missing, other) for part in f.advice.split("`")[1::2]]:
        connection.execute(statement.encode())
    assert said(database, "missing-indexes") == []


def test_an_index_whose_building_broke_off_is_found_and_the_advice_removes_it(
    database: str, connection: Connection
) -> None:
    connection.execute("insert into public.marian_jobs (type) values ('t'), ('t')")
    assert said(database, "invalid-indexes") == []
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute("create unique index concurrently mine on public.marian_jobs (type)")
    [finding] = said(database, "invalid-indexes")
    assert finding.figures["index"] == "mine"
    connection.execute(finding.advice.strip("`").encode())
    assert said(database, "invalid-indexes") == []


def test_an_index_that_is_there_twice_is_found_and_one_of_somebodys_own_is_noted(
    database: str, connection: Connection
) -> None:
    assert said(database, "extra-indexes") == []
    connection.execute("create index again on public.marian_jobs (user_id, created_at desc)")
    connection.execute("create index mine on public.marian_jobs (type)")
    twice, own = said(database, "extra-indexes")
    assert (twice.severity, twice.figures["index"]) == (Severity.WARNING, "again")
    assert (own.severity, own.figures) == (Severity.NOTE, {"indexes": ["mine"]})


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        ("revoke update on public.marian_jobs from service_role", "service_role lacks update on marian_jobs"),
        ("revoke all on public.marian_job_limits from service_role", "service_role lacks delete on marian_job_limits"),
        ("revoke execute on function public.job_stats() from service_role", "service_role may not execute job_stats"),
        ("revoke select on public.marian_jobs from authenticated", "authenticated may not select"),
    ],
)
def test_a_missing_grant_is_found(fault: str, finding: str, database: str, connection: Connection) -> None:
    assert said(database, "missing-grants") == []
    connection.execute(fault.encode())
    [found] = said(database, "missing-grants")
    assert found.text.startswith(finding)


def test_a_service_role_that_row_security_holds_for_is_found(
    server: Server, database: str, connection: Connection
) -> None:
    admin = server.socket_dsn(role="supabase_admin", database=connection.info.dbname)
    ask(admin, "alter role service_role nobypassrls")
    try:
        [found] = said(database, "missing-grants")
    finally:
        ask(admin, "alter role service_role bypassrls")
    assert "bypass" in found.text
    assert said(database, "missing-grants") == []


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        ("grant insert on public.marian_jobs to authenticated", "authenticated: insert on marian_jobs"),
        ("grant update (priority) on public.marian_jobs to anon", "anon: update on marian_jobs"),
        ("grant select on public.marian_job_limits to public", "anon: select on marian_job_limits"),
        ("grant execute on function public.retry_job(uuid, integer) to anon", "anon: retry_job"),
        ("grant execute on function public.job_stats() to public", "authenticated: job_stats"),
    ],
)
def test_a_grant_that_lets_users_do_more_than_read_is_found(
    fault: str, finding: str, database: str, connection: Connection
) -> None:
    assert said(database, "wide-grants") == []
    connection.execute(fault.encode())
    [found] = said(database, "wide-grants")
    assert (found.severity, finding in found.text) == (Severity.ERROR, True)


@pytest.mark.parametrize(
    ("fault", "severity", "finding"),
    [
        ("alter table public.marian_jobs disable row level security", Severity.ERROR, "row security is off"),
        ("drop policy marian_jobs_select_own on public.marian_jobs", Severity.WARNING, "is missing"),
        ("alter policy marian_jobs_select_own on public.marian_jobs using (true)", Severity.ERROR, "is another"),
        ("create policy mine on public.marian_jobs for select using (true)", Severity.NOTE, "mine (select"),
    ],
)
def test_row_security_that_is_off_or_changed_is_found(
    fault: str, severity: Severity, finding: str, database: str, connection: Connection
) -> None:
    assert said(database, "row-security") == []
    connection.execute(fault.encode())
    [found] = said(database, "row-security")
    assert (found.severity, finding in found.text) == (severity, True)


def test_a_database_that_takes_no_writes_is_found(database: str, connection: Connection) -> None:
    name = sql.Identifier(connection.info.dbname)
    assert said(database, "writable") == []
    connection.execute(sql.SQL("alter database {} set default_transaction_read_only = on").format(name))
    [found] = said(database, "writable")
    assert "read-only" in found.text
