"""docs/schedules.md's schedule in SQL, with the real pg_cron: Debian's, on PostgreSQL 15."""

import re
import time
from pathlib import Path
from typing import Any

import psycopg

from marian_jobs.local.postgres import LocalPostgres
from tests.fix_postgres import apply_migrations
from tests.needs import need

DEBIAN = Path("/usr/lib/postgresql/15")
DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "schedules.md"
SETTINGS = {
    "fsync": "off",
    "shared_preload_libraries": "pg_cron",
    "cron.database_name": "app",
    "cron.use_background_workers": "on",
}


def snippet() -> str:
    """The document's schedule, due when the server starts rather than at night."""
    (block,) = re.findall(r"```sql\n(select cron\.schedule\(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert "'0 3 * * *'" in block
    return str(block.replace("'0 3 * * *'", "'@reboot'"))


def test_pg_cron_makes_the_job_and_another_caller_makes_no_second() -> None:
    """Two schedules of one name, as of two versions that both run: a slot of theirs has one job."""
    need((DEBIAN / "lib" / "pg_cron.so").exists(), "pg_cron (Debian: postgresql-15-cron)")
    with LocalPostgres(bin=DEBIAN / "bin", settings=SETTINGS) as server:
        apply_migrations(server.create_database("app"))
        app = server.socket_dsn(role="supabase_admin", database="app")
        with psycopg.connect(app, autocommit=True) as connection:
            connection.execute("create extension pg_cron")
            connection.execute(snippet().encode())
            connection.execute(snippet().replace("'nightly-report'", "'beside'", 1).encode())
        server.restart()
        with psycopg.connect(app, autocommit=True) as connection:
            end = time.monotonic() + 30
            while len(runs := outcomes(connection)) < 2 or {"starting", "running"} & set(runs):
                assert time.monotonic() < end, f"pg_cron did not run: {runs}"
                time.sleep(0.05)
            rows = connection.execute("select idempotency_key, type, run_after from public.marian_jobs").fetchall()
    assert runs == ["succeeded", "succeeded"]
    slots = {row[2] for row in rows}
    assert len(rows) == len(slots) >= 1  # two, when a new hour began between the two
    for key, type, slot in rows:
        assert (key, type) == (f"schedule:nightly-report:{slot:%Y-%m-%dT%H}:00:00Z", "report")


def outcomes(connection: psycopg.Connection[Any]) -> list[str]:
    """What has become of pg_cron's runs so far."""
    return [row[0] for row in connection.execute("select status from cron.job_run_details").fetchall()]
