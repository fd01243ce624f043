"""What is examined: a database by a connection to it, or a project by what its API answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg import errors as pg
from psycopg.rows import namedtuple_row

from marian_jobs.clock import Clock
from marian_jobs.doctor.finding import Bounds, NotRun
from marian_jobs.store import TypeLimit

API_ROLES = ("anon", "authenticated", "service_role")
TABLES = ("marian_jobs", "marian_job_limits")
LOCKED = "something it reads is locked: see lock-waits"
NEEDS_DATABASE = "needs a database connection (MARIAN_DATABASE_URL)"
_PATIENCE = {"statement_timeout": timedelta(seconds=20), "lock_timeout": timedelta(seconds=1)}


@dataclass(frozen=True, slots=True)
class Figures:
    """A line of `marian_jobs_figures()`: how the jobs of a type stand; of all types where `type` is None."""

    measured_at: datetime
    type: str | None
    due: int
    oldest_due_age: timedelta | None
    running: int
    expired_leases: int
    oldest_expired_age: timedelta | None
    last_worked_age: timedelta | None
    succeeded_recently: int
    dead_recently: int
    oldest_age: timedelta | None


Parameters = Sequence[Any] | Mapping[str, Any]


class Reading(NamedTuple):
    """A look at the database's clock, between two at this machine's."""

    before: datetime
    there: datetime
    after: datetime


class Patient(Protocol):
    """What a check may ask; `NotRun` where this one cannot tell."""

    @property
    def bounds(self) -> Bounds:
        """From where on a figure is a finding."""

    @property
    def figures(self) -> Sequence[Figures]:
        """The line over all types, then one per type."""

    @property
    def limits(self) -> Sequence[TypeLimit]:
        """The types that are paused or limited."""

    @property
    def clock_reading(self) -> Reading:
        """The two clocks side by side."""

    def ask(self, text: str, parameters: Parameters = ()) -> list[Any]:
        """The rows that the database answers, as named tuples."""

    def connect_again(self) -> psycopg.Connection[Any]:
        """Another connection by the same connection string."""


class DatabasePatient:
    """A database, asked in transactions that only read and never wait for long."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        connect: Callable[[], psycopg.Connection[Any]],
        bounds: Bounds,
        clock: Clock,
    ) -> None:
        self.bounds = bounds
        self.connection = connection
        self._connect = connect
        self._clock = clock

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A transaction that can change nothing and gives up soon; of its own, since a pooler may change sessions."""
        with self.connection.transaction(force_rollback=True):
            self.connection.execute("set transaction read only")
            for name, limit in _PATIENCE.items():
                self.ask("select set_config(%s, %s, true)", [name, f"{limit // timedelta(milliseconds=1)}"])
            yield

    def ask(self, text: str, parameters: Parameters = ()) -> list[Any]:
        """See `Patient.ask`."""
        with self.connection.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(text.encode(), parameters or None).fetchall()

    def connect_again(self) -> psycopg.Connection[Any]:
        """See `Patient.connect_again`."""
        return self._connect()

    @property
    def figures(self) -> Sequence[Figures]:
        """See `Patient.figures`; read once, and given up once."""
        if isinstance(self._figures, NotRun):
            raise self._figures
        return self._figures

    @cached_property
    def _figures(self) -> Sequence[Figures] | NotRun:
        try:
            return [Figures(*row) for row in self.ask("select * from public.marian_jobs_figures()")]
        except pg.LockNotAvailable:
            return NotRun(LOCKED)
        except pg.QueryCanceled:
            return NotRun(
                f"reading the whole table takes longer than {_PATIENCE['statement_timeout'].total_seconds():g} s"
            )

    @cached_property
    def limits(self) -> Sequence[TypeLimit]:
        """See `Patient.limits`."""
        return [TypeLimit(*row) for row in self.ask("select * from public.job_limits()")]

    @property
    def clock_reading(self) -> Reading:
        """See `Patient.clock_reading`."""
        before = self._clock()
        [(there,)] = self.ask("select clock_timestamp()")
        return Reading(before, there, self._clock())


@dataclass(frozen=True)
class ProjectPatient:
    """A project, of which is known what its API has answered."""

    bounds: Bounds
    figures: Sequence[Figures]
    limits: Sequence[TypeLimit]
    clock_reading: Reading

    def ask(self, text: str, parameters: Parameters = ()) -> list[Any]:
        """Not over the API."""
        raise NotRun(NEEDS_DATABASE)

    def connect_again(self) -> psycopg.Connection[Any]:
        """Not over the API."""
        raise NotRun(NEEDS_DATABASE)
