"""The runner: every step once, whoever and however many run it, and recorded as the Supabase CLI records it."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from marian_jobs.errors import MarianError, StoreRefused, StoreUnavailable
from marian_jobs.local.postgres import LocalPostgres
from marian_jobs.migrations import Migration, MigrationFailed, available, migrate, pending, schema_version
from tests.worker.fleet import wait_for

OURS = [step.version for step in available()]
WAITING = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


class PlainPostgres(LocalPostgres):
    """A server that has never heard of Supabase: no API roles, no auth schema, no publication."""

    def _bootstrap(self) -> None:
        pass


@pytest.fixture
def plain_database() -> Iterator[str]:
    """The DSN of a database on a plain server; roles belong to the server, so it is one of its own."""
    named = os.environ.get("MARIAN_TEST_POSTGRES_BIN")
    with PlainPostgres(bin=Path(named) if named else None, settings={"fsync": "off"}) as server:
        yield server.socket_dsn(role="supabase_admin")


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """A directory of migrations of our own making, with one step that makes a table."""
    add(tmp_path, "20300101000000_first.sql", "create table public.first (id int);\n")
    return tmp_path


def add(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(text)


def ask(dsn: str, query: str) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query).fetchall()


def recorded(dsn: str) -> list[str]:
    return [row[0] for row in ask(dsn, "select version from supabase_migrations.schema_migrations order by version")]


def tables(dsn: str) -> set[str]:
    return {row[0] for row in ask(dsn, "select tablename from pg_tables where schemaname = 'public'")}


def test_the_first_run_applies_every_step_in_order_and_the_second_has_nothing_to_do(bare_database: str) -> None:
    told: list[Migration] = []

    done = migrate(bare_database, on_step=told.append)

    assert OURS == [step.version for step in done] == [step.version for step in told] == recorded(bare_database)
    assert migrate(bare_database) == pending(bare_database) == []


def test_a_database_without_supabases_roles_and_schemas_is_migrated_too(plain_database: str) -> None:
    migrate(plain_database)
    with psycopg.connect(plain_database) as connection:
        job = connection.execute("select type, status from public.enqueue_job('plain')").fetchone()
    assert job == ("plain", "queued")


def test_eight_processes_at_once_on_an_empty_database_all_succeed_and_each_step_is_done_by_one(
    bare_database: str,
) -> None:
    program = (
        "import sys; from marian_jobs.migrations import migrate; sys.stdin.read(1); "
        "print(*[step.version for step in migrate(sys.argv[1])])"
    )
    runners = [
        subprocess.Popen(
            [sys.executable, "-c", program, bare_database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    for runner in runners:  # all have been started: now let them go
        assert runner.stdin is not None
        runner.stdin.write("x")
        runner.stdin.flush()
    outputs = [runner.communicate(timeout=60)[0] for runner in runners]

    assert [runner.returncode for runner in runners] == [0] * 8
    assert sorted(" ".join(outputs).split()) == OURS == recorded(bare_database)


def test_a_step_is_recorded_with_its_name_and_its_single_statements(bare_database: str, steps: Path) -> None:
    text = """-- a comment; with a semicolon
