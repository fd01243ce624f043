"""The doctor is silent where there is nothing to do, and says what it could not see."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from marian_jobs.doctor import Bounds, examine_database
from marian_jobs.doctor.examine import CHECKS
from marian_jobs.errors import StoreRefused, StoreUnavailable
from marian_jobs.local.postgres import LocalPostgres
from marian_jobs.migrations import migrate
from tests.doctor.conftest import Connection, faults, not_run, said
from tests.fix_postgres import Server
from tests.worker.fleet import wait_for

RUNBOOK = Path(__file__).parent.parent.parent / "docs" / "operations.md"
IN_FLIGHT = """
insert into public.marian_jobs (type, created_at) select 't' || n %% 7, now() from generate_series(1, %s) n
"""


@pytest.fixture(scope="module")
def plain(durable: LocalPostgres) -> Iterator[str]:
    """A migrated database of a server's superuser, without a trace of Supabase but the roles."""
    durable.execute(sql.SQL("create database plain template template0"))
    dsn = durable.socket_dsn(role="supabase_admin", database="plain")
    migrate(dsn)
    yield dsn
    durable.drop_database("plain")


def test_a_fresh_database_is_healthy_and_every_check_was_run(durable: LocalPostgres) -> None:
    report = examine_database(durable.dsn(database="durable"))
    assert [outcome.check for outcome in report.outcomes] == list(CHECKS)
    assert (faults(report), not_run(report)) == ({}, {})
    assert [finding for outcome in report.outcomes for finding in outcome.findings] == []
    assert report.healthy


def test_a_database_that_marian_migrate_has_made_is_healthy(bare_database: str) -> None:
    migrate(bare_database)
    report = examine_database(bare_database)
    assert (faults(report), not_run(report)) == ({}, {})


def test_a_plain_postgres_is_healthy(plain: str) -> None:
    assert faults(examine_database(plain)) == {}


def test_a_hundred_thousand_jobs_in_flight_are_healthy(database: str, connection: Connection) -> None:
    connection.execute(IN_FLIGHT, [100_000])
    connection.execute(
        "update public.marian_jobs set status = 'running', attempts = 1, lease_until = now() + interval '5 minutes',"
        " updated_at = now()"
    )
    connection.execute(IN_FLIGHT, [1_000])
    connection.close()
    report = examine_database(database)
    assert (faults(report), not_run(report)) == ({}, {})


def test_statistics_that_a_crash_has_emptied_are_no_finding(durable: LocalPostgres) -> None:
    dsn = durable.create_database("crashed", template="durable")
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "alter table public.marian_jobs set (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0)"
        )
        connection.execute(IN_FLIGHT, [1_000])
        connection.execute("update public.marian_jobs set created_at = now() - interval '1 day'")
    durable.restart("immediate")
    assert said(dsn, "dead-tuples", Bounds(dead_rows=0)) == []
    with psycopg.connect(dsn) as connection:
        connection.execute("update public.marian_jobs set priority = 1")
    young, at_once = Bounds(dead_rows=500), Bounds(dead_rows=500, unvacuumed=timedelta(0))
    wait_for(lambda: bool(said(dsn, "dead-tuples", at_once)), 10, "the statistics know")
    assert said(dsn, "dead-tuples", young) == []
    durable.drop_database("crashed")


def test_nothing_is_changed_and_nothing_left_open(database: str, connection: Connection) -> None:
    connection.execute("select public.enqueue_job('t')")
    before = connection.execute("select * from public.marian_jobs").fetchall()
    examine_database(database)
    assert connection.execute("select * from public.marian_jobs").fetchall() == before
    left = "select count(*) from pg_stat_activity where application_name = 'marian doctor' and datname = %s"
    assert connection.execute(left, [connection.info.dbname]).fetchone() == (0,)


def test_a_login_of_the_service_role_says_what_it_may_not_see(
    server: Server, database: str, connection: Connection
) -> None:
    connection.execute("create role doctors_worker login password 'w' in role service_role")
    try:
        report = examine_database(server.dsn(role="doctors_worker", database=connection.info.dbname).replace(
            ":postgres@", ":w@"))  # fmt: skip
    finally:
        connection.execute("drop role doctors_worker")
    assert faults(report) == {}
    assert {"long-transactions", "oldest-xmin"} <= set(not_run(report))
    assert "pg_read_all_stats" in not_run(report)["oldest-xmin"]
    assert not {"oldest-due", "expired-leases", "missing-indexes", "wide-grants"} & set(not_run(report))


def test_a_stranger_learns_nothing_and_is_told_why(server: Server, connection: Connection) -> None:
    report = examine_database(server.dsn(role="authenticator", database=connection.info.dbname))
    assert "permission denied" in not_run(report)["expired-leases"]


def test_a_database_without_the_queue_says_so_once(bare_database: str) -> None:
    report = examine_database(bare_database)
    assert [finding.text for finding in faults(report)["schema-version"]] == ["the queue is not in this database"]
    assert list(faults(report)) == ["schema-version"]
    assert set(not_run(report).values()) == {"the queue is not in this database"}


def test_the_runbook_explains_every_check() -> None:
    explained = set(re.findall(r"^\| `([a-z-]+)`", RUNBOOK.read_text(), re.MULTILINE))
    assert explained == {*CHECKS, "api"}


def test_a_check_that_there_is_not_is_refused(database: str) -> None:
    with pytest.raises(ValueError, match="there is no 'nonsense'; there are schema-version"):
        examine_database(database, checks=["nonsense"])


def test_what_cannot_be_reached_is_no_report(database: str) -> None:
    with pytest.raises(StoreUnavailable):
        examine_database("postgresql://postgres:S3CRET@127.0.0.1:1/postgres")
    with pytest.raises(StoreRefused) as refused:
        examine_database(database.replace(":postgres@", ":S3CRET@"))
    assert "S3CRET" not in str(refused.value)
