"""Checks of the schema: which version it is, and whether it is as the migrations make it."""

from collections.abc import Iterator, Sequence

from marian_jobs import migrations
from marian_jobs.doctor.definitions import functions, same_ends
from marian_jobs.doctor.finding import Finding, NotRun, error, warning
from marian_jobs.doctor.patient import Patient
from marian_jobs.migrations import Migration

_THERE = "select to_regclass('public.marian_jobs') is not null as queue, to_regclass(%s) is not null as history"
_HISTORY = "supabase_migrations.schema_migrations"
_FUNCTIONS = """
select p.proname as name, p.prosrc as body, coalesce(p.proconfig, '{}') as settings, p.prosecdef as definer
  from pg_proc p
 where p.pronamespace = 'public'::regnamespace and p.proname = any (%s)
"""
_CONSTRAINTS = """
select c.conname as name, c.convalidated as validated
  from pg_constraint c where c.conrelid = 'public.marian_jobs'::regclass
"""
_CHECKS = {
    f"marian_jobs_{what}_check"
    for what in ("status", "attempts", "max_attempts", "type", "idempotency_key", "payload", "run_after", "lease_until")
}


def refuse_absent(patient: Patient) -> Iterator[Finding]:
    """Finds nothing; `NotRun` where the queue is not there."""
    if not patient.ask(_THERE, [_HISTORY])[0].queue:
        raise NotRun("the queue is not in this database")
    return iter(())


def schema_version(patient: Patient) -> Iterator[Finding]:
    """Migrations that are not applied, and a database that is newer than this client."""
    steps = migrations.available()
    [there] = patient.ask(_THERE, [_HISTORY])
    if not there.queue:
        yield error(
            "the queue is not in this database", "Run `marian migrate`, or `marian init` and `supabase db push`."
        )
        return
    applied = _recorded(patient) if there.history else {}
    missing = [step for step in steps if step.version not in applied]
    if len(missing) < len(steps) and missing:
        names = [f"{step.version}_{step.name}" for step in missing]
        yield error(
            f"migrations are not applied: {', '.join(names)}",
            "Run `marian migrate`, or `supabase db push`.",
            missing=names,
        )
    if newer := _newer(applied, steps):
        yield warning(
            f"the database is newer than this client: it has {', '.join(newer)}",
            "Upgrade marian-jobs here; the changelog says whether the older version may go on meanwhile.",
            newer=newer,
        )


def changed_functions(patient: Patient) -> Iterator[Finding]:
    """Functions that are missing, or not what the migrations that are applied have made."""
    expected = functions(_standing(patient))
    found = patient.ask(_FUNCTIONS, [list(expected)])
    there = {row.name for row in found}
    advice = "Restore it from the migrations; keep changes of your own under names of your own."
    if absent := sorted(set(expected) - there):
        yield error(f"functions are missing: {', '.join(absent)}", advice.replace("it", "them", 1), functions=absent)
    if twice := sorted({name for name in there if sum(row.name == name for row in found) > 1}):
        yield error(
            f"there are several functions named {', '.join(twice)}: an API call of one is ambiguous",
            "Drop those that the migrations have not made.",
            functions=twice,
        )
    for row in found:
        function = expected[row.name]
        different = same_ends(row.body) != function.body or set(row.settings) != function.settings
        if (different or row.definer) and row.name not in twice:
            what = "runs with its owner's rights" if row.definer else "is not as the migrations make it"
            yield error(f"function {row.name} {what}", advice, functions=[row.name])


def table_checks(patient: Patient) -> Iterator[Finding]:
    """The table's constraints: all there, and holding for every row."""
    there = {row.name: row.validated for row in patient.ask(_CONSTRAINTS)}
    if missing := sorted(_CHECKS - set(there)):
        yield error(
            f"constraints of the table are missing: {', '.join(missing)}",
            "Restore them from the first migration, `not valid` first and then `validate constraint`.",
            constraints=missing,
        )
    if unchecked := sorted(
        name for name, validated in there.items() if not validated and name.startswith("marian_jobs_")
    ):
        yield warning(
            f"constraints that older rows may break: {', '.join(unchecked)}",
            f"`alter table public.marian_jobs validate constraint {unchecked[0]}`",
            constraints=unchecked,
        )


def _recorded(patient: Patient) -> dict[str, str]:
    rows = patient.ask("select version, coalesce(name, '') as name from supabase_migrations.schema_migrations")
    return {row.version: row.name for row in rows}


def _newer(applied: dict[str, str], steps: Sequence[Migration]) -> list[str]:
    """What others have applied of ours after the newest that we know; a project's own migrations have other names."""
    newest = steps[-1].version
    return sorted(
        f"{version}_{name}" for version, name in applied.items() if version > newest and name.startswith("marian_jobs_")
    )


def _standing(patient: Patient) -> Sequence[Migration]:
    """The migrations that the database has; where none is recorded, all: another tool has applied them."""
    steps = migrations.available()
    [there] = patient.ask(_THERE, [_HISTORY])
    applied = _recorded(patient) if there.history else {}
    if newer := _newer(applied, steps):
        raise NotRun(f"the database is newer than this client ({newer[-1]})")
    return [step for step in steps if step.version in applied] or steps
