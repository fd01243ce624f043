"""The schedule that docs/edge.md gives for pg_cron, pg_net and Vault.

Those three live on Supabase's servers only; here stand tables in their places, which record what they are asked for.
"""

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "edge.md"

STANDINGS = """
    create schema vault; create schema cron; create schema net;
    create table vault.decrypted_secrets (name text primary key, decrypted_secret text);
    create function vault.create_secret(secret text, name text) returns void language sql
      as 'insert into vault.decrypted_secrets values (name, secret)';
    create table cron.job (name text primary key, schedule text, command text);
    create function cron.schedule(n text, s text, c text) returns void language sql
      as 'insert into cron.job values (n, s, c) on conflict (name) do update set schedule = s, command = c';
    create table net.requests (url text, headers jsonb, body jsonb);
    create function net.http_post(url text, headers jsonb, body jsonb) returns bigint language sql
      as 'insert into net.requests values (url, headers, body); select 1::bigint'"""


@pytest.fixture
def minute(database: str) -> Any:
    """Follows the document, and returns what lets a minute pass and answers the requests made until then."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(STANDINGS)
        for block in re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
            for _ in range(1 if "create_secret" in block else 2):  # a migration that is harmless to run twice
                connection.execute(re.sub(r"create extension [^;]*;", "", block).encode())

        def pass_a_minute() -> list[tuple[Any, ...]]:
            ((command,),) = connection.execute("select command from cron.job").fetchall()
            connection.execute(command)
            return connection.execute("select url, headers, body from net.requests").fetchall()

        yield pass_a_minute


def test_the_function_is_called_when_a_job_is_due_and_not_before(minute: Any, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        assert minute() == []
        connection.execute("select public.enqueue_job('echo', p_delay => interval '1 hour')")
        connection.execute("select public.enqueue_job('for-python')")
        assert minute() == []
        connection.execute("select public.enqueue_job('webhook')")
        ((url, headers, body),) = minute()

    assert url == "https://<project-ref>.supabase.co/functions/v1/marian-worker"
    assert headers == {
        "content-type": "application/json",
        "apikey": "<a secret key of the project>",
        "prefer": "respond-async",
    }
    assert body == {}
