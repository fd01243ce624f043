"""Over a project's API: the figures of the jobs, whether PostgREST knows the queue, and what needs the database."""

from datetime import timedelta

import psycopg
import pytest

from marian_jobs.clock import utc_now
from marian_jobs.doctor import examine_project
from marian_jobs.doctor.patient import NEEDS_DATABASE
from marian_jobs.errors import StoreUnavailable
from marian_jobs.local.gateway import Gateway
from marian_jobs.local.ports import free_port
from marian_jobs.migrations import migrate
from marian_jobs.stores.supabase import SupabaseStore
from tests.doctor.conftest import faults, not_run
from tests.fix_postgres import Server
from tests.fix_stack import KEYS, Stack, serving_rest

SEEN = {
    "api",
    "clock-difference",
    "oldest-due",
    "unclaimed-types",
    "expired-leases",
    "dead-letters",
    "paused-types",
}


@pytest.fixture(autouse=True)
def emptied(stack: Stack) -> None:
    with psycopg.connect(stack.dsn) as connection:
        connection.execute("truncate public.marian_jobs, public.marian_job_limits")


def project(stack: Stack) -> SupabaseStore:
    return SupabaseStore(stack.url, stack.service_role_key)


async def test_a_project_is_healthy_and_what_needs_the_database_says_so(stack: Stack) -> None:
    report = await examine_project(project(stack))
    assert (faults(report), report.healthy) == ({}, True)
    assert {o.check for o in report.outcomes} - set(not_run(report)) == SEEN
    assert set(not_run(report).values()) == {NEEDS_DATABASE}


async def test_what_is_wrong_with_the_jobs_is_found_over_the_api_too(stack: Stack) -> None:
    with psycopg.connect(stack.dsn) as connection:
        connection.execute(
            "insert into public.marian_jobs (type, run_after, status, lease_until) values"
            " ('misspelt', now() - interval '2 days 3 hours', 'queued', null),"
            " ('lost', now(), 'running', now() - interval '2 minutes')"
        )
        connection.execute("select public.pause_type('embed')")
    report = await examine_project(project(stack))
    assert set(faults(report)) == {"unclaimed-types", "expired-leases"}
    assert "the oldest for 2 d 3 h" in faults(report)["unclaimed-types"][0].text
    [noted] = next(outcome.findings for outcome in report.outcomes if outcome.check == "paused-types")
    assert noted.figures == {"types": ["embed"]}


async def test_a_clock_that_is_wrong_is_found_over_the_api_too(stack: Stack) -> None:
    report = await examine_project(project(stack), clock=lambda: utc_now() - timedelta(hours=1))
    assert list(faults(report)) == ["clock-difference"]


async def test_an_api_that_does_not_see_the_functions_is_found_until_it_reads_the_schema_anew(
    server: Server, bare_database: str
) -> None:
    name = str(psycopg.conninfo.conninfo_to_dict(bare_database)["dbname"])
    with serving_rest(server, name) as rest, Gateway(rest, KEYS, free_port()) as gateway:
        store = SupabaseStore(gateway.url, KEYS.service_role)
        [found] = faults(await examine_project(store))["api"]
        assert "reload schema" in found.advice
        migrate(bare_database)
        report = await examine_project(store)
        assert faults(report) == {}


async def test_a_key_that_is_refused_is_found_and_not_printed(stack: Stack) -> None:
    report = await examine_project(SupabaseStore(stack.url, stack.anon_key))
    [found] = faults(report)["api"]
    assert stack.anon_key not in found.text
    assert "service" in found.text


async def test_an_api_that_cannot_be_reached_is_no_report() -> None:
    with pytest.raises(StoreUnavailable):
        await examine_project(SupabaseStore("http://127.0.0.1:1", KEYS.service_role, deadline=timedelta(seconds=1)))
