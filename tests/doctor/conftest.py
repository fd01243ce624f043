"""A database to plant faults in, a server with everything on that can lose data when off, and what the doctor says."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from marian_jobs.doctor import Bounds, Finding, Report, Severity, examine_database
from marian_jobs.local.postgres import LocalPostgres
from tests.fix_pgbouncer import session_pooled, transaction_pooled
from tests.fix_postgres import apply_migrations

__all__ = ["session_pooled", "transaction_pooled"]

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """A connection of the owner, on which every statement stands at once."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def durable() -> Iterator[LocalPostgres]:
    """A server as production has it, with prepared transactions."""
    named = os.environ.get("MARIAN_TEST_POSTGRES_BIN")
    with LocalPostgres(bin=Path(named) if named else None, settings={"max_prepared_transactions": "2"}) as server:
        apply_migrations(server.create_database("durable"))
        yield server


def faults(report: Report) -> dict[str, list[Finding]]:
    """What is more than a note, by check."""
    found: dict[str, list[Finding]] = {}
    for outcome in report.outcomes:
        for finding in outcome.findings:
            if finding.severity is not Severity.NOTE:
                found.setdefault(outcome.check, []).append(finding)
    return found


def said(dsn: str, check: str, bounds: Bounds | None = None) -> list[Finding]:
    """What one check finds."""
    [outcome] = examine_database(dsn, bounds, checks=[check]).outcomes
    return list(outcome.findings)


def not_run(report: Report) -> dict[str, str]:
    """The checks that were not run, and why."""
    return {outcome.check: outcome.not_run for outcome in report.outcomes if outcome.not_run}


def burn(connection: Connection, transactions: int) -> None:
    """Lets that many transaction ids go by."""
    connection.execute("create temporary table if not exists burnt (id int)")
    connection.execute(
        f"""do $$ begin
              for n in 1 .. {transactions} loop
                begin
                  insert into burnt values (n);
                exception when others then null;
                end;
              end loop;
            end $$"""
    )
