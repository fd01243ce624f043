"""Supabase's own database linter (splinter, as the CLI's `db advisors` carries it) finds nothing in our schema.

Each rule that is counted on is also shown to find a planted fault, so that silence means something.
"""

import json
from pathlib import Path

import psycopg
import pytest

from tests.fix_npm import run_supabase

# Tells which indexes no query has used yet: every one in a fresh database. tests/sql says which query each serves.
BY_STATISTICS = {"unused_index"}

FAULTS = {
    "unindexed_foreign_keys": """
        create table public.parent (id int primary key);
        create table public.child (id int primary key, parent int references public.parent)""",
    "auth_users_exposed": """
        create view public.accounts as select * from auth.users;
        grant select on public.accounts to anon""",
    "auth_rls_initplan": """
        create policy p on public.marian_jobs for delete to authenticated using (user_id = auth.uid())""",
    "no_primary_key": "create table public.heap (id int)",
    "multiple_permissive_policies": """
        create policy p on public.marian_jobs for select to authenticated using (type = 'open')""",
    "policy_exists_rls_disabled": """
        create table public.t (id int primary key);
        create policy p on public.t for select using (id = 1)""",
    "rls_enabled_no_policy": """
        create table public.t (id int primary key);
        alter table public.t enable row level security""",
    "duplicate_index": "create index again on public.marian_jobs (user_id, created_at desc)",
    "security_definer_view": """
        create view public.all_jobs as select * from public.marian_jobs;
        grant select on public.all_jobs to authenticated""",
    "function_search_path_mutable": "create function public.f() returns int language sql as 'select 1'",
    "rls_disabled_in_public": "create table public.t (id int primary key)",
    "extension_in_public": "create extension hstore schema public",
    "rls_references_user_metadata": """
        create policy p on public.marian_jobs for delete to authenticated
          using (((select auth.jwt()) -> 'user_metadata' ->> 'role') = 'admin')""",
    "materialized_view_in_api": """
        create materialized view public.counts as select count(*) from public.marian_jobs;
        grant select on public.counts to anon""",
    "unsupported_reg_types": "create table public.t (id int primary key, c regcollation)",
    "rls_policy_always_true": """
        create policy p on public.marian_jobs for insert to authenticated with check (true)""",
}

USERS_MAY_RUN_DEFINER_FUNCTIONS = """
    select p.oid::regprocedure::text
      from pg_catalog.pg_proc p cross join (values ('anon'), ('authenticated')) r(role)
     where p.pronamespace = 'public'::regnamespace and p.prosecdef
       and has_function_privilege(r.role, p.oid, 'execute')"""


def advised(directory: Path, dsn: str) -> dict[str, list[str]]:
    """The findings: their details by rule."""
    said = run_supabase(
        directory, "db", "advisors", "--db-url", dsn, "--type", "all", "--level", "info", "-o", "json", "--agent", "no"
    )
    found: dict[str, list[str]] = {}
    for finding in json.loads(said[said.index("[") : said.rindex("]") + 1]):
        if finding["name"] not in BY_STATISTICS:
            found.setdefault(finding["name"], []).append(finding["detail"])
    return found


def test_the_linter_finds_nothing(tmp_path: Path, database: str) -> None:
    assert advised(tmp_path, database) == {}


@pytest.mark.parametrize("rule", FAULTS)
def test_a_planted_fault_is_found(rule: str, tmp_path: Path, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(FAULTS[rule])

    assert rule in advised(tmp_path, database)


def test_no_function_that_runs_with_its_owners_rights_is_open_to_users(database: str) -> None:
    with psycopg.connect(database) as connection:
        assert connection.execute(USERS_MAY_RUN_DEFINER_FUNCTIONS).fetchall() == []

        connection.execute("create function public.f() returns int language sql security definer as 'select 1'")
        assert connection.execute(USERS_MAY_RUN_DEFINER_FUNCTIONS).fetchall() != []
