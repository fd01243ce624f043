"""A job's way in the log: one verb for each move, and the job's names with it."""

import logging

import pytest

from marian_jobs import Job, MemoryStore, Queue, Worker

FIELDS = ("job_id", "job_type", "attempt", "duration")


async def test_each_move_is_a_line_that_names_the_job(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "marian_jobs")
    store = MemoryStore()
    worker = Worker(store)

    @worker.handler("t")
    async def handle(job: Job) -> None:
        if job.payload:
            raise ValueError("boom")

    good = await Queue(store).enqueue("t", key="k")
    await Queue(store).enqueue("t", key="k")
    await worker.tick()
    bad = await Queue(store).enqueue("t", {"a": 1}, max_attempts=1)
    await worker.tick()
    lines = [(r.getMessage(), {name: vars(r)[name] for name in FIELDS if name in vars(r)}) for r in caplog.records]
    durations = [fields.pop("duration") for _, fields in lines if "duration" in fields]
    queued, run = {"job_id": str(good.id), "job_type": "t"}, {"job_id": str(bad.id), "job_type": "t", "attempt": 1}
    assert lines == [
        ("job enqueued", queued),
        ("job found: its key has a live one", queued),
        ("job claimed", {**queued, "attempt": 1}),
        ("job succeeded", {**queued, "attempt": 1}),
        ("job enqueued", {"job_id": str(bad.id), "job_type": "t"}),
        ("job claimed", run),
        ("job failed: ValueError", run),
        ("job dead", run),
    ]
    assert [0 < seconds < 5 for seconds in durations] == [True, True]
