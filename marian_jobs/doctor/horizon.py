"""Checks of what keeps dead rows from being cleared: old snapshots and transactions, and how far they have come."""

from collections.abc import Iterator
from typing import Any

from marian_jobs.doctor.finding import Finding, NotRun, counted, error, span, warning
from marian_jobs.doctor.patient import Patient

# Vacuum keeps what the oldest of these may still want to see; sessions of other databases do not count. What a session
# runs is not asked for: a statement's text may hold secrets.
_HOLDERS = """
with holder as (
  select 'session' as kind, a.pid::text as id, a.application_name as name, a.usename::text as role, a.state,
         greatest(age(a.backend_xmin), age(a.backend_xid)) as transactions, clock_timestamp() - a.xact_start as since
    from pg_stat_activity a
   where a.datname = current_database() and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
  union all
  select 'standby', r.pid::text, r.application_name, r.usename::text, r.state, age(r.backend_xmin), null
    from pg_stat_replication r
  union all
  select 'replication slot', s.slot_name::text, s.plugin::text, null,
         case when s.active then 'active' else 'inactive' end, greatest(age(s.xmin), age(s.catalog_xmin)), null
    from pg_replication_slots s
   where s.database is null or s.database = current_database()
  union all
  select 'prepared transaction', p.gid, null, p.owner::text, 'prepared', age(p.transaction),
         clock_timestamp() - p.prepared
    from pg_prepared_xacts p
   where p.database = current_database()
)
select * from holder h where h.transactions is not null or h.since is not null order by h.transactions desc nulls last
"""

_SEES_ALL = """
select current_user as me, pg_has_role(current_user, 'pg_read_all_stats', 'usage') as all
"""

_AGES = """
select d.datname as database, age(d.datfrozenxid) as of_database,
       (select max(age(c.relfrozenxid)) from pg_class c
         where c.oid = t.oid or c.oid = (select reltoastrelid from pg_class where oid = t.oid)) as of_table,
       (select max(age(c.relfrozenxid)) || ' in ' || c.relnamespace::regnamespace || '.' || c.relname from pg_class c
         where c.relkind in ('r', 't', 'm') group by c.oid order by max(age(c.relfrozenxid)) desc limit 1) as worst
  from pg_database d left join pg_class t on t.oid = to_regclass('public.marian_jobs')
 where d.datname = current_database()
"""

_REMEDY = {
    "session": "End it: `select pg_terminate_backend({id})`; and set idle_in_transaction_session_timeout for its role.",
    "standby": "It sends its own oldest snapshot (hot_standby_feedback): end the long query there.",
    "replication slot": "Let its consumer catch up, or drop it: `select pg_drop_replication_slot('{id}')`.",
    "prepared transaction": "Decide it: `commit prepared '{id}'` or `rollback prepared '{id}'`.",
}


def oldest_xmin(patient: Patient) -> Iterator[Finding]:
    """Whose snapshot keeps dead rows in the table, so that each claim reads past more of them."""
    bounds = patient.bounds
    for holder in _holders(patient):
        long = holder.transactions or 0
        if long >= bounds.held_transactions and holder.since is not None and holder.since >= bounds.held:
            since = f", for {span(holder.since)}"
        elif long >= bounds.slot_transactions and holder.since is None:
            since = ""
        else:
            continue
        yield warning(
            f"{_named(holder)} keeps dead rows from being cleared: {counted(long, 'transaction')} behind{since}",
            _REMEDY[holder.kind].format(id=holder.id),
            **_figures(holder),
        )


def long_transactions(patient: Patient) -> Iterator[Finding]:
    """Transactions that have been open for long, whatever they hold."""
    for holder in _holders(patient):
        if holder.since is not None and holder.since >= patient.bounds.transaction:
            yield warning(
                f"{_named(holder)}: its transaction has been open for {span(holder.since)}",
                _REMEDY[holder.kind].format(id=holder.id),
                **_figures(holder),
            )


def wraparound(patient: Patient) -> Iterator[Finding]:
    """How many transactions the oldest row that is not frozen is back; at 2.1 billion the server takes no more."""
    [row] = patient.ask(_AGES)
    age = max(row.of_database, row.of_table or 0)
    if age >= patient.bounds.frozen:
        make = error if age >= 1_200_000_000 else warning
        yield make(
            f"{counted(age, 'transaction')} since the oldest row not frozen, of 2.1 billion at most ({row.worst})",
            "Autovacuum should have frozen it long ago: end what holds the oldest snapshot (see oldest-xmin), then "
            "`vacuum (freeze)` that table.",
            of_database=row.of_database,
            of_table=row.of_table,
        )


def _holders(patient: Patient) -> list[Any]:
    """Who holds something, the oldest first; refuses to call well what it may not see."""
    [who] = patient.ask(_SEES_ALL)
    if not who.all:
        raise NotRun(f"role {who.me} sees only its own sessions: connect as postgres, or grant it pg_read_all_stats")
    return patient.ask(_HOLDERS)


def _named(holder: Any) -> str:
    about = ", ".join(part for part in (holder.name, holder.role, holder.state) if part)
    return f"{holder.kind} {holder.id}" + (f" ({about})" if about else "")


def _figures(holder: Any) -> dict[str, Any]:
    return dict(holder._asdict())
