"""A check of who waits for whom on the queue's tables."""

from collections.abc import Iterator

from marian_jobs.doctor.finding import Finding, counted, span, warning
from marian_jobs.doctor.patient import TABLES, Patient

# Who waits for a row waits for its holder's transaction, and itself holds or awaits a lock on the table. Advisory locks
# are no part of it: workers sleep on them.
_WAITS = """
with waiter as (
  select distinct w.pid, clock_timestamp() - w.waitstart as waiting, pg_blocking_pids(w.pid) as blockers
    from pg_locks w
   where not w.granted and w.locktype <> 'advisory' and w.waitstart is not null
     and exists (select from pg_locks t
                  where t.pid = w.pid and t.locktype = 'relation'
                    and t.database = (select oid from pg_database where datname = current_database())
                    and t.relation in (select to_regclass('public.' || name) from unnest(%s::text[]) name))
), holder as (
  select distinct b.pid, a.application_name as name, a.usename as role, a.state
    from waiter w cross join unnest(w.blockers) as b(pid) left join pg_stat_activity a on a.pid = b.pid
   where b.pid not in (select pid from waiter)
)
select (select count(*) from waiter) as count, (select max(waiting) from waiter) as longest,
       array_agg(h.pid || format(' (%%s)', concat_ws(', ', nullif(h.name, ''), h.role, h.state))) as blockers,
       array_agg(h.pid) as pids
  from holder h
"""


def lock_waits(patient: Patient) -> Iterator[Finding]:
    """Sessions that have waited long for a lock on the table or one of its rows, and behind whom."""
    [found] = patient.ask(_WAITS, [list(TABLES)])
    if found.count and found.longest >= patient.bounds.lock_wait:
        behind = ", ".join(found.blockers or ["each other"])
        yield warning(
            f"{counted(found.count, 'session')} waiting for a lock on the queue, "
            f"the longest for {span(found.longest)}, behind {behind}",
            "Let that transaction end, or end it: `select pg_terminate_backend(PID)`. Schema changes want "
            "lock_timeout, and indexes `create index concurrently`.",
            waiting=found.count,
            longest=found.longest,
            blockers=found.pids or [],
        )
