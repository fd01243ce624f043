"""Checks of the jobs themselves: what waits, what nobody claims, what nobody takes back, what dies."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from marian_jobs.doctor.finding import Finding, counted, error, note, span, warning
from marian_jobs.doctor.patient import Figures, Patient

_SHOWN = 5


def oldest_due(patient: Patient) -> Iterator[Finding]:
    """Types whose workers do not keep up."""
    late = [f for f in _waiting(patient, patient.bounds.due) if not _is_unclaimed(f, patient.bounds.unclaimed)]
    if late:
        limited = [limit.type for limit in patient.limits if limit.type in {f.type for f in late}]
        yield warning(
            f"due jobs wait: {_listed(late)}",
            "Run more workers, or raise their concurrency."
            + (f" A limit bounds {', '.join(map(repr, limited))}: see `marian limits`." if limited else ""),
            types={f.type: {"due": f.due, "oldest_due_age": f.oldest_due_age} for f in late},
        )


def unclaimed_types(patient: Patient) -> Iterator[Finding]:
    """Types with due jobs that no worker has claimed."""
    unclaimed = [f for f in _waiting(patient, patient.bounds.unclaimed) if _is_unclaimed(f, patient.bounds.unclaimed)]
    if unclaimed:
        yield error(
            f"no worker claims {_listed(unclaimed)}",
            "Start a worker that has a handler for each of these types; look for a misspelt type; "
            "`marian cancel` what nobody will ever run.",
            types={f.type: {"due": f.due, "oldest_due_age": f.oldest_due_age} for f in unclaimed},
        )


def expired_leases(patient: Patient) -> Iterator[Finding]:
    """Leases that are over and that nobody has taken back: any worker, of whatever type, would have."""
    total = patient.figures[0]
    age = total.oldest_expired_age
    if age is not None and age >= patient.bounds.expired:
        yield error(
            f"{counted(total.expired_leases, 'lease')} over and not reclaimed, the oldest for {span(age)}",
            "No worker is running, or none can reach the database: start one. `marian reclaim` does it by hand.",
            expired_leases=total.expired_leases,
            oldest_expired_age=age,
        )


def dead_letters(patient: Patient) -> Iterator[Finding]:
    """Types of which many jobs died in the last hour."""
    bounds = patient.bounds
    for f in patient.figures[1:]:
        ended = f.dead_recently + f.succeeded_recently
        if f.dead_recently >= bounds.dead_jobs and f.dead_recently >= bounds.dead_share * ended:
            yield warning(
                f"{f.type!r}: {f.dead_recently:,} of {counted(ended, 'job')} that ended in the last hour are dead",
                f"Read their errors: `marian jobs --status dead --type {f.type}`. Pause the type while you mend it, "
                "then `marian retry` each.",
                type=f.type,
                dead=f.dead_recently,
                ended=ended,
            )


def paused_types(patient: Patient) -> Iterator[Finding]:
    """Types that an operator has paused."""
    due = {f.type: f.due for f in patient.figures}
    if paused := [limit.type for limit in patient.limits if limit.paused]:
        listed = ", ".join(f"{type!r} ({due.get(type, 0):,} due)" for type in paused)
        yield note(f"paused: {listed}", "`marian resume TYPE` lets workers claim again.", types=paused)


def _waiting(patient: Patient, at_least: timedelta) -> list[Figures]:
    figures = patient.figures[1:]
    paused = {limit.type for limit in patient.limits if limit.paused}
    return [
        f for f in figures if f.oldest_due_age is not None and f.oldest_due_age >= at_least and f.type not in paused
    ]


def _is_unclaimed(f: Figures, at_least: timedelta) -> bool:
    """Nothing of the type runs, and no worker has moved a job of it for that long."""
    return not f.running and (f.last_worked_age is None or f.last_worked_age >= at_least)


def _listed(types: Sequence[Figures]) -> str:
    """The worst first, and only a few by name."""
    worst = sorted(types, key=lambda f: f.oldest_due_age or timedelta(0), reverse=True)
    named = [f"{f.type!r} ({f.due:,} due, the oldest for {span(f.oldest_due_age or timedelta(0))})" for f in worst]
    return ", ".join(named[:_SHOWN]) + (f" and {len(named) - _SHOWN} types more" if len(named) > _SHOWN else "")
