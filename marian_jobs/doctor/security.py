"""Checks of who may do what: workers all that they need, users nothing but read their own jobs."""

from collections.abc import Iterator
from typing import Any

from marian_jobs import migrations
from marian_jobs.doctor.definitions import functions
from marian_jobs.doctor.finding import Finding, NotRun, error, note, warning
from marian_jobs.doctor.patient import API_ROLES, TABLES, Patient

USERS = ("anon", "authenticated")
_OWN_POLICY = ("marian_jobs_select_own", "(user_id = ( SELECT auth.uid() AS uid))")

_ROLES = "select rolname as name, rolbypassrls or rolsuper as bypasses from pg_roles where rolname = any (%s)"
_ON_TABLES = """
select r.rolname as role, t.relname as name, p.privilege
  from pg_roles r
 cross join pg_class t
 cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) as p(privilege)
 where r.rolname = any (%s) and t.relnamespace = 'public'::regnamespace and t.relname = any (%s)
   and case when p.privilege in ('select', 'insert', 'update', 'references')
            then has_any_column_privilege(r.oid, t.oid, p.privilege)
            else has_table_privilege(r.oid, t.oid, p.privilege) end
 order by 1, 2, 3
"""
_ON_FUNCTIONS = """
select r.rolname as role, p.proname as name
  from pg_roles r cross join pg_proc p
 where r.rolname = any (%s) and p.pronamespace = 'public'::regnamespace and p.proname = any (%s)
   and has_function_privilege(r.oid, p.oid, 'execute') = %s
 order by 1, 2
"""
_ROW_SECURITY = """
select c.relname as name, c.relrowsecurity as enabled
  from pg_class c where c.relnamespace = 'public'::regnamespace and c.relname = any (%s)
"""
_POLICIES = """
select p.tablename as table, p.policyname as name, p.cmd, p.qual, p.permissive = 'PERMISSIVE' as permissive,
       p.roles && '{anon,authenticated,public}'::name[] as for_users
  from pg_policies p where p.schemaname = 'public' and p.tablename = any (%s)
"""
_SHOWN = 4


def missing_grants(patient: Patient) -> Iterator[Finding]:
    """What service_role needs: the table, every function, the schema, and sight of every row."""
    service = _roles(patient).get("service_role")
    if service is None:
        raise NotRun("there is no service_role here: the owner of the tables does the work")
    held = {(row.name, row.privilege) for row in patient.ask(_ON_TABLES, [["service_role"], list(TABLES)])}
    wanted = [(table, verb) for table in TABLES for verb in ("select", "insert", "update", "delete")]
    if lacking := sorted(f"{verb} on {table}" for table, verb in set(wanted) - held):
        yield error(
            f"service_role lacks {_few(lacking)}", "`grant all on table public.… to service_role`", lacking=lacking
        )
    if lacking := [row.name for row in patient.ask(_ON_FUNCTIONS, [["service_role"], _ours(), False])]:
        yield error(
            f"service_role may not execute {_few(lacking)}",
            f"`grant execute on function public.{lacking[0]} to service_role`",
            lacking=lacking,
        )
    [row] = patient.ask("select has_schema_privilege('service_role', 'public', 'usage') as usage")
    if not row.usage:
        yield error("service_role may not use the schema public", "`grant usage on schema public to service_role`")
    if not service.bypasses:
        yield error("service_role sees no rows: it does not bypass row security", "`alter role service_role bypassrls`")
    if "authenticated" in _roles(patient) and not _reads(patient, "authenticated"):
        yield warning(
            "authenticated may not select from marian_jobs: users cannot read their own jobs",
            "`grant select on table public.marian_jobs to authenticated`",
        )


def wide_grants(patient: Patient) -> Iterator[Finding]:
    """What anon and authenticated may do beside reading: nothing."""
    if not _user_roles(patient):
        raise NotRun("there are no roles anon and authenticated here")
    rows = patient.ask(_ON_TABLES, [list(USERS), list(TABLES)])
    tables = [
        f"{r.role}: {r.privilege} on {r.name}" for r in rows if (r.name, r.privilege) != ("marian_jobs", "select")
    ]
    if tables:
        yield error(
            f"users may do more than read: {_few(tables)}",
            "`revoke all on table public.marian_jobs, public.marian_job_limits from public, anon, authenticated`, then "
            "`grant select on table public.marian_jobs to anon, authenticated`",
            privileges=tables,
        )
    if open_ := [f"{r.role}: {r.name}" for r in patient.ask(_ON_FUNCTIONS, [list(USERS), _ours(), True])]:
        yield error(
            f"users may execute functions: {_few(open_)}",
            "`revoke all on function public.… from public, anon, authenticated`; or at once by "
            "`select public.marian_jobs_restrict('public.…(…)')`",
            functions=open_,
        )


def row_security(patient: Patient) -> Iterator[Finding]:
    """Row security is on, and the one policy for users is the one that shows each its own."""
    if off := [row.name for row in patient.ask(_ROW_SECURITY, [list(TABLES)]) if not row.enabled]:
        yield error(
            f"row security is off on {' and '.join(off)}",
            f"`alter table public.{off[0]} enable row level security`",
            tables=off,
        )
    policies = patient.ask(_POLICIES, [list(TABLES)])
    yield from _own_policy({p.name: p for p in policies}, patient)
    if others := [p for p in policies if p.for_users and p.permissive and p.name != _OWN_POLICY[0]]:
        yield note(
            "policies let users see or do more: "
            + ", ".join(f"{p.name} ({p.cmd.lower()} on {p.table})" for p in others),
            "Drop them unless they are meant: permissive policies add up.",
            policies=[p.name for p in others],
        )


def _own_policy(policies: dict[str, Any], patient: Patient) -> Iterator[Finding]:
    name, qual = _OWN_POLICY
    if "authenticated" not in _roles(patient) or not patient.ask("select to_regprocedure('auth.uid()') as f")[0].f:
        return
    made = (
        f"`create policy {name} on public.marian_jobs for select to authenticated "
        "using (user_id = (select auth.uid()))`"
    )
    if name not in policies:
        yield warning(f"policy {name} is missing: users see none of their jobs", made)
    elif (policies[name].cmd, " ".join(policies[name].qual.split())) != ("SELECT", qual):
        yield error(
            f"policy {name} is another than the migrations make",
            f"`drop policy {name} on public.marian_jobs`, then {made}",
        )


def _reads(patient: Patient, role: str) -> bool:
    return any(r.privilege == "select" for r in patient.ask(_ON_TABLES, [[role], ["marian_jobs"]]))


def _user_roles(patient: Patient) -> set[str]:
    return set(_roles(patient)) & set(USERS)


def _roles(patient: Patient) -> dict[str, Any]:
    return {row.name: row for row in patient.ask(_ROLES, [list(API_ROLES)])}


def _ours() -> list[str]:
    return sorted(functions(migrations.available()))


def _few(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
