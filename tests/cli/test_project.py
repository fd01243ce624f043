"""`marian migrate` and `marian init`."""

from pathlib import Path

import psycopg
import pytest

from marian_jobs.migrations import available
from tests.cli.conftest import Marian, answer

NAMES = [f"{step.version}_{step.name}" for step in available()]
SOURCE = Path(__file__).parent.parent.parent / "supabase"


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_a_dry_run_prints_the_sql_and_changes_nothing(marian: Marian, bare_database: str) -> None:
    done = marian("migrate", "--dry-run", dsn=bare_database)
    assert done.stdout == "".join(f"-- {step.version}_{step.name}\n{step.sql}\n" for step in available())
    assert answer(marian("migrate", "--dry-run", "--json", dsn=bare_database)) == {
        "dry_run": True,
        "migrations": NAMES,
    }
    with psycopg.connect(bare_database) as connection:
        assert connection.execute("select to_regclass('public.marian_jobs')").fetchone() == (None,)


def test_migrate_applies_each_step_once(marian: Marian, bare_database: str) -> None:
    first = marian("migrate", dsn=bare_database)
    second = marian("migrate", "--database-url", bare_database)
    assert (first.returncode, first.stdout.splitlines()) == (0, [f"applied {step.name}" for step in available()])
    assert (second.returncode, second.stdout) == (0, "nothing to do: the database is up to date\n")


def test_before_the_first_migration_a_command_says_what_to_do(marian: Marian, bare_database: str) -> None:
    done = marian("stats", dsn=bare_database)
    assert done.returncode == 1
    assert "run `marian migrate`" in done.stderr


def test_a_new_project_gets_migrations_functions_configuration_and_seeds(marian: Marian, tmp_path: Path) -> None:
    written = answer(marian("init", "shop", "--json"))["written"]
    shipped = {name for name in files(SOURCE) if name.startswith(("migrations/", "functions/"))}

    assert files(tmp_path / "shop" / "supabase") == shipped | {"config.toml", "seed.sql"}
    assert len(written) == len(shipped) + 2
    for name in shipped:
        assert (tmp_path / "shop" / "supabase" / name).read_bytes() == (SOURCE / name).read_bytes()
    assert "nothing to do" in marian("init", "shop").stdout


def test_a_projects_own_configuration_is_left_alone(marian: Marian, tmp_path: Path) -> None:
    (tmp_path / "supabase").mkdir()
    (tmp_path / "supabase" / "config.toml").write_text("mine")
    done = marian("init")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "supabase" / "config.toml").read_text() == "mine"
    assert not (tmp_path / "supabase" / "seed.sql").exists()


LINES = ["[functions.marian-worker]", "verify_jwt = false"]


@pytest.mark.parametrize(
    "config",
    [
        "",
        "project_id = 'mine'",
        "[functions]",
        "[functions.marian-worker]\nverify_jwt = true",
        "functions = 1",
        "mine =",
    ],
)
def test_what_a_projects_own_configuration_lacks_is_told_and_not_written(
    marian: Marian, tmp_path: Path, config: str
) -> None:
    mine = tmp_path / "supabase" / "config.toml"
    mine.parent.mkdir()
    mine.write_text(config)
    said = marian("init").stdout.splitlines()
    assert said[-3:-1] == LINES
    assert "supabase/config.toml is yours" in said[-4]
    assert mine.read_text() == config
    assert answer(marian("init", "--json"))["add_to_config"] == LINES


def test_a_configuration_that_has_it_is_not_told_of_it(marian: Marian, tmp_path: Path) -> None:
    mine = tmp_path / "supabase" / "config.toml"
    mine.parent.mkdir()
    mine.write_text("\n".join(["project_id = 'mine'", *LINES]))
    assert "verify_jwt" not in marian("init").stdout
    assert "verify_jwt" not in marian("init", "new").stdout
    assert answer(marian("init", "--json"))["add_to_config"] == []


def test_a_file_that_differs_is_overwritten_by_force_only(marian: Marian, tmp_path: Path) -> None:
    changed = tmp_path / "supabase" / "migrations" / f"{NAMES[1]}.sql"
    changed.parent.mkdir(parents=True)
    changed.write_text("mine")

    refused = marian("init")
    assert refused.returncode == 1
    assert changed.name in refused.stderr
    assert files(tmp_path) == {f"supabase/migrations/{changed.name}"}

    assert marian("init", "--force").returncode == 0
    assert changed.read_text() == available()[1].sql


def test_a_project_that_cannot_be_written_is_one_line(marian: Marian, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = marian("init", "file")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
