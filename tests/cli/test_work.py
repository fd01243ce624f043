"""`marian worker`: finding the Worker, and saying what is wrong where there is none."""

from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Marian, answer

WORKER = """
import os
from marian_jobs import Job, PostgresStore, Worker

worker = Worker(PostgresStore(os.environ["MARIAN_DATABASE_URL"]))
other = 1

@worker.handler("greet")
async def greet(job: Job) -> None:
    print("hello", job.payload["name"])
"""


@pytest.fixture
def app(tmp_path: Path) -> None:
    """A user's package in the directory in which the command is run."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text(WORKER)
    (tmp_path / "broken.py").write_text("import os\n\nraise ValueError('the shop is closed')\n")
    (tmp_path / "half.py").write_text("import not_installed_anywhere\n")


@pytest.mark.usefixtures("app")
def test_a_worker_is_found_in_the_current_directory_and_drains_the_queue(marian: Marian, database: str) -> None:
    for name in ("ada", "bob"):
        marian("enqueue", "greet", "--payload", f'{{"name": "{name}"}}', dsn=database)
    done = marian("worker", "shop.jobs:worker", "--drain", dsn=database)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["hello ada", "hello bob"]
    with psycopg.connect(database) as connection:
        assert connection.execute("select distinct status from public.marian_jobs").fetchall() == [("succeeded",)]


@pytest.mark.usefixtures("app")
def test_once_runs_one_job_and_says_which(marian: Marian, database: str) -> None:
    made = [answer(marian("enqueue", "greet", "--payload", '{"name": "x"}', "--json", dsn=database)) for _ in "ab"]
    done = marian("worker", "shop.jobs:worker", "--once", dsn=database)
    assert done.returncode == 0, done.stderr
    assert f'"job": "{made[0]["id"]}"' in done.stdout
    assert done.stdout.count("hello") == 1


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    ("target", "code", "reason"),
    [
        ("shop.jobs", 2, "expected MODULE:WORKER"),
        ("shop.jobs:", 2, "expected MODULE:WORKER"),
        ("shop.job:worker", 1, "no module 'shop.job' here"),
        ("nowhere.jobs:worker", 1, "no module 'nowhere' here"),
        ("shop.jobs:work", 1, "module 'shop.jobs' has no 'work'"),
        ("shop.jobs:other", 1, "expected a marian_jobs.Worker, found a int"),
    ],
)
def test_a_worker_that_is_not_there_is_named(target: str, code: int, reason: str, marian: Marian) -> None:
    done = marian("worker", target, dsn="postgresql://127.0.0.1:1/nobody-is-asked")
    assert done.returncode == code
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    ("module", "line", "reason"),
    [
        ("broken", 'broken.py", line 3', "ValueError: the shop is closed"),
        ("half", 'half.py", line 1', "No module named 'not_installed_anywhere'"),
    ],
)
def test_a_module_that_fails_shows_its_own_line(module: str, line: str, reason: str, marian: Marian) -> None:
    done = marian("worker", f"{module}:worker")
    assert done.returncode == 1
    assert line in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"marian: module '{module}' could not be imported: ")
    assert reason in done.stderr.splitlines()[-1]
