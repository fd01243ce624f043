"""Stores with one guard taken away: what the plays must find out, or they prove nothing."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from marian_jobs import Job, MemoryStore, machine
from marian_jobs.job import Held


class ForgetsTheToken(MemoryStore):
    """Takes a result from whoever sends it, as long as the job runs."""

    async def complete(self, held: Sequence[Held], *, connection: object | None = None) -> set[Held]:
        newest = {token: self._jobs[token.id].held for token in held if token.id in self._jobs}
        accepted = await super().complete(list(newest.values()))
        return {token for token, now in newest.items() if now in accepted}


class ForgetsTheBudget(MemoryStore):
    """Always reclaims for one more attempt."""

    def _keep(self, job: Job) -> Job:
        if job.error == machine.LEASE_OVER and job.status is machine.D:
            job = replace(job, status=machine.T)
        return super()._keep(job)


class ReclaimsAMomentLate(MemoryStore):
    """Takes a lease that is over at this very moment for one that still holds."""

    async def reclaim(self, limit: int = 1000) -> list[Job]:
        clock, early = self._clock, self._clock() - timedelta(microseconds=1)
        self._clock = lambda: early
        try:
            return await super().reclaim(limit)
        finally:
            self._clock = clock


class RevivesWhatSucceeded(MemoryStore):
    """Lets an operator retry any finished job."""

    async def retry(self, job_id: UUID, max_attempts: int | None = None) -> Job | None:
        job = self._jobs.get(job_id)
        if job is not None and job.status is machine.S:
            return self._keep(replace(job, status=machine.Q, max_attempts=job.attempts + 1))
        return await super().retry(job_id, max_attempts)


IN_MEMORY = [ForgetsTheToken, ForgetsTheBudget, ReclaimsAMomentLate, RevivesWhatSucceeded]
