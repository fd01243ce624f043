"""A producer under fire: `python -m chaos.producer` enqueues at a steady rate until SIGTERM, and keeps a journal."""

import asyncio
import json
import os
import random
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from chaos.journal import Journal
from marian_jobs import Enqueued, MarianError, NewJob, PostgresStore, Queue, StoreUnavailable, SupabaseStore, new_job

DEADLINE = timedelta(seconds=5)
KEYS = 40


def draw(chance: random.Random, owners: Sequence[str], *, keyed: bool) -> NewJob:
    """A job of any kind; about a third have one of the owners, and with `keyed` a third have one of few keys."""
    key = owner = None
    payload: dict[str, Any] = {"seconds": round(chance.expovariate(20), 3), "kindly": chance.random() < 0.5}
    most = 60  # far more than the run can cost it
    match chance.choices(["plain", "fails", "exhausts", "snoozes", "doomed", "long", "blocks", "dies"],
                         [600, 120, 20, 60, 40, 20, 1, 1])[0]:  # fmt: skip
        case "fails":
            payload["fails"] = chance.randint(1, 3)
        case "exhausts":
            payload["fails"], most = 1_000_000, 3
        case "snoozes":
            payload["snoozes"] = 1
        case "doomed":
            payload["doomed"] = True
        case "long":
            payload["seconds"] = 5
        case "blocks":
            payload |= {"blocks": True, "seconds": 2.5}
        case "dies":
            payload["dies"], most = True, 2
    if owners and chance.random() < 0.3:
        owner = chance.choice(owners)
    if keyed and chance.random() < 0.35:
        key = f"{owner}:{chance.randrange(KEYS)}"
        payload["doomed"] = chance.random() < 0.5  # so that keys are freed and taken again
        if owners and chance.random() < 0.05:
            key, owner = f"shared:{chance.randrange(4)}", chance.choice(owners)
    type = chance.choices(["loop", "thread", "settle", "process"], [55, 20, 24, 1])[0]
    if payload.get("blocks") or payload.get("dies"):
        type = "loop"
    return new_job(type, payload, user_id=owner, key=key, max_attempts=most, priority=chance.choice([-1, 0, 0, 5]))


class Producer:
    """Sends jobs, in one way of several."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._chance = random.Random(told["seed"])
        self._journal = Journal(Path(told["journal"]))
        self._pause = told["pause"]
        self._queue = Queue(
            SupabaseStore(told["url"], told["key"], deadline=DEADLINE)
            if "url" in told
            else PostgresStore(told["dsn"], deadline=DEADLINE)
        )

    async def run(self, until: asyncio.Event) -> None:
        """Until the event is set; then the call under way is ended properly."""
        transactional = self._told.get("transactional", False)
        while not until.is_set():
            count = 1 if self._chance.random() < 0.5 else self._chance.randint(2, 40)
            # One whose account is gone has its whole batch refused: large ones go without.
            owners = self._told["owners"] if count < 5 else []
            jobs = [draw(self._chance, owners, keyed=not transactional) for _ in range(count)]
            self._journal.note("sent", [(job.id, None) for job in jobs])
            await (self._in_transaction(jobs) if transactional else self._plainly(jobs))
            await asyncio.sleep(self._pause * count * self._chance.uniform(0.5, 1.5))
        await self._queue.close()

    async def _plainly(self, jobs: Sequence[NewJob]) -> None:
        try:
            answers = await self._queue.enqueue_many(jobs)
        except StoreUnavailable:
            pass  # it may or may not have had its effect: `sent` stands
        except MarianError:
            self._journal.note("refused", [(job.id, None) for job in jobs])
        except Exception as e:
            self._journal.note("sent", [(job.id, None) for job in jobs], leaked=repr(e)[:300])
        else:
            self._journal.note("acknowledged", _answered(jobs, answers))

    async def _in_transaction(self, jobs: Sequence[NewJob]) -> None:
        commits = self._chance.random() < 0.8
        fate = "sent"
        try:
            async with await psycopg.AsyncConnection.connect(self._told["dsn"]) as connection:
                answers = await self._queue.enqueue_many(jobs, connection=connection)
                for job in jobs:
                    await connection.execute("insert into chaos.orders (job) values (%s)", (job.id,))
                if not commits:
                    await connection.rollback()
                    fate = "rolled back"
            if commits:
                self._journal.note("acknowledged", _answered(jobs, answers))
        except (psycopg.Error, MarianError):
            pass  # ours, or the queue's: before the commit, or instead of its answer
        except Exception as e:
            self._journal.note("sent", [(job.id, None) for job in jobs], leaked=repr(e)[:300])
        if fate == "rolled back":
            self._journal.note(fate, [(job.id, None) for job in jobs])


def _answered(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> list[tuple[UUID, UUID | None]]:
    return [(job.id, answer.id) for job, answer in zip(jobs, answers, strict=True)]


async def main() -> None:
    """Produces what CHAOS_PRODUCER describes."""
    told = json.loads(os.environ["CHAOS_PRODUCER"])
    until = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, until.set)
    watching = asyncio.create_task(_go_with(told["parent"], until))
    await Producer(told).run(until)
    watching.cancel()


async def _go_with(parent: int, until: asyncio.Event) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(1)
    until.set()


if __name__ == "__main__":
    asyncio.run(main())
