"""The real Supabase CLI and our own migrations runner follow one another on one database."""

import shutil
import tomllib
from pathlib import Path
from typing import Any

import psycopg
import pytest

from marian_jobs.migrations import available, migrate
from tests.fix_npm import run_supabase

PROJECT = Path(__file__).parent.parent.parent / "supabase"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project, since the CLI writes beside it."""
    shutil.copytree(PROJECT, tmp_path / "supabase", ignore=shutil.ignore_patterns(".temp", ".branches"))
    return tmp_path


def push(project: Path, dsn: str, *options: str) -> str:
    return run_supabase(project, "db", "push", "--yes", "--db-url", dsn, *options)


def history(dsn: str) -> list[tuple[str, str, list[str]]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "select version, name, statements from supabase_migrations.schema_migrations order by version"
        ).fetchall()


def counted(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select count(*) from public.marian_jobs").fetchone()
        assert row is not None
        return int(row[0])


def test_push_applies_everything_once_and_then_neither_program_has_anything_to_do(
    project: Path, bare_database: str
) -> None:
    assert "Applying migration" in push(project, bare_database)
    assert "up to date" in push(project, bare_database)
    assert migrate(bare_database) == []
    assert history(bare_database) == [(m.version, m.name, m.statements) for m in available()]


def test_after_our_own_runner_the_cli_has_nothing_to_do(project: Path, bare_database: str) -> None:
    assert [m.version for m in migrate(bare_database)] == [m.version for m in available()]
    assert "up to date" in push(project, bare_database)


def test_the_seed_is_harmless_to_run_again(project: Path, bare_database: str) -> None:
    push(project, bare_database, "--include-seed")
    seeded = counted(bare_database)
    with psycopg.connect(bare_database, autocommit=True) as connection:
        connection.execute((PROJECT / "seed.sql").read_text())

    assert seeded == counted(bare_database) == 5


def test_every_setting_of_the_configuration_is_one_that_the_cli_itself_writes(tmp_path: Path) -> None:
    """The CLI passes over names it does not know, so a slip would go unnoticed: its own template is the judge."""
    for command in (["init"], ["functions", "new", "marian-worker"]):
        run_supabase(tmp_path, *command)
    known = settings(tomllib.loads((tmp_path / "supabase" / "config.toml").read_text()))

    assert set() == settings(tomllib.loads((PROJECT / "config.toml").read_text())) - known


def settings(table: dict[str, Any], above: str = "") -> set[str]:
    names = set()
    for name, value in table.items():
        names |= settings(value, f"{above}{name}.") if isinstance(value, dict) else {above + name}
    return names
