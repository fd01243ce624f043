"""Over HTTP: lost replies, wrong keys, missing schema, busy gateways; K45, K52, K53, K64 through it."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from marian_jobs import JobFilter, NotSupported, Status, StoreRefused, StoreUnavailable, SupabaseStore, Worker, new_job
from marian_jobs.store import Failure
from marian_jobs.tokens import mint
from tests.fix_proxy import Proxy
from tests.fix_stack import JWT_SECRET, Stack

LEASE = timedelta(seconds=30)


@pytest.fixture(autouse=True)
def emptied(stack: Stack) -> None:
    with psycopg.connect(stack.dsn) as connection:
        connection.execute("truncate public.marian_jobs")


@asynccontextmanager
async def through_proxy(stack: Stack) -> AsyncIterator[tuple[Proxy, SupabaseStore]]:
    address = urlsplit(stack.url)
    proxy = Proxy(str(address.hostname), int(address.port or 0))
    await proxy.start()
    async with SupabaseStore(f"http://127.0.0.1:{proxy.port}", stack.service_role_key) as store:
        yield proxy, store
    await proxy.stop()


async def test_a_lost_reply_makes_one_row_one_result_one_failure(stack: Stack) -> None:
    async with through_proxy(stack) as (proxy, store):
        for key in ("k", None):
            proxy.cut_reply_to(b"enqueue_batch")
            (job,) = await store.enqueue([new_job("t", key=key)])
            assert job.created
        assert len(await store.find(JobFilter())) == 2
        first, second = await store.claim(2, None, LEASE)
        proxy.cut_reply_to(b"marian_jobs_settle")
        assert await store.complete([first.held]) == {first.held}
        assert await store.fail([Failure(*first.held, "late")]) == []
        proxy.cut_reply_to(b"fail_jobs")
        (failed,) = await store.fail([Failure(*second.held, "boom")])
        assert (failed.status, failed.attempts) == (Status.RETRYING, 1)
        assert proxy.cuts == 4


async def test_a_claim_whose_reply_is_lost_is_not_sent_again(stack: Stack) -> None:
    async with through_proxy(stack) as (proxy, store):
        await store.enqueue([new_job("t"), new_job("t")])
        proxy.cut_reply_to(b"claim_jobs")
        with pytest.raises(StoreUnavailable):
            await store.claim(1, None, LEASE)
        assert len(await store.find(JobFilter(status=Status.RUNNING))) == 1


def http_reply(status: int, body: str = "{}", *, kind: str = "application/json", **headers: str) -> bytes:
    named = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"} | headers
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n{body}".encode()


async def test_a_result_answered_by_a_gateways_503_after_the_commit_counts_once(stack: Stack) -> None:
    async with through_proxy(stack) as (proxy, store):
        await store.enqueue([new_job("t")])
        (job,) = await store.claim(1, None, LEASE)
        proxy.replace_reply_to(b"fail_jobs", http_reply(503))
        (failed,) = await store.fail([Failure(*job.held, "boom")])
        assert (failed.status, failed.attempts) == (Status.RETRYING, 1)
        proxy.replace_reply_to(b"claim_jobs", http_reply(503))
        with pytest.raises(StoreUnavailable, match="503"):
            await store.claim(1, None, LEASE)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_busy_gateway_is_asked_again_where_that_is_harmless(stack: Stack, status: int) -> None:
    async with through_proxy(stack) as (proxy, store):
        proxy.reply_instead(http_reply(status), http_reply(status, "busy", kind="text/html"))
        assert len(await store.enqueue([new_job("t")])) == 1


async def test_a_session_cut_under_the_api_is_an_outage_and_no_refusal(stack: Stack) -> None:
    """What PostgREST 12 answers where its session is terminated at the wrong moment: see docs/chaos.md."""
    cut = http_reply(400, '{"code":"","details":null,"hint":null,"message":""}')
    async with through_proxy(stack) as (proxy, store):
        proxy.reply_instead(cut)
        assert len(await store.enqueue([new_job("t")])) == 1
        proxy.reply_instead(cut)
        with pytest.raises(StoreUnavailable, match="broke off"):
            await store.claim(1, None, LEASE)


async def test_a_claim_that_met_a_column_being_added_is_sent_again(stack: Stack) -> None:
    """Postgres has rolled it back, so that it is harmless even for a claim: see tests/races/test_migrations.py."""
    async with through_proxy(stack) as (proxy, store):
        await store.enqueue([new_job("t")])
        proxy.reply_instead(http_reply(400, '{"code": "42804", "message": "structure of query does not match"}'))
        assert len(await store.claim(1, None, LEASE)) == 1


async def test_a_refusal_for_the_time_being_is_waited_out_as_long_as_it_asks(stack: Stack) -> None:
    async with through_proxy(stack) as (proxy, store):
        await store.enqueue([new_job("t")])
        proxy.reply_instead(http_reply(429, Retry_After="1"))
        begun = time.monotonic()
        assert len(await store.claim(1, None, LEASE)) == 1
        assert time.monotonic() - begun >= 1
        proxy.reply_instead(http_reply(429, Retry_After="3600"))
        with pytest.raises(StoreUnavailable, match="429"):
            await store.claim(1, None, LEASE)


@pytest.mark.parametrize(
    "reply",
    [
        http_reply(200, "<html>", kind="text/html"),
        http_reply(302, Location="https://elsewhere"),
        http_reply(404, "<html>", kind="text/html"),
    ],
    ids=["a page", "a redirect", "a 404"],
)
async def test_what_is_no_supabase_api_is_told_so(stack: Stack, reply: bytes) -> None:
    async with through_proxy(stack) as (proxy, store):
        proxy.reply_instead(reply)
        with pytest.raises(StoreRefused, match="URL"):
            await store.claim(1, None, LEASE)


async def test_numbers_keep_every_digit(stack: Stack) -> None:
    numbers = [2**63 + 1, 10**40, -(2**53) - 1, 0.1, 1e-300, 1234567.125]
    async with SupabaseStore(stack.url, stack.service_role_key) as store:
        (made,) = await store.enqueue([new_job("t", {"n": numbers})])
        (claimed,) = await store.claim(1, None, LEASE)
        assert made.payload["n"] == claimed.payload["n"] == numbers


async def test_a_claim_lost_on_its_way_runs_once_when_its_lease_is_over(stack: Stack) -> None:
    starts: list[float] = []
    loop = asyncio.get_running_loop()
    async with through_proxy(stack) as (proxy, store):
        worker = Worker(store, lease=timedelta(seconds=1), poll=timedelta(seconds=0.2))
        worker.handler("t")(lambda job: starts.append(loop.time()))
        (job,) = await store.enqueue([new_job("t")])
        proxy.cut_reply_to(b"marian_jobs_poll")
        begun = loop.time()
        running = asyncio.create_task(worker.run(signals=False))
        async with asyncio.timeout(10):
            while (now := await store.get(job.id)) is None or now.status is not Status.SUCCEEDED:
                await asyncio.sleep(0.05)
        worker.stop()
        await running
    assert (proxy.cuts, len(starts), now.attempts) == (1, 1, 2)
    assert starts[0] - begun <= 1 + 2


async def test_a_worker_needs_only_url_and_key(stack: Stack) -> None:
    starts: list[int] = []
    async with SupabaseStore(stack.url, stack.secret_key) as store:
        worker = Worker(store, lease=timedelta(seconds=1), poll=timedelta(seconds=0.1))

        @worker.handler("t")
        async def handle(job: object) -> None:
            starts.append(1)
            await asyncio.sleep(1.5)

        (job,) = await store.enqueue([new_job("t")])
        await asyncio.wait_for(worker.run(drain=True, signals=False), 15)
        done = await store.get(job.id)
        assert done is not None
        assert (done.status, done.attempts, len(starts)) == (Status.SUCCEEDED, 1, 1)


async def test_more_jobs_than_an_answer_may_hold_are_all_or_nothing(stack: Stack) -> None:
    async with SupabaseStore(stack.url, stack.service_role_key) as store:
        jobs = await store.enqueue([new_job("t", {"n": n}) for n in range(1500)])
        assert [job.payload["n"] for job in jobs] == list(range(1500))
        claimed = await store.claim(1000, None, LEASE)
        assert len(claimed) == 1000
        assert len(await store.complete([job.held for job in claimed])) == 1000


@pytest.mark.parametrize("kind", ["anon", "forged", "garbage"])
async def test_a_key_that_may_not_work_is_told_at_once(stack: Stack, kind: str) -> None:
    key = {"anon": stack.anon_key, "forged": stack.service_role_key[:-4] + "AAAA", "garbage": "S3CRET-2"}[kind]
    with pytest.raises(StoreRefused) as refusal:
        await SupabaseStore(stack.url, key).open()
    assert key not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_a_publishable_key_is_refused_by_its_name(stack: Stack) -> None:
    with pytest.raises(ValueError, match="publishable"):
        SupabaseStore(stack.url, stack.publishable_key)


async def test_a_wrong_host_is_told_without_the_key(caplog: pytest.LogCaptureFixture) -> None:
    key = mint({"role": "service_role", "marker": "S3CRET-2"}, JWT_SECRET)
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreUnavailable) as error:
        await SupabaseStore("http://127.0.0.1:1", key, deadline=timedelta(seconds=1)).open()
    assert key not in str(error.value) + repr(error.value.__cause__) + caplog.text


@contextmanager
def unknown_to_the_api(stack: Stack) -> Iterator[Callable[[], None]]:
    """The queue's functions as if the migrations had not run yet; the value runs them."""
    with psycopg.connect(stack.dsn, autocommit=True) as connection:

        def rename(old: str, new: str) -> None:
            connection.execute(f"alter function public.{old}(text[]) rename to {new}")
            connection.execute("notify pgrst, 'reload schema'")

        rename("marian_jobs_next_due", "not_there_yet")
        wait_for_api(stack, 404)
        try:
            yield lambda: rename("not_there_yet", "marian_jobs_next_due")
        finally:
            if connection.execute("select to_regproc('public.not_there_yet')").fetchone() != (None,):
                rename("not_there_yet", "marian_jobs_next_due")
            wait_for_api(stack, 200)


