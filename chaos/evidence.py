"""What is known of each job at the end, from independent witnesses, put side by side."""

import heapq
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

WITNESS = Path(__file__).with_name("witness.sql")


class Move(NamedTuple):
    """One committed change of a row, as the trigger saw it; `old_status` None for an insert, `status` for a delete."""

    job: UUID
    seq: int
    at: datetime
    key: str | None
    owner: UUID | None
    type: str
    old_status: str | None
    old_attempts: int | None
    old_max: int | None
    old_lease: datetime | None
    status: str | None
    attempts: int | None
    max_attempts: int | None
    lease_until: datetime | None
    error: str | None


class Entry(NamedTuple):
    """A line that a handler wrote: `start` before anything else, `end` when all was done, `dies` before it kills."""

    job: UUID
    id: int
    at: datetime
    attempt: int
    what: str


class Effect(NamedTuple):
    """A row that a handler wrote in the transaction in which it completed its job."""

    job: UUID
    attempt: int


class Order(NamedTuple):
    """A row that a producer wrote in the transaction in which it enqueued the job."""

    job: UUID


class Sent(NamedTuple):
    """What a producer knows of a job it sent: see `chaos.journal`."""

    job: UUID
    fate: str
    answer: UUID | None
    by: str


class Cancel(NamedTuple):
    """The run asked for this job to be cancelled."""

    job: UUID


class Final(NamedTuple):
    """The row as it stands at the end."""

    job: UUID
    status: str


@dataclass
class Case:
    """One job, and all that is known of it."""

    job: UUID
    moves: list[Move] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    final: Final | None = None

    def add(self, fact: tuple[Any, ...]) -> None:
        """Takes a fact of any kind."""
        match fact:
            case Move():
                self.moves.append(fact)
            case Entry():
                self.entries.append(fact)
            case Effect():
                self.effects.append(fact)
            case Order():
                self.orders.append(fact)
            case Sent():
                self.sent.append(fact)
            case Cancel():
                self.cancels.append(fact)
            case Final():
                self.final = fact


# Each in the order of jobs, so that they can be merged without holding more than one job in memory.
_FACTS: dict[type[Any], str] = {
    Move: "select job, seq, at, key, owner, type, old_status, old_attempts, old_max, old_lease, status, attempts, "
    "max_attempts, lease_until, error from chaos.moves order by job, seq",
    Entry: "select job, id, at, attempt, what from chaos.ledger order by job, id",
    Effect: "select job, attempt from chaos.effects order by job",
    Order: "select job from chaos.orders order by job",
    Sent: "select job, fate, answer, by from chaos.sent order by job",
    Cancel: "select job from chaos.cancels order by job",
    Final: "select id, status from public.marian_jobs order by id",
}
_BY_KEY = (
    "select job, seq, at, key, owner, type, old_status, old_attempts, old_max, old_lease, status, attempts, "
    "max_attempts, lease_until, error from chaos.moves where key is not null order by key, seq"
)


def install(dsn: str) -> None:
    """Makes the witness in a migrated database."""
    with psycopg.connect(dsn) as connection:
        connection.execute(WITNESS.read_bytes())


def read_journals(dsn: str, files: Sequence[Path]) -> list[str]:
    """Puts the producers' journals into the database; returns the errors in them that no producer should ever see."""
    leaked: list[str] = []
    with psycopg.connect(dsn) as connection:
        for file in files:
            fates: dict[str, tuple[str, str | None]] = {}
            for line in _whole_lines(file):
                if "leaked" in line:
                    leaked.append(f"{file.stem}: {line['leaked']}")
                fates |= {job: (line["fate"], answer) for job, answer in line["jobs"]}
            with connection.cursor() as cursor:
                cursor.executemany(
                    "insert into chaos.sent (job, fate, answer, by) values (%s, %s, %s, %s)",
                    [(job, fate, answer, file.stem) for job, (fate, answer) in fates.items()],
                )
    return leaked


def _whole_lines(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text().splitlines():
        if line.endswith("}"):  # else its producer was killed while it wrote
            yield json.loads(line)


def cases(dsn: str) -> Iterator[Case]:
    """Every job that any witness knows, in the order of ids."""
    with ExitStack() as stack:
        streams = [_stream(stack, dsn, kind, query) for kind, query in _FACTS.items()]
        for job, facts in groupby(heapq.merge(*streams, key=lambda fact: fact[0]), key=lambda fact: fact[0]):
            case = Case(job)
            for fact in facts:
                case.add(fact)
            yield case


def moves_by_key(dsn: str) -> Iterator[Move]:
    """The moves of all jobs with a key, in the order of keys, and of time within a key."""
    with ExitStack() as stack:
        yield from _stream(stack, dsn, Move, _BY_KEY)


def _stream(stack: ExitStack, dsn: str, kind: type[Any], query: str) -> Iterator[Any]:
    connection = stack.enter_context(psycopg.connect(dsn))
    cursor = stack.enter_context(connection.cursor("facts"))
    cursor.execute(sql.SQL(query))
    return (kind(*row) for row in cursor)