create table public."od;d" (note text default 'a;''b' /* ; */);
do $do$ begin perform ';'; execute $$ select 1; $$; end $do$;
select E'it\\'s; one'
;
"""
    add(steps, "20300102000000_second_step.sql", text)
    migrate(bare_database, steps)
    history = ask(
        bare_database, "select version, name, statements from supabase_migrations.schema_migrations order by 1"
    )
    assert history == [
        ("20300101000000", "first", ["create table public.first (id int)"]),
        (
            "20300102000000",
            "second_step",
            [
                "-- a comment; with a semicolon\ncreate table public.\"od;d\" (note text default 'a;''b' /* ; */)",
                "do $do$ begin perform ';'; execute $$ select 1; $$; end $do$",
                "select E'it\\'s; one'",
            ],
        ),
    ]


def test_a_failing_step_names_its_line_and_leaves_the_version_before_it_and_nothing_of_its_own(
    bare_database: str, steps: Path
) -> None:
    add(steps, "20300102000000_broken.sql", "create table public.half (id int);\n\nselect oops;\n")
    add(steps, "20300103000000_later.sql", "create table public.later (id int);\n")

    with pytest.raises(MigrationFailed, match=r'20300102000000_broken\.sql:3: column "oops" does not exist'):
        migrate(bare_database, steps)

    assert recorded(bare_database) == ["20300101000000"]
    assert {"first"} == tables(bare_database)

    add(steps, "20300102000000_broken.sql", "create table public.whole (id int);\n")
    assert [step.name for step in migrate(bare_database, steps)] == ["broken", "later"]
    assert {"first", "whole", "later"} == tables(bare_database)


def test_looking_at_what_is_pending_changes_nothing(bare_database: str, steps: Path) -> None:
    assert [step.sql for step in pending(bare_database, steps)] == ["create table public.first (id int);\n"]
    assert ask(bare_database, "select from pg_namespace where nspname = 'supabase_migrations'") == []


def test_other_peoples_versions_are_neither_judged_nor_touched(bare_database: str, steps: Path) -> None:
    migrate(bare_database, steps)
    ask(
        bare_database,
        "insert into supabase_migrations.schema_migrations (version, name) "
        "values ('1', 'theirs'), ('99999999999999', 'too') returning version",
    )

    assert migrate(bare_database, steps) == []
    assert recorded(bare_database) == ["1", "20300101000000", "99999999999999"]
    assert schema_version(bare_database, steps) == "20300101000000"


def test_the_schemas_version_is_the_newest_step_and_none_before_the_first(bare_database: str) -> None:
    assert schema_version(bare_database) is None
    migrate(bare_database)
    assert schema_version(bare_database) == OURS[-1]


def test_files_that_are_no_migrations_are_passed_over(steps: Path) -> None:
    for name in ("README.md", "draft.sql", "20300102000000_x.sql.bak"):
        add(steps, name, "not SQL")
    assert [step.name for step in available(steps)] == ["first"]


def test_a_step_that_meets_a_long_transaction_gives_way_and_says_so(bare_database: str, steps: Path) -> None:
    migrate(bare_database, steps)
    add(steps, "20300102000000_alter.sql", "alter table public.first add column more int;")
    with psycopg.connect(bare_database) as reader:
        reader.execute("select from public.first")
        with pytest.raises(MigrationFailed, match=r"alter\.sql.*in use.*nothing of it was applied.*run it again"):
            migrate(bare_database, steps, lock_timeout=timedelta(milliseconds=50))
    assert [step.name for step in migrate(bare_database, steps)] == ["alter"]


def test_a_step_that_gave_way_tries_again_by_itself(bare_database: str, steps: Path) -> None:
    migrate(bare_database, steps)
    add(steps, "20300102000000_alter.sql", "alter table public.first add column more int;")
    done: list[Migration] = []
    with psycopg.connect(bare_database) as reader:
        reader.execute("select from public.first")
        timeout = timedelta(milliseconds=200)
        runner = threading.Thread(target=lambda: done.extend(migrate(bare_database, steps, lock_timeout=timeout)))
        runner.start()
        wait_for(lambda: ask(bare_database, WAITING), 5, "the step waits for the table")
        wait_for(lambda: not ask(bare_database, WAITING), 5, "the step has given way")
    runner.join(10)
    assert [step.name for step in done] == ["alter"]


def test_waiting_for_another_migration_is_not_giving_way(bare_database: str, steps: Path) -> None:
    done: list[Migration] = []
    with psycopg.connect(bare_database) as other:
        other.execute("select pg_advisory_xact_lock(hashtextextended('marian_jobs:migrate', 0))")
        timeout = timedelta(milliseconds=1)
        runner = threading.Thread(target=lambda: done.extend(migrate(bare_database, steps, lock_timeout=timeout)))
        runner.start()
        wait_for(lambda: ask(bare_database, WAITING), 5, "it waits for the other")
    runner.join(10)
    assert [step.name for step in done] == ["first"]


def test_a_database_that_cannot_be_had_is_named_without_the_password(bare_database: str) -> None:
    wrong = bare_database.replace(":postgres@", ":S3CRET-3@")
    nowhere = "postgresql://postgres:S3CRET-3@127.0.0.1:1/postgres"
    for dsn, error in ((wrong, StoreRefused), (nowhere, StoreUnavailable), ("postgresql://u:S3CRET-3@[h", ValueError)):
        with pytest.raises(error) as caught:
            migrate(dsn)
        assert "S3CRET-3" not in f"{caught.value} {caught.value!r}"


def test_a_role_that_may_not_look_is_refused_in_our_words(bare_database: str, steps: Path) -> None:
    migrate(bare_database, steps)
    as_authenticator = bare_database.replace("//postgres:", "//authenticator:")
    with pytest.raises(StoreRefused, match="permission denied"):
        pending(as_authenticator, steps)


def test_a_directory_that_is_not_there_is_refused(bare_database: str, tmp_path: Path) -> None:
    with pytest.raises(MarianError, match="no such directory"):
        migrate(bare_database, tmp_path / "nowhere")
