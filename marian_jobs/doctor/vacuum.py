"""Checks of what Postgres clears away behind the queue: every job leaves two dead versions of its row."""

from collections.abc import Iterator
from datetime import timedelta

from marian_jobs.doctor.finding import Finding, counted, error, span, warning
from marian_jobs.doctor.patient import TABLES, Patient

# Counters begin anew with a crash, and so does what is known of the last vacuum.
_STATISTICS = """
select s.n_dead_tup as dead, s.n_live_tup as live, greatest(s.last_vacuum, s.last_autovacuum) as vacuumed,
       clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum) as ago,
       clock_timestamp() - greatest(b.stats_reset, d.stats_reset, pg_postmaster_start_time()) as known_for,
       coalesce((select option_value::int8 from pg_options_to_table(c.reloptions)
                  where option_name = 'autovacuum_vacuum_threshold'),
                current_setting('autovacuum_vacuum_threshold')::int8)
       + coalesce((select option_value::float8 from pg_options_to_table(c.reloptions)
                    where option_name = 'autovacuum_vacuum_scale_factor'),
                  current_setting('autovacuum_vacuum_scale_factor')::float8) * greatest(c.reltuples, 0) as trigger,
       exists (select from pg_stat_progress_vacuum p where p.relid = c.oid) as under_way
  from pg_class c
  join pg_stat_user_tables s on s.relid = c.oid
  join pg_stat_database d on d.datname = current_database()
 cross join pg_stat_bgwriter b
 where c.oid = to_regclass('public.marian_jobs')
"""

_DISABLED = """
select c.relnamespace::regnamespace || '.' || c.relname as name
  from pg_class c
 where (c.oid = any (%(tables)s::regclass[])
        or c.oid in (select t.reltoastrelid from pg_class t where t.oid = any (%(tables)s::regclass[])))
   and exists (select from pg_options_to_table(c.reloptions)
                where option_name = 'autovacuum_enabled' and not option_value::bool)
"""


def dead_tuples(patient: Patient) -> Iterator[Finding]:
    """Dead rows that no vacuum has come by to clear, for longer than an autovacuum takes to come."""
    bounds, [found] = patient.bounds, patient.ask(_STATISTICS)
    if found.dead < max(bounds.dead_rows, 10 * found.trigger) or found.under_way:
        return
    # How long they can have lain there: since the last vacuum, the oldest job, or the statistics' beginning.
    ages = (found.ago, found.known_for, patient.figures[0].oldest_age)
    lain = min((age for age in ages if age is not None), default=timedelta(0))
    if lain >= bounds.unvacuumed:
        share = found.dead / (found.dead + found.live)
        yield warning(
            f"{counted(found.dead, 'dead row')} ({share:.0%}) beside {found.live:,} live ones, "
            f"and no vacuum for {span(lain)}",
            "Each claim reads past them. `vacuum public.marian_jobs` now; then see why autovacuum does not come: it is "
            "off, its workers are busy with other tables, or a lock on the table sends it away.",
            dead=found.dead,
            live=found.live,
            ratio=round(share, 3),
            last_vacuum=found.vacuumed,
        )


def autovacuum(patient: Patient) -> Iterator[Finding]:
    """Autovacuum that never comes."""
    [row] = patient.ask("select current_setting('autovacuum') as on, current_setting('track_counts') as counting")
    if "off" in row:
        yield error(
            "autovacuum is off on this server"
            if row.on == "off"
            else "track_counts is off, so autovacuum never starts",
            "Set autovacuum and track_counts on: without them dead rows pile up, and in the end the server stops.",
        )
    tables = [f"public.{table}" for table in TABLES]
    if disabled := [row.name for row in patient.ask(_DISABLED, {"tables": tables})]:
        yield error(
            f"autovacuum is disabled for {', '.join(disabled)}",
            f"`alter table {disabled[0]} reset (autovacuum_enabled)`; then `vacuum public.marian_jobs`.",
            tables=disabled,
        )
