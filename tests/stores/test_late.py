"""K18: a job that outlasts its lease each time is dead in the end, and no late result brings it back."""

import asyncio
from datetime import timedelta

from marian_jobs import Status, Store, new_job
from marian_jobs.store import Failure

LEASE = timedelta(milliseconds=30)


async def test_a_job_whose_lease_ran_out_each_time_starts_three_times_and_stays_dead(store: Store) -> None:
    (job,) = await store.enqueue([new_job("t", max_attempts=3)])
    held = []
    while claimed := await store.claim(1, None, LEASE):
        held.append(claimed[0].held)
        await asyncio.sleep(LEASE.total_seconds() * 1.5)
        await store.reclaim()
    dead = await store.get(job.id)
    assert dead is not None
    assert ([token.attempt for token in held], dead.status) == ([1, 2, 3], Status.DEAD)

    assert await store.complete(held) == set()
    assert await store.fail([Failure(*token, "late") for token in held]) == []
    assert await store.extend(held, LEASE) == set()
    assert await store.release(held) == []
    assert await store.get(job.id) == dead
