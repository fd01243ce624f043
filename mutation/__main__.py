"""`scripts/mutate`: a server, and for each changed function the tests in a process of their own until one fails."""

import argparse
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from marian_jobs.local.postgres import LocalPostgres
from mutation.changes import Change, changes
from tests import fix_postgres as fixtures
from tests.fix_postgres import apply_migrations

PRISTINE = "pristine"
MOST_FAILING = 5
WAITS = "waits for ever"

LONGEST = 300.0  # seconds: a change that makes a test wait for ever is noticed too
# A loop without its exit must not run for ever.
SETTINGS = {"fsync": "off", "pg_stat_statements.track": "all", "statement_timeout": "20s"}
# The quick ones notice most; who survives them meets the others.
FIRST = [
    "tests/sql/test_guards.py",
    "tests/sql/test_moves.py",
    "tests/stores/test_conformance.py",
    "-k",
    "not supabase and not memory",
]
THEN = ["tests/sql", "tests/races", "tests/test_queue.py", "tests/stores/test_lost_replies.py",
        "tests/fuzz/test_sql_functions.py", "tests/worker/test_wake.py", "tests/worker/test_scheduler.py"]  # fmt: skip
FUNCTIONS = """
select p.proname, pg_get_functiondef(p.oid) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
 where n.nspname = 'public' and p.prokind = 'f' and p.proname ~ %s
   and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
 order by 1
"""


def main() -> None:
    """Prints a line for each change that no test notices, and the count; JSON lines of all go to --output."""
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("only", nargs="?", default=".", help="a regular expression: functions to change")
    parser.add_argument("--output", type=Path, default=Path("build/mutation.jsonl"))
    wanted = parser.parse_args()
    wanted.output.parent.mkdir(parents=True, exist_ok=True)
    with LocalPostgres(settings=SETTINGS) as server:
        _run(server, wanted.only, wanted.output)


def _run(server: LocalPostgres, only: str, output: Path) -> None:
    prepare(server)
    failing = list(failing_anyway(server))
    known = {(row["function"], row["line"], row["what"]) for row in _read(output)}  # a run goes on where it stopped
    sharp: defaultdict[str, list[str]] = defaultdict(
        list
    )  # tests that have noticed changes to a function, to be asked first
    for name, change in possible(server, only):
        if (name, change.line, change.what) in known:
            continue
        asked = ([*sharp[name]], [*FIRST, *failing], [*THEN, *failing])
        test = next((found for tests in asked if tests and (found := noticed_by(server, change.text, tests))), None)
        row = {"function": name, "line": change.line, "what": change.what, "noticed_by": test}
        with output.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if test is None:
            print(f"survived: {name}, line {change.line}: {change.what}", flush=True)
        elif test != WAITS and test not in sharp[name]:
            sharp[name].append(test)
    rows = _read(output)
    print(f"{len(rows)} changes, {sum(row['noticed_by'] is None for row in rows)} survived; see {output}")


def _read(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []


def possible(server: LocalPostgres, only: str) -> list[tuple[str, Change]]:
    """Every change to the functions as all migrations together leave them, that the server takes at all."""
    with psycopg.connect(server.dsn(database=PRISTINE)) as connection:
        found = connection.execute(FUNCTIONS, (only,)).fetchall()
        return [(name, change) for name, text in found for change in changes(text) if _is_sql(connection, change.text)]


def _is_sql(connection: psycopg.Connection[Any], change: str) -> bool:
    try:
        connection.execute(change)
    except psycopg.Error:
        return False
    finally:
        connection.rollback()
    return True


def prepare(server: LocalPostgres) -> None:
    """Makes the database with all migrations, of which each change gets a copy."""
    apply_migrations(server.create_database(PRISTINE))


def failing_anyway(server: LocalPostgres) -> Iterator[str]:
    """Arguments that leave out the few tests that fail here without any change; ends the run where it is more."""
    left_out: list[str] = []
    while (test := noticed_by(server, "select 1", [*FIRST, *THEN, *left_out])) is not None:
        if test == WAITS or len(left_out) == MOST_FAILING:
            sys.exit(f"{test} fails without any change, and more: nothing to learn")
        print(f"left out, it fails without any change: {test}", flush=True)
        left_out.append(f"--deselect={test}")
    yield from left_out


def noticed_by(server: LocalPostgres, change: str, tests: Sequence[str]) -> str | None:
    """The test that fails with the change applied behind the last migration, or `WAITS`; None when all pass."""
    _drop_databases(server)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os._exit(_test(server, change, tests, writing))
    os.close(writing)
    end = time.monotonic() + LONGEST
    status = None
    while status is None and time.monotonic() < end:
        ended, code = os.waitpid(pid, os.WNOHANG)
        status = code if ended else None
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # it, or what its tests have left
    if status is None:
        os.waitpid(pid, 0)
    with os.fdopen(reading) as told:
        return None if status == 0 else told.readline().strip() or WAITS


def _test(server: LocalPostgres, change: str, tests: Sequence[str], writing: int) -> int:
    for silent in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), silent)

    migrate = fixtures.apply_migrations

    def copy_and_change(dsn: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            if connection.execute("select to_regclass('public.marian_jobs')").fetchone() == (None,):
                migrate(dsn)  # a test's own database
            connection.execute(change)

    class Tell:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            """Hands on the name of the test that failed."""
            if report.failed:
                os.write(writing, f"{report.nodeid}\n".encode())

    fixtures.apply_migrations = copy_and_change
    fixtures.running = lambda *_, **__: nullcontext(Copying(server))
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], plugins=[Tell()]))


class Copying:
    """The one server, whose migrated database is a copy of the pristine one."""

    def __init__(self, server: LocalPostgres) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """As the server's own."""
        if name == fixtures.TEMPLATE:
            template = PRISTINE
        return self._server.create_database(name, template=template or "template1")


def _drop_databases(server: LocalPostgres) -> None:
    with psycopg.connect(server.socket_dsn(role="supabase_admin", database="template1"), autocommit=True) as admin:
        for (name,) in admin.execute(
            "select datname from pg_database where not datistemplate and datname not in ('postgres', 'pristine')"
        ):
            server.drop_database(name)


main()