def wait_for_api(stack: Stack, status: int) -> None:
    headers = {"apikey": stack.service_role_key, "authorization": f"Bearer {stack.service_role_key}"}
    url = f"{stack.url}/rest/v1/rpc/marian_jobs_next_due"
    end = time.monotonic() + 10
    while httpx.post(url, headers=headers, json={"p_types": []}).status_code != status:
        assert time.monotonic() < end
        time.sleep(0.05)


async def test_a_project_without_the_migrations_says_what_to_do(stack: Stack) -> None:
    with unknown_to_the_api(stack), pytest.raises(StoreRefused, match="migrations"):
        await SupabaseStore(stack.url, stack.service_role_key).open()


async def test_a_schema_that_the_api_has_yet_to_reload_is_waited_for(stack: Stack) -> None:
    with unknown_to_the_api(stack) as run_migrations:
        store = SupabaseStore(stack.url, stack.service_role_key)
        opening = asyncio.create_task(store.open())
        await asyncio.sleep(0.5)
        assert not opening.done()
        run_migrations()
        await asyncio.wait_for(opening, 5)
        assert await store.claim(1, None, LEASE) == []
        await store.close()


async def test_there_is_no_transaction_to_join(stack: Stack) -> None:
    async with SupabaseStore(stack.url, stack.service_role_key) as store:
        with pytest.raises(NotSupported, match="PostgresStore"):
            await store.enqueue([new_job("t")], connection=object())
        assert not store.alarm(["t"]).can_ring


def test_a_store_shows_no_key(stack: Stack) -> None:
    assert stack.service_role_key not in repr(SupabaseStore(stack.url, stack.service_role_key))
