"""`marian doctor`: exit codes, what it prints, and that nothing secret is in it."""

import json

import psycopg

from tests.cli.conftest import Marian, answer
from tests.fix_stack import Stack


def test_a_healthy_queue_ends_with_0_and_one_line(marian: Marian, database: str) -> None:
    done = marian("doctor", dsn=database)
    last = done.stdout.splitlines()[-1]
    assert (done.returncode, last) == (0, "healthy: 24 of 24 checks run"), done.stdout + done.stderr
    assert not [line for line in done.stdout.splitlines() if line.startswith(("error", "warning", "not run"))]

    lines = marian("doctor", "-v", dsn=database).stdout
    assert "oldest-xmin" in lines
    document = answer(marian("doctor", "--json", dsn=database))
    assert document["healthy"] is True
    assert {check["status"] for check in document["checks"]} <= {"ok", "found"}


def test_a_finding_ends_with_1_in_figures_and_with_what_to_do(marian: Marian, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "insert into public.marian_jobs (type, run_after) values ('[b]x\x1b', now() - interval '1 h')"
        )
        connection.execute("grant execute on function public.job_stats() to anon")
    done = marian("doctor", dsn=database)
    assert done.returncode == 1, done.stderr
    assert "error unclaimed-types: no worker claims '[b]x" in done.stdout
    assert "\x1b" not in done.stdout
    assert "  Start a worker" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("not healthy")

    refused = marian("doctor", "--json", dsn=database)
    assert refused.returncode == 1
    checks = {check["check"]: check for check in json.loads(refused.stdout)["checks"]}
    assert checks["wide-grants"]["findings"][0]["figures"] == {"functions": ["anon: job_stats"]}
    assert checks["unclaimed-types"]["findings"][0]["severity"] == "error"


def test_how_long_jobs_may_wait_is_the_operators_to_say(marian: Marian, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "insert into public.marian_jobs (type, status, attempts, run_after, lease_until) values"
            " ('t', 'queued', 0, now() - interval '2 minutes', null),"
            " ('t', 'running', 1, now(), now() + interval '1 minute')"
        )
    assert marian("doctor", dsn=database).returncode == 0
    done = marian("doctor", "--due", "1m", dsn=database)
    assert done.returncode == 1
    assert "warning oldest-due" in done.stdout


def test_over_the_api_it_says_which_checks_need_the_database(marian: Marian, stack: Stack) -> None:
    with psycopg.connect(stack.dsn, autocommit=True) as connection:
        connection.execute("truncate public.marian_jobs, public.marian_job_limits")
    known = {"SUPABASE_URL": stack.url, "SUPABASE_SECRET_KEY": stack.secret_key}
    done = marian("doctor", env=known)
    assert done.returncode == 0, done.stdout + done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("not run")]
    assert "oldest-xmin" in line
    assert "MARIAN_DATABASE_URL" in line
    assert done.stdout.splitlines()[-1] == "healthy: 7 of 25 checks run"


def test_where_it_cannot_look_it_says_why_without_a_password(marian: Marian, database: str) -> None:
    done = marian("doctor", dsn=database.replace(":postgres@", ":S3CRET-3@"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("marian: the database refused the login")
    assert "S3CRET" not in done.stderr
    assert marian("doctor").returncode == 2
