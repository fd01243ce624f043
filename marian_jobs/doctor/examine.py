"""Asks every check, each by itself: what one cannot see or takes too long over does not keep the others from it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import psycopg
from psycopg import errors as pg

from marian_jobs.clock import Clock, utc_now
from marian_jobs.doctor import api, backlog, connection, horizon, indexes, locks, schema, security, vacuum
from marian_jobs.doctor.finding import Bounds, Finding, NotRun, Outcome, Report, error
from marian_jobs.doctor.patient import LOCKED, NEEDS_DATABASE, DatabasePatient, Patient
from marian_jobs.errors import StoreRefused
from marian_jobs.stores.refusals import explain, parsed

Check = Callable[[Patient], Iterable[Finding]]

CHECKS: Final[Mapping[str, Check]] = {
    "schema-version": schema.schema_version,
    "changed-functions": schema.changed_functions,
    "table-checks": schema.table_checks,
    "missing-indexes": indexes.missing_indexes,
    "invalid-indexes": indexes.invalid_indexes,
    "extra-indexes": indexes.extra_indexes,
    "missing-grants": security.missing_grants,
    "wide-grants": security.wide_grants,
    "row-security": security.row_security,
    "writable": connection.writable,
    "pooler-mode": connection.pooler_mode,
    "clock-difference": connection.clock_difference,
    "durability": connection.durability,
    "oldest-due": backlog.oldest_due,
    "unclaimed-types": backlog.unclaimed_types,
    "expired-leases": backlog.expired_leases,
    "dead-letters": backlog.dead_letters,
    "paused-types": backlog.paused_types,
    "lock-waits": locks.lock_waits,
    "long-transactions": horizon.long_transactions,
    "oldest-xmin": horizon.oldest_xmin,
    "wraparound": horizon.wraparound,
    "dead-tuples": vacuum.dead_tuples,
    "autovacuum": vacuum.autovacuum,
}

_WITHOUT_QUEUE: Final = {"schema-version", "writable", "pooler-mode", "clock-difference", "durability"}
_RELOAD: Final = (
    "Run the migrations; where they have run, make PostgREST read the schema anew: `notify pgrst, 'reload schema'`. "
    "The key must be the service role's, and the schema public among those the API exposes."
)


def examine_database(
    dsn: str, bounds: Bounds | None = None, *, checks: Collection[str] = CHECKS.keys(), clock: Clock = utc_now
) -> Report:
    """What every check, or those named, says of the database; changes nothing in it.

    Raises `StoreUnavailable` and `StoreRefused` where it cannot be reached, `ValueError` for no connection string
    and for a check that there is not.
    """
    if unknown := set(checks) - set(CHECKS):
        raise ValueError(f"checks: there is no {', '.join(map(repr, sorted(unknown)))}; there are {', '.join(CHECKS)}")
    options = {"connect_timeout": "10", "application_name": "marian doctor", **parsed(dsn)}

    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(**options, autocommit=True, prepare_threshold=None)

    try:
        with connect() as opened:
            patient = DatabasePatient(opened, connect, bounds or Bounds(), clock)
            return Report(list(_answers(patient, checks)))
    except psycopg.Error as e:
        raise explain(e) from e


async def examine_project(project: api.Project, bounds: Bounds | None = None, *, clock: Clock = utc_now) -> Report:
    """What a project's API can tell: of each other check, why it was not run. Opens and closes the project's store.

    Raises `StoreUnavailable` where the API cannot be reached.
    """
    try:
        patient = await api.examined(project, bounds or Bounds(), clock)
    except StoreRefused as e:
        refused = error(f"the API does not serve the queue: {e}", _RELOAD)
        return Report([Outcome("api", [refused]), *(Outcome(name, not_run=NEEDS_DATABASE) for name in CHECKS)])
    return Report([Outcome("api"), *(_answer(name, check, patient, nullcontext) for name, check in CHECKS.items())])


def _answers(patient: DatabasePatient, checks: Collection[str]) -> Iterator[Outcome]:
    absent = _answer("schema-version", schema.refuse_absent, patient, patient.reading).not_run
    for name, check in ((name, check) for name, check in CHECKS.items() if name in checks):
        if absent and name not in _WITHOUT_QUEUE:
            yield Outcome(name, not_run=absent)
        else:
            yield _answer(name, check, patient, patient.reading)


def _answer(name: str, check: Check, patient: Patient, asking: Callable[[], AbstractContextManager[None]]) -> Outcome:
    try:
        with asking():
            return Outcome(name, list(check(patient)))
    except NotRun as e:
        return Outcome(name, not_run=str(e))
    except pg.InsufficientPrivilege as e:
        return Outcome(name, not_run=f"{_said(e)}: connect as postgres, the owner, or service_role")
    except (pg.UndefinedTable, pg.UndefinedFunction, pg.UndefinedColumn, pg.InvalidSchemaName) as e:
        return Outcome(name, not_run=f"the schema is not there or another version ({_said(e)})")
    except pg.LockNotAvailable:
        return Outcome(name, not_run=LOCKED)
    except pg.QueryCanceled:
        return Outcome(name, not_run="it took too long")
    except psycopg.OperationalError:
        raise  # the connection is lost, and with it whatever else there is to ask
    except psycopg.Error as e:
        return Outcome(name, not_run=_said(e))


def _said(e: psycopg.Error) -> str:
    return e.diag.message_primary or type(e).__name__
