"""A run: the site is built, programs work, events fall on them; then all work is done in calm, and judged."""

import asyncio
import contextlib
import re
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from chaos import rules
from chaos.evidence import cases, moves_by_key, read_journals
from chaos.fleet import Fleet, Place
from chaos.monkey import Monkey
from chaos.operator import Operator
from chaos.plan import plan
from chaos.rules import Facts, Verdict
from chaos.site import Site, built
from marian_jobs import PostgresStore

OWNERS = 40
WORKER = ["-m", "marian_jobs", "worker", "chaos.app:worker", "--log-level", "WARNING"]
_TOLD = {
    "late reports refused": re.compile(r"late \w+ refused"),
    "leases lost and told to the handler": re.compile(r"lease lost: "),
    "outages told": re.compile(r"store unreachable"),
}
_ALARMING = re.compile(r"never retrieved|Fatal Python|Exception ignored|refused by the store|InternalError")

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Shape:
    """How long, how dense, how much: events every `gap` seconds, each producer pausing `pause` seconds per job."""

    seconds: float
    gap: float
    pause: float
    patience: float  # for the end of all work, in seconds


SHORT = Shape(seconds=16, gap=0.45, pause=0.012, patience=60)


@dataclass
class Outcome:
    """What a run found out."""

    verdicts: list[Verdict] = field(default_factory=list)
    survived: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    logs: Path = Path()

    @property
    def holds(self) -> bool:
        """Whether every promise held, and something was there to hold it to."""
        return bool(self.verdicts) and all(verdict.holds for verdict in self.verdicts) and self.moves["complete"] > 0


async def run(seed: int, shape: Shape, tell: Tell) -> Outcome:
    """Runs it all and judges it."""
    outcome = Outcome(logs=Path(tempfile.mkdtemp(prefix="marian-chaos-")))
    tell(f"seed {seed}, logs in {outcome.logs}")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # inherited: a worker whose clock is not ready yet ignores the jump
    async with built() as site:
        owners = await asyncio.to_thread(_made_owners, site.postgres.dsn())
        fleet = Fleet(_places(site, owners, seed, shape, outcome.logs))
        try:
            monkey = await _under_fire(site, fleet, owners, seed, shape, tell)
            leftovers = await _calm(site, fleet, shape, tell)
        finally:
            fleet.end()
        tell("judging")
        await asyncio.to_thread(_judge, outcome, site, fleet)
        outcome.verdicts += [_none_of("nothing is left behind: no process, no connection", leftovers)]
        for counted in (monkey.survived, fleet.survived, site.survived, *(p.survived for p in site.proxies.values())):
            outcome.survived += counted
    return outcome


def _places(site: Site, owners: Sequence[UUID], seed: int, shape: Shape, logs: Path) -> list[Place]:
    ledger = f"{site.postgres.dsn()}&application_name=chaos"
    by_proxy, direct = {"dsn": site.dsn}, {"dsn": site.postgres.dsn()}
    by_api = {"url": site.url, "key": site.keys.service_role}
    usual = ["loop", "thread", "settle"]

    def worker(name: str, way: dict[str, str], types: list[str], concurrency: int) -> Place:
        told = {**way, "ledger": ledger, "types": types, "concurrency": concurrency}
        return _place(f"worker {name}", WORKER, "CHAOS_WORKER", told, seed, logs)

    def producer(name: str, way: dict[str, str]) -> Place:
        told = {
            **way,
            "journal": str(logs / f"producer-{name}.jsonl"),
            "pause": shape.pause,
            "owners": [str(owner) for owner in owners],
            "transactional": name == "transaction",
        }
        return _place(f"producer {name}", ["-m", "chaos.producer"], "CHAOS_PRODUCER", told, seed, logs)

    return [
        worker("postgres-1", by_proxy, usual, 10),
        worker("postgres-2", by_proxy, usual, 10),
        worker("direct", direct, ["process", *usual], 3),
        worker("api-1", by_api, ["loop", "thread"], 10),
        worker("api-2", by_api, ["loop", "thread"], 10),
        producer("postgres", by_proxy),
        producer("api", by_api),
        producer("transaction", by_proxy),
    ]


def _place(name: str, command: list[str], variable: str, told: dict[str, Any], seed: int, logs: Path) -> Place:
    return Place(
        name,
        command,
        variable,
        lambda number: {**told, "seed": f"{seed}/{name}/{number}"},
        logs / f"{name.replace(' ', '-')}.log",
    )


