"""Checks of the table's indexes: those that must be there, and those that only cost."""

from collections.abc import Iterator
from typing import Any, Final

from marian_jobs.doctor.finding import Finding, error, note, warning
from marian_jobs.doctor.patient import Patient

# As pg_get_indexdef writes them, behind "… INDEX name ON public.marian_jobs USING btree "; and whether their absence
# breaks something or is slow.
EXPECTED: Final = {
    "marian_jobs_pkey": "(id)",
    "marian_jobs_idem_active_idx": "(idempotency_key) WHERE (status <> 'dead'::text)",
    "marian_jobs_claim_idx": "(type, priority DESC, run_after, created_at) "
    "WHERE (status = ANY (ARRAY['queued'::text, 'retrying'::text]))",
    "marian_jobs_lease_idx": "(lease_until) WHERE (status = 'running'::text)",
    "marian_jobs_user_idx": "(user_id, created_at DESC)",
}
_UNIQUE: Final = {"marian_jobs_pkey", "marian_jobs_idem_active_idx"}

_INDEXES = """
select c.relname as name, i.indisvalid and i.indisready as valid, i.indisunique as unique,
       substring(pg_get_indexdef(c.oid) from ' USING (.*)$') as definition,
       pg_size_pretty(pg_relation_size(c.oid)) as size,
       exists (select from pg_stat_progress_create_index p where p.relid = i.indrelid) as under_way
  from pg_index i
  join pg_class c on c.oid = i.indexrelid
 where i.indrelid = 'public.marian_jobs'::regclass
 order by c.relname
"""


def invalid_indexes(patient: Patient) -> Iterator[Finding]:
    """Indexes whose building broke off: written by every job and read by none."""
    for index in patient.ask(_INDEXES):
        if not index.valid and not index.under_way:
            again = f"reindex index concurrently public.{index.name}"
            yield warning(
                f"index {index.name} is invalid: its building broke off, and every job still pays for it",
                f"`{again if index.name in EXPECTED else f'drop index concurrently public.{index.name}'}`",
                index=index.name,
                size=index.size,
            )


def missing_indexes(patient: Patient) -> Iterator[Finding]:
    """The indexes that claims, keys, leases and lists are served by: all there, as they were made."""
    there = {index.name: index for index in patient.ask(_INDEXES)}
    for name, definition in EXPECTED.items():
        made = (
            f"create {'unique ' if name in _UNIQUE else ''}index concurrently {name} on public.marian_jobs {definition}"
        )
        if name not in there:
            yield error(f"index {name} is missing", f"`{made}`", index=name)
        elif not _is_as_made(there[name], definition):
            yield error(
                f"index {name} is another than the migrations make: {there[name].definition}",
                f"`drop index concurrently public.{name}`, then `{made}`",
                index=name,
                definition=there[name].definition,
            )


def extra_indexes(patient: Patient) -> Iterator[Finding]:
    """Indexes of somebody else's: every move of a job writes each index of the table."""
    indexes = patient.ask(_INDEXES)
    ours = {index.definition: index.name for index in indexes if index.name in EXPECTED}
    extra = [index for index in indexes if index.name not in EXPECTED and index.valid]
    for index in extra:
        if index.definition in ours:
            yield warning(
                f"index {index.name} is the same as {ours[index.definition]}, and every job pays for both",
                f"`drop index concurrently public.{index.name}`",
                index=index.name,
                size=index.size,
            )
    if others := [index for index in extra if index.definition not in ours]:
        yield note(
            "indexes beside the queue's own: " + ", ".join(f"{index.name} ({index.size})" for index in others),
            "Every move of a job writes each of them: keep what a query of yours needs.",
            indexes=[index.name for index in others],
        )


def _is_as_made(index: Any, definition: str) -> bool:
    return bool(index.definition == f"btree {definition}" and index.unique == (index.name in _UNIQUE))
