"""Planted in the server and on the way to it, and found: clocks, poolers, locks, snapshots, vacuum."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from marian_jobs.clock import utc_now
from marian_jobs.doctor import Bounds, Severity, examine_database
from marian_jobs.local.postgres import LocalPostgres
from tests.doctor.conftest import Connection, burn, faults, said
from tests.fix_postgres import Server
from tests.worker.fleet import wait_for

AT_ONCE = timedelta(0)


@contextmanager
def snapshot(dsn: str) -> Iterator[Connection]:
    """An open REPEATABLE READ transaction, as a forgotten psql has it."""
    with psycopg.connect(dsn, application_name="forgotten") as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from public.marian_jobs")
        yield holder


def test_a_transaction_mode_pooler_is_found(database: str, transaction_pooled: str) -> None:
    assert said(database, "pooler-mode") == []
    [found] = said(transaction_pooled, "pooler-mode")
    assert found.severity is Severity.WARNING
    assert "LISTEN" in found.text
    assert "pooler=True" in found.advice
    assert list(faults(examine_database(transaction_pooled))) == ["pooler-mode"]


def test_a_session_mode_pooler_is_noted(session_pooled: str) -> None:
    [found] = said(session_pooled, "pooler-mode")
    assert (found.severity, "session mode" in found.text) == (Severity.NOTE, True)


@pytest.mark.parametrize(("wrong", "word"), [(timedelta(minutes=3), "ahead of"), (-timedelta(minutes=3), "behind")])
def test_a_clock_that_is_wrong_here_is_found(wrong: timedelta, word: str, database: str) -> None:
    assert said(database, "clock-difference") == []
    report = examine_database(database, clock=lambda: utc_now() + wrong)
    [found] = faults(report)["clock-difference"]
    assert word in found.text
    assert abs(found.figures["difference"] - wrong) < timedelta(seconds=30)


def test_settings_by_which_a_crash_loses_jobs_are_noted(durable: LocalPostgres) -> None:
    dsn = durable.dsn(database="durable")
    assert said(dsn, "durability") == []
    durable.execute(sql.SQL("alter database durable set synchronous_commit = off"))
    [found] = said(dsn, "durability")
    durable.execute(sql.SQL("alter database durable reset synchronous_commit"))
    assert (found.severity, found.figures) == (Severity.NOTE, {"settings": ["synchronous_commit"]})


def test_who_waits_for_a_lock_on_the_table_is_found_and_behind_whom(database: str, connection: Connection) -> None:
    connection.execute("select public.enqueue_job('t')")
    bounds = Bounds(lock_wait=AT_ONCE)
    with psycopg.connect(database, application_name="migration") as holder:
        holder.execute("update public.marian_jobs set priority = 1")
        assert said(database, "lock-waits", bounds) == []
        waiter = threading.Thread(target=lambda: connection.execute("update public.marian_jobs set priority = 2"))
        waiter.start()
        wait_for(lambda: bool(said(database, "lock-waits", bounds)), 10, "somebody waits")
        [found] = said(database, "lock-waits", bounds)
        pid = holder.info.backend_pid
        holder.rollback()
        waiter.join()
    assert (found.figures["waiting"], found.figures["blockers"]) == (1, [pid])
    assert "migration, postgres, idle in transaction" in found.text
    assert said(database, "lock-waits", bounds) == []


def test_a_locked_table_keeps_no_other_check_from_its_answer(database: str) -> None:
    with psycopg.connect(database) as holder:
        holder.execute("lock table public.marian_jobs in access exclusive mode")
        report = examine_database(database)
    outcomes = {outcome.check: outcome.not_run for outcome in report.outcomes}
    assert outcomes["expired-leases"] == "something it reads is locked: see lock-waits"
    assert outcomes["wide-grants"] is outcomes["oldest-xmin"] is None


def test_a_transaction_that_stays_open_is_found(database: str) -> None:
    bounds = Bounds(transaction=AT_ONCE)
    assert said(database, "long-transactions", bounds) == []
    with snapshot(database) as holder:
        assert said(database, "long-transactions") == []
        [found] = said(database, "long-transactions", bounds)
        assert "forgotten, postgres, idle in transaction" in found.text
        assert f"pg_terminate_backend({holder.info.backend_pid})" in found.advice


def test_an_old_snapshot_is_found_with_whose_it_is_once_transactions_have_gone_by(
    database: str, connection: Connection
) -> None:
    bounds = Bounds(held_transactions=1_000, held=AT_ONCE)
    with snapshot(database) as holder:
        assert said(database, "oldest-xmin", bounds) == []
        burn(connection, 1_500)
        assert said(database, "oldest-xmin") == []
        [found] = said(database, "oldest-xmin", bounds)
        assert (found.figures["kind"], found.figures["id"]) == ("session", str(holder.info.backend_pid))
    assert found.figures["transactions"] >= 1_500
    assert said(database, "oldest-xmin", bounds) == []


def test_a_forgotten_slot_and_a_prepared_transaction_are_found_and_the_advice_ends_them(
    durable: LocalPostgres,
) -> None:
    dsn = durable.dsn(database="durable")
    bounds = Bounds(held_transactions=1_000, held=AT_ONCE, slot_transactions=1_000)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select pg_create_logical_replication_slot('forgotten', 'pgoutput')")
        connection.execute("begin; create table public.half (id int); prepare transaction 'half'")
        burn(connection, 1_500)
        found = said(dsn, "oldest-xmin", bounds)
        assert sorted(f.figures["kind"] for f in found) == ["prepared transaction", "replication slot"]
        for finding in found:
            connection.execute(finding.advice.split("`")[-2].encode())
    assert said(dsn, "oldest-xmin", bounds) == []


def test_how_near_wraparound_is_is_found(server: Server, database: str, connection: Connection) -> None:
    bounds = Bounds(frozen=2_000)
    with psycopg.connect(
        server.socket_dsn(role="supabase_admin", database=connection.info.dbname), autocommit=True
    ) as admin:
        admin.execute("vacuum (freeze)")
    assert said(database, "wraparound", bounds) == said(database, "wraparound") == []
    burn(connection, 2_500)
    [found] = said(database, "wraparound", bounds)
    assert found.severity is Severity.WARNING
    assert found.figures["of_table"] >= 2_000


def test_dead_rows_that_no_vacuum_clears_are_found_and_no_sooner_than_one_could_have_come(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "alter table public.marian_jobs set (autovacuum_enabled = off, autovacuum_vacuum_threshold = 0,"
        " autovacuum_vacuum_scale_factor = 0)"
    )
    with psycopg.connect(database) as updater:  # whose end tells the statistics
        updater.execute("insert into public.marian_jobs (type) select 't' from generate_series(1, 2000)")
        updater.commit()
        updater.execute("update public.marian_jobs set priority = 1")
    at_once = Bounds(dead_rows=1_000, unvacuumed=AT_ONCE)
    wait_for(lambda: bool(said(database, "dead-tuples", at_once)), 10, "the statistics know")
    [found] = said(database, "dead-tuples", at_once)
    assert (found.figures["dead"], found.figures["ratio"]) == (2_000, 0.5)
    assert said(database, "dead-tuples", Bounds(dead_rows=1_000)) == []
    connection.execute("vacuum public.marian_jobs")
    wait_for(lambda: not said(database, "dead-tuples", at_once), 10, "the vacuum is known")


def test_autovacuum_that_is_disabled_is_found_and_the_advice_enables_it(
    server: Server, database: str, connection: Connection
) -> None:
    assert said(database, "autovacuum") == []
    connection.execute("alter table public.marian_jobs set (autovacuum_enabled = false)")
    [found] = said(database, "autovacuum")
    assert found.figures == {"tables": ["public.marian_jobs"]}
    connection.execute(found.advice.split("`")[1].encode())
    assert said(database, "autovacuum") == []
    with psycopg.connect(server.socket_dsn(role="supabase_admin", database="postgres"), autocommit=True) as admin:
        name = sql.Identifier(connection.info.dbname)
        admin.execute(sql.SQL("alter database {} set track_counts = off").format(name))
    [found] = said(database, "autovacuum")
    assert "track_counts" in found.text
