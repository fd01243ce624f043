"""A user reads exactly its own jobs, with the public key, over the real PostgREST."""

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from marian_jobs import PostgresStore, Status, StoreRefused, StoreUnavailable, UserJobs, new_job
from tests.fix_stack import Stack

LEASE = timedelta(seconds=30)


@pytest.fixture
def users(stack: Stack) -> list[tuple[str, str]]:
    """Two accounts, id and access token each, and an empty queue."""
    with psycopg.connect(stack.dsn) as connection:
        connection.execute("truncate public.marian_jobs")
    return [stack.create_user(f"{uuid4()}@example.com") for _ in range(2)]


def jobs_of(stack: Stack, token: str, key: str | None = None) -> UserJobs:
    return UserJobs(stack.url, key or stack.anon_key, token)


async def test_each_user_sees_its_own_and_nobody_elses(stack: Stack, users: list[tuple[str, str]]) -> None:
    (a, token_a), (b, token_b) = users
    async with PostgresStore(stack.dsn) as store:
        mine, theirs, nobodys = await store.enqueue([new_job("t", user_id=a), new_job("t", user_id=b), new_job("t")])
    async with jobs_of(stack, token_a) as jobs_a, jobs_of(stack, token_b, stack.publishable_key) as jobs_b:
        assert [job.id for job in (await jobs_a.list()).jobs] == [mine.id]
        assert [job.id for job in (await jobs_b.list()).jobs] == [theirs.id]
        assert (await jobs_a.get(mine.id)) is not None
        assert await jobs_a.get(theirs.id) is None
        assert await jobs_a.get(nobodys.id) is None


async def test_pages_continue_where_the_last_ended(stack: Stack, users: list[tuple[str, str]]) -> None:
    (a, token), _ = users
    async with PostgresStore(stack.dsn) as store:
        await store.enqueue([new_job("even" if n % 2 == 0 else "odd", {"n": n}, user_id=a) for n in range(7)])
    async with jobs_of(stack, token) as jobs:
        seen, cursor = [], None
        while True:
            page = await jobs.list(limit=3, before=cursor)
            seen += [job.payload["n"] for job in page.jobs]
            if (cursor := page.next) is None:
                break
        assert seen == [6, 5, 4, 3, 2, 1, 0]
        assert [job.payload["n"] for job in (await jobs.list(type="odd")).jobs] == [5, 3, 1]
        assert (await jobs.list(status=Status.DEAD)).jobs == []


@pytest.mark.parametrize("realtime", [False, True], ids=["at intervals", "asking for Realtime where there is none"])
async def test_a_watched_job_tells_each_change_until_it_is_finished(
    stack: Stack, users: list[tuple[str, str]], realtime: bool
) -> None:
    (a, token), _ = users
    seen: list[Status] = []
    reading = UserJobs(stack.url, stack.anon_key, token, realtime=realtime)
    async with PostgresStore(stack.dsn) as store, reading as jobs:
        (job,) = await store.enqueue([new_job("t", user_id=a)])

        async def watch() -> None:
            watched = jobs.watch(job.id, every=timedelta(milliseconds=20))
            async for now in watched:
                seen.append(now.status)  # noqa: PERF401 - the test looks at it meanwhile

        watching = asyncio.create_task(watch())
        while seen != [Status.QUEUED]:
            await asyncio.sleep(0.01)
        (claimed,) = await store.claim(1, None, LEASE)
        while seen[-1] is not Status.RUNNING:
            await asyncio.sleep(0.01)
        await store.complete([claimed.held])
        await asyncio.wait_for(watching, 5)
    assert seen == [Status.QUEUED, Status.RUNNING, Status.SUCCEEDED]


async def test_the_newest_jobs_are_told_once_and_again_when_they_change(
    stack: Stack, users: list[tuple[str, str]]
) -> None:
    (a, token), _ = users
    async with PostgresStore(stack.dsn) as store, jobs_of(stack, token) as jobs, asyncio.timeout(10):
        await store.enqueue([new_job("t", {"n": n}, user_id=a) for n in range(2)])
        watched = jobs.watch_newest(every=timedelta(milliseconds=20))
        assert [(await anext(watched)).payload["n"] for _ in range(2)] == [0, 1]
        next_told = asyncio.ensure_future(anext(watched))
        await store.enqueue([new_job("t", {"n": 2}, user_id=a)])
        assert (await next_told).payload["n"] == 2
        (claimed,) = await store.claim(1, None, LEASE)
        told = await anext(watched)
        assert (told.id, told.status) == (claimed.id, Status.RUNNING)
        await watched.aclose()


@pytest.mark.parametrize("limit", [0, 501])
async def test_a_page_larger_than_the_api_answers_is_refused(
    stack: Stack, users: list[tuple[str, str]], limit: int
) -> None:
    async with jobs_of(stack, users[0][1]) as jobs:
        with pytest.raises(ValueError, match="limit"):
            await jobs.list(limit=limit)


async def test_a_token_may_be_renewed_for_each_call(stack: Stack, users: list[tuple[str, str]]) -> None:
    tokens = [users[0][1], users[1][1]]

    async def next_token() -> str:
        return tokens.pop(0)

    async with UserJobs(stack.url, stack.anon_key, next_token) as jobs:
        await jobs.list()
        await jobs.list()
    assert tokens == []


def test_the_service_key_is_refused_by_kind(stack: Stack, users: list[tuple[str, str]]) -> None:
    for key in (stack.service_role_key, stack.secret_key):
        with pytest.raises(ValueError, match="service key"):
            UserJobs(stack.url, key, users[0][1])
        with pytest.raises(ValueError, match="service key"):
            UserJobs(stack.url, stack.anon_key, key)


async def test_a_bad_token_is_a_refusal_and_shows_nothing(stack: Stack, users: list[tuple[str, str]]) -> None:
    forged = users[0][1][:-4] + "AAAA"
    async with jobs_of(stack, forged) as jobs:
        with pytest.raises(StoreRefused) as refusal:
            await jobs.list()
    assert forged not in str(refusal.value) + repr(jobs)


async def test_an_api_that_is_away_is_an_outage(users: list[tuple[str, str]]) -> None:
    deadline = timedelta(seconds=0.5)
    async with UserJobs("http://127.0.0.1:1", "anon", users[0][1], deadline=deadline) as jobs:
        with pytest.raises(StoreUnavailable):
            await jobs.get(UUID(int=0))
