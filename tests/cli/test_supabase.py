"""The commands over a Supabase project's API, where no database URL is known."""

import json

import psycopg
import pytest

from tests.cli.conftest import Marian, answer
from tests.fix_stack import Stack


@pytest.fixture
def project(stack: Stack) -> dict[str, str]:
    """The variables of a user who has a project and its key; the queue is empty."""
    with psycopg.connect(stack.dsn, autocommit=True) as connection:
        connection.execute("truncate public.marian_jobs")
    return {"SUPABASE_URL": stack.url, "SUPABASE_SECRET_KEY": stack.secret_key}


def test_a_job_is_enqueued_once_per_key_shown_cancelled_and_retried(marian: Marian, project: dict[str, str]) -> None:
    numbers = {"n": 2**53 + 1, "k": 10**40}
    command = ("enqueue", "a", "--key", "k", "--payload", json.dumps(numbers), "--json")
    made, again = (answer(marian(*command, env=project)) for _ in range(2))
    assert (made["created"], again["created"], again["id"]) == (True, False, made["id"])
    assert answer(marian("show", made["id"], "--json", env=project))["payload"] == numbers
    assert answer(marian("cancel", made["id"], "--json", env=project))["status"] == "dead"
    assert answer(marian("retry", made["id"], "--json", env=project))["status"] == "queued"
    assert answer(marian("stats", "--json", env=project))["count"] == 1


def test_a_file_goes_in_over_the_api_too(marian: Marian, project: dict[str, str]) -> None:
    text = '{"payload": {"i": 1}}\n' * 1200
    done = marian("enqueue", "a", "--file", "-", "--json", stdin=text, env=project)
    assert answer(done) == {"enqueued": 1200, "existing": 0}


def test_no_key_reaches_the_output_whatever_is_wrong(marian: Marian, project: dict[str, str]) -> None:
    wrong = {"SUPABASE_SECRET_KEY": "sb_secret_S3CRET-2"}
    for known in (
        project | wrong,
        wrong | {"SUPABASE_URL": "http://127.0.0.1:1"},
        wrong | {"SUPABASE_URL": "nonsense"},
    ):
        done = marian("jobs", env=known)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("marian: ")
        assert "S3CRET" not in done.stderr
        assert "Traceback" not in done.stderr


def test_migrations_need_the_database_itself(marian: Marian, project: dict[str, str]) -> None:
    done = marian("migrate", env=project)
    assert done.returncode == 2
    assert "MARIAN_DATABASE_URL" in done.stderr
