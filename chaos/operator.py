"""An operator amid it all: cancels, retries what is dead, reclaims, prunes, asks how things stand."""

import asyncio
import random
from collections import Counter
from datetime import timedelta

import psycopg

from marian_jobs import JobFilter, MarianError, PostgresStore, Status

PRUNED_AFTER = timedelta(seconds=12)  # longer than any producer tries to send one job: its deadline is 5 s


class Operator:
    """Acts through `store`, and notes by `ledger` what it is about to cancel."""

    def __init__(self, store: PostgresStore, ledger: str, seed: int) -> None:
        self._store = store
        self._ledger = ledger
        self._chance = random.Random(f"operator/{seed}")
        self.survived: Counter[str] = Counter()

    async def work(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.2, 0.8))
            try:
                await self._act()
            except (MarianError, psycopg.Error) as e:
                self.survived[f"operator: {type(e).__name__}"] += 1

    async def _act(self) -> None:
        match self._chance.choice(["cancel", "cancel", "retry", "reclaim", "prune", "stats"]):
            case "cancel":
                await self._cancel()
            case "retry":
                await self._retry()
            case "reclaim":
                self.survived["operator: reclaimed"] += len(await self._store.reclaim())
            case "prune":
                self.survived["operator: pruned"] += await self._store.prune(PRUNED_AFTER, PRUNED_AFTER, 50)
            case "stats":
                await self._store.stats()

    async def _cancel(self) -> None:
        status = self._chance.choice([Status.QUEUED, Status.RUNNING, Status.RETRYING])
        jobs = await self._store.find(JobFilter(status=status, limit=20))
        if not jobs:
            return
        job = self._chance.choice(jobs)
        async with await psycopg.AsyncConnection.connect(self._ledger) as connection:
            await connection.execute("insert into chaos.cancels (job) values (%s)", (job.id,))
        self.survived["operator: cancelled"] += (await self._store.cancel(job.id)) is not None

    async def _retry(self) -> None:
        dead = await self._store.find(JobFilter(status=Status.DEAD, limit=20))
        if dead:
            job = self._chance.choice(dead)
            self.survived["operator: retried"] += (await self._store.retry(job.id, 3)) is not None