async def _under_fire(site: Site, fleet: Fleet, owners: Sequence[UUID], seed: int, shape: Shape, tell: Tell) -> Monkey:
    monkey = Monkey(site, fleet, owners)
    events = plan(seed, shape.seconds, shape.gap)
    fleet.start()
    await _until(lambda: _has_begun(site.postgres.dsn()), 30)
    tell(f"under fire for {shape.seconds:g} s: {len(events)} events")
    async with _operating(site, seed) as operator:
        await monkey.perform(events)
    monkey.survived += operator.survived
    return monkey


@asynccontextmanager
async def _operating(site: Site, seed: int) -> AsyncIterator[Operator]:
    async with PostgresStore(site.dsn) as store:
        operator = Operator(store, site.postgres.dsn(), seed)
        task = asyncio.create_task(operator.work())
        try:
            yield operator
        finally:
            task.cancel()
            await asyncio.wait({task})


async def _calm(site: Site, fleet: Fleet, shape: Shape, tell: Tell) -> list[str]:
    """Stops the producers, lets the workers finish, stops them; returns what is left behind."""
    await fleet.stop("producer", 15)
    tell("calm: the rest is worked off")
    await _until(lambda: not _unfinished(site.postgres.dsn()), shape.patience)
    await fleet.stop("worker", 20)
    await _until(lambda: not fleet.leftovers(), 10)
    await asyncio.to_thread(site.rest.stop)
    await _until(lambda: not site.connections(), 5)
    return fleet.leftovers() + site.connections()


def _judge(outcome: Outcome, site: Site, fleet: Fleet) -> None:
    dsn = site.postgres.dsn()
    leaked = read_journals(dsn, sorted(outcome.logs.glob("producer-*.jsonl")))
    with psycopg.connect(dsn) as connection:
        there = {row[0] for row in connection.execute("select id from auth.users")}
        owners = {
            row[0] for row in connection.execute("select distinct owner from chaos.moves where owner is not null")
        }
        killers = {row[0] for row in connection.execute("select pid from chaos.ledger where what = 'dies'")}
        outcome.fates.update(dict(connection.execute("select fate, count(*) from chaos.sent group by fate").fetchall()))
    facts = Facts(frozenset(owners - there), pruned=True)
    outcome.verdicts = rules.judge(cases(dsn), facts, outcome.moves)
    outcome.verdicts.append(rules.judge_keys(moves_by_key(dsn)))
    outcome.survived["workers killed by a job"] += len(killers)
    ended = [f"process {pid} was killed by nobody we know" for pid in fleet.killed if pid not in killers]
    outcome.verdicts += [
        _none_of("no process ends unasked", fleet.unasked + ended),
        _none_of("no caller sees a driver's error", leaked),
        _none_of("no alarming word in a log", _read_logs(outcome)),
    ]


def _read_logs(outcome: Outcome) -> list[str]:
    """Counts what the workers told, and returns the lines that should not be there."""
    alarming = []
    for file in sorted(outcome.logs.glob("*.log")):
        with file.open(errors="replace") as lines:
            for line in lines:
                for what, pattern in _TOLD.items():
                    outcome.survived[what] += bool(pattern.search(line))
                if _ALARMING.search(line):
                    alarming.append(f"{file.name}: {line.strip()[:200]}")
    return alarming


def _none_of(promise: str, faults: list[str]) -> Verdict:
    verdict = Verdict(promise, examined=1)
    for fault in faults:
        verdict.add(fault)
    return verdict


def _made_owners(dsn: str) -> list[UUID]:
    owners = [uuid4() for _ in range(OWNERS)]
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "insert into auth.users (id, email) values (%s, %s)", [(id, f"{id}@example.com") for id in owners]
        )
    return owners


def _has_begun(dsn: str) -> bool:
    return _number(dsn, "select count(distinct pid) from chaos.ledger") >= 3


def _unfinished(dsn: str) -> int:
    return _number(dsn, "select count(*) from public.marian_jobs where status not in ('succeeded', 'dead')")


def _number(dsn: str, query: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0


async def _until(condition: Callable[[], bool], within: float) -> None:
    """Waits for the condition, at most so long: what did not come about is found by the rules."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            while not await asyncio.to_thread(condition):
                await asyncio.sleep(0.2)
