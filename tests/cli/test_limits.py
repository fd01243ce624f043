"""`marian pause`, `resume`, `limit` and `limits`."""

import psycopg
import pytest

from tests.cli.conftest import Marian, answer, answers
from tests.fix_stack import Stack

FREE = {"max_running": None, "rate": None, "per": None, "running": 0, "started": 0}


def test_a_type_is_paused_and_resumed(marian: Marian, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select public.enqueue_job('embed')")
        assert answer(marian("pause", "embed", "--json", dsn=database)) == {"type": "embed", "paused": True, **FREE}
        assert connection.execute("select public.claim_job()").fetchall() == []
        assert marian("pause", "embed", dsn=database).stdout == "'embed' is paused: no limit\n"
        assert answer(marian("resume", "embed", "--json", dsn=database)) == {"type": "embed", "paused": False, **FREE}
        assert len(connection.execute("select public.claim_job()").fetchall()) == 1
    assert answers(marian("limits", "--json", dsn=database)) == []


def test_a_limit_is_set_listed_with_its_use_set_anew_and_cleared(marian: Marian, database: str) -> None:
    set_ = marian("limit", "embed", "--running", "2", "--rate", "100", "--per", "1h", dsn=database)
    assert set_.stdout == "'embed' is claimed: at most 2 at once, at most 100 starts in 3600 s\n", set_.stderr
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select public.enqueue_job('embed') from generate_series(1, 3)")
        assert len(connection.execute("select public.claim_jobs(3, null, '1 hour')").fetchall()) == 2
    marian("pause", "[b]\x1bother", dsn=database)

    other, embed = answers(marian("limits", "--json", dsn=database))
    assert other["paused"] is True
    assert embed == {
        "type": "embed", "paused": False, "max_running": 2, "rate": 100, "per": 3600.0, "running": 2, "started": 2,
    }  # fmt: skip
    shown = marian("limits", dsn=database).stdout
    assert "2 of 2" in shown
    assert "2 of 100 in 3600 s" in shown
    assert "[b]" in shown
    assert "\x1b" not in shown

    anew = answer(marian("limit", "embed", "--running", "5", "--json", dsn=database))
    assert (anew["max_running"], anew["rate"]) == (5, None)
    assert answer(marian("limit", "embed", "--clear", "--json", dsn=database))["max_running"] is None
    assert len(answers(marian("limits", "--json", dsn=database))) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["limit", "embed"], "--clear"),
        (["limit", "embed", "--clear", "--running", "1"], "--clear"),
        (["limit", "embed", "--rate", "5"], "both or neither"),
        (["limit", "embed", "--rate", "5", "--per", "soon"], "duration"),
        (["pause", " "], "type"),
        (["pause"], "TYPE"),
    ],
)
def test_wrong_usage_ends_with_2_and_changes_nothing(
    arguments: list[str], said: str, marian: Marian, database: str
) -> None:
    done = marian(*arguments, dsn=database)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from public.marian_job_limits").fetchone() == (0,)


def test_the_same_over_a_projects_api(marian: Marian, stack: Stack) -> None:
    with psycopg.connect(stack.dsn, autocommit=True) as connection:
        connection.execute("truncate public.marian_jobs, public.marian_job_limits")
    known = {"SUPABASE_URL": stack.url, "SUPABASE_SECRET_KEY": stack.secret_key}
    assert marian("pause", "embed", env=known).returncode == 0
    limited = answer(marian("limit", "embed", "--rate", "5", "--per", "36h", "--json", env=known))
    assert (limited["paused"], limited["rate"], limited["per"]) == (True, 5, 129600.0)
