"""`scripts/mutate`: a server, and for each changed function the tests in a process of their own until one fails."""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psycopg

from marian_jobs.local.postgres import LocalPostgres
from mutation.changes import Change, changes

LONGEST = 180.0  # seconds: a change that makes a test wait for ever is noticed too
# The quick ones notice most; who survives them meets the others.
FIRST = ["tests/sql/test_moves.py", "tests/stores/test_conformance.py", "-k", "not supabase and not memory"]
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
    with LocalPostgres(settings={"fsync": "off", "pg_stat_statements.track": "all"}) as server:
        _run(server, wanted.only, wanted.output)


def _run(server: LocalPostgres, only: str, output: Path) -> None:
    if survives(server, "select 1", FIRST) is False:
        sys.exit("the tests fail without any change: nothing to learn")
    known = {(row["function"], row["line"], row["what"]) for row in _read(output)}  # a run goes on where it stopped
    counts = {True: 0, False: 0}
    for name, change in possible(server, only):
        if (name, change.line, change.what) in known:
            continue
        alive = survives(server, change.text, FIRST) and survives(server, change.text, THEN)
        counts[alive] += 1
        row = {"function": name, "line": change.line, "what": change.what, "survived": alive}
        with output.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if alive:
            print(f"survived: {name}, line {change.line}: {change.what}", flush=True)
    print(f"{counts[False]} noticed, {counts[True]} survived; see {output}")


def _read(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []


def possible(server: LocalPostgres, only: str) -> list[tuple[str, Change]]:
    """Every change to the functions as all migrations together leave them, that the server takes at all."""
    with psycopg.connect(server.dsn(database="migrated")) as connection:
        found = connection.execute(FUNCTIONS, (only,)).fetchall()
        return [(name, change) for name, text in found for change in changes(text) if _is_sql(connection, change.text)]


def _is_sql(connection: psycopg.Connection[Any], change: str) -> bool:
    try:
        connection.execute(change)  # type: ignore[call-overload]
    except psycopg.Error:
        return False
    finally:
        connection.rollback()
    return True


def survives(server: LocalPostgres, change: str, tests: Sequence[str]) -> bool:
    """Whether the tests all pass with the change applied behind the last migration."""
    _drop_databases(server)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os._exit(_test(server, change, tests))
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # what its tests may have left
            return status == 0
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def _test(server: LocalPostgres, change: str, tests: Sequence[str]) -> int:
    import pytest

    import tests.fix_postgres as fixtures

    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    migrate = fixtures.apply_migrations

    def migrate_and_change(dsn: str) -> None:
        migrate(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(change)  # type: ignore[arg-type]

    fixtures.apply_migrations = migrate_and_change
    fixtures.running = lambda *_, **__: nullcontext(server)
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))


def _drop_databases(server: LocalPostgres) -> None:
    with psycopg.connect(server.socket_dsn(role="supabase_admin", database="template1"), autocommit=True) as admin:
        for (name,) in admin.execute(
            "select datname from pg_database where not datistemplate and datname <> 'postgres'"
        ):
            server.drop_database(name)


main()
