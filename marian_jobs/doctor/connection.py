"""Checks of the way to the database: clocks, poolers, servers that take no writes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg

from marian_jobs.doctor.finding import Finding, error, note, span, warning
from marian_jobs.doctor.patient import Patient

_ROUNDS = 3


def clock_difference(patient: Patient) -> Iterator[Finding]:
    """This machine's clock against the database's; what the answer's way took is not counted."""
    readings = [patient.clock_reading for _ in range(_ROUNDS)]
    best = min(readings, key=lambda r: r.after - r.before)
    difference = max(best.before - best.there, best.there - best.after, timedelta(0))
    if difference >= patient.bounds.clock:
        ahead = best.before > best.there
        yield warning(
            f"this machine's clock is {span(difference)} {'ahead of' if ahead else 'behind'} the database's",
            "Leases and due times go by the database's clock and stay right; a run_after computed here does not. "
            "Keep the time by NTP, or give delay= in place of run_after=.",
            difference=difference if ahead else -difference,
        )


def writable(patient: Patient) -> Iterator[Finding]:
    """Replicas, and databases that were made read-only because their disk is full."""
    [row] = patient.ask(
        "select pg_is_in_recovery() as replica, current_setting('default_transaction_read_only') = 'on' as read_only"
    )
    if row.replica:
        yield error("this is a replica: it takes no writes", "Connect to the primary.")
    elif row.read_only:
        yield error(
            "transactions are read-only here by default",
            "Supabase sets that when the disk is full: make room or a larger disk. Else look who has set "
            "default_transaction_read_only, for the database or the role.",
        )


def pooler_mode(patient: Patient) -> Iterator[Finding]:
    """A pooler shows by a process id that is not the one of the login, its mode by two clients that share a session."""
    with patient.connect_again() as first, patient.connect_again() as second:
        if first.info.backend_pid == _session(first):
            return
        port, shared = first.info.port, _share_a_session(first, second)
    if not shared:
        yield note("a pooler stands in between, in session mode as it seems", "Workers can be woken through it.")
    elif port == 6543:
        yield note(
            "a transaction-mode pooler stands in between (port 6543, which PostgresStore recognises)",
            "Workers poll. A direct or session-mode connection (port 5432) lets them be woken.",
        )
    else:
        yield warning(
            "a transaction-mode pooler stands in between, and its port does not tell PostgresStore so: LISTEN, "
            "session locks and prepared statements do not work",
            "Connect directly or by a session-mode pooler, or say PostgresStore(url, pooler=True): workers then poll.",
        )


def durability(patient: Patient) -> Iterator[Finding]:
    """Settings by which a crash loses what was acknowledged."""
    names = ["fsync", "full_page_writes", "synchronous_commit"]
    rows = patient.ask("select name, setting from pg_settings where name = any(%s) and setting = 'off'", [names])
    if off := sorted(row.name for row in rows):
        yield note(
            f"{' and '.join(off)} off: a crash of the server may lose or run again what was acknowledged"
            + (", or the whole database" if off != ["synchronous_commit"] else ""),
            "For tests that is what one wants; in production set them on.",
            settings=off,
        )


def _share_a_session(first: psycopg.Connection[Any], second: psycopg.Connection[Any]) -> bool:
    """Whether the two, both connected, are ever given one session, or one of them two."""
    seen: list[set[int]] = [set(), set()]
    for _ in range(_ROUNDS):
        with first.transaction():
            seen[0].add(_session(first))
            seen[1].add(_session(second))
        for n, connection in enumerate((second, first)):
            seen[1 - n].add(_session(connection))
    return bool(seen[0] & seen[1]) or any(len(pids) > 1 for pids in seen)


def _session(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("select pg_backend_pid()").fetchone()
    return int(row[0]) if row else 0
