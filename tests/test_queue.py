"""The queue from async and from plain code, inside the caller's transaction and out of it: K01, K05, K06, K31, K45."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from marian_jobs import (
    InvalidArgument,
    KeyConflict,
    MarianError,
    MemoryStore,
    NotSupported,
    PostgresStore,
    Queue,
    Status,
    StoreRefused,
    StoreUnavailable,
    SyncQueue,
    Worker,
    new_job,
)


async def test_fifty_at_once_get_one_id(database: str) -> None:
    async with Queue(PostgresStore(database)) as queue:
        jobs = await asyncio.gather(*(queue.enqueue("t", key="race") for _ in range(50)))
    assert len({job.id for job in jobs}) == 1
    assert sum(job.created for job in jobs) == 1


async def test_a_key_of_another_user_is_refused_and_nothing_is_told(database: str) -> None:
    users = [uuid4(), uuid4()]
    with psycopg.connect(database, autocommit=True) as connection:
        for user in users:
            connection.execute("insert into auth.users (id) values (%s)", (user,))
    async with Queue(PostgresStore(database)) as queue:
        job = await queue.enqueue("t", {"secret": 1}, user_id=users[0], key="order-1")
        with pytest.raises(KeyConflict) as refusal:
            await queue.enqueue("t", user_id=users[1], key="order-1")
        with pytest.raises(KeyConflict):
            await queue.enqueue("t", key="order-1")
        assert str(job.id) not in str(refusal.value)
        assert str(users[0]) not in str(refusal.value)


async def test_an_unknown_user_is_a_clear_error(database: str) -> None:
    async with Queue(PostgresStore(database)) as queue:
        with pytest.raises(InvalidArgument, match="no such user"):
            await queue.enqueue("t", user_id=uuid4())


class TestCallersTransaction:
    async def test_a_job_exists_if_and_only_if_the_transaction_commits(self, database: str) -> None:
        started: list[object] = []
        worker = Worker(PostgresStore(database), poll=timedelta(milliseconds=50))
        worker.handler("t")(lambda job: started.append(job.payload["n"]))
        running = asyncio.create_task(worker.run(signals=False))
        async with Queue(PostgresStore(database)) as queue, await psycopg.AsyncConnection.connect(database) as mine:
            await queue.enqueue("t", {"n": 1}, connection=mine)
            await mine.rollback()
            kept = await queue.enqueue("t", {"n": 2}, connection=mine)
            await asyncio.sleep(0.3)
            assert started == []
            await mine.commit()
            async with asyncio.timeout(5):
                while (job := await queue.get(kept.id)) is None or job.status is not Status.SUCCEEDED:
                    await asyncio.sleep(0.02)
        worker.stop()
        await running
        assert started == [2]

    def test_plain_code_hands_in_a_plain_connection(self, database: str) -> None:
        with SyncQueue(PostgresStore(database)) as queue, psycopg.connect(database) as mine:
            job = queue.enqueue("t", connection=mine)
            assert queue.get(job.id) is None
            mine.commit()
            assert queue.get(job.id) == queue.find()[0]

    async def test_what_is_no_connection_is_refused(self, database: str) -> None:
        async with Queue(PostgresStore(database)) as queue:
            with pytest.raises(NotSupported, match="psycopg"):
                await queue.enqueue("t", connection=object())
        with pytest.raises(NotSupported, match="transactions"):
            await Queue(MemoryStore()).enqueue("t", connection=object())


class TestSyncQueue:
    def test_threads_share_it(self, database: str) -> None:
        with SyncQueue(PostgresStore(database)) as queue, ThreadPoolExecutor(20) as threads:
            jobs = list(threads.map(lambda n: queue.enqueue("t", {"n": n}, key="k"), range(40)))
        assert len({job.id for job in jobs}) == 1

    def test_every_call_of_the_queue_has_its_twin(self) -> None:
        def calls(kind: type) -> set[str]:
            return {name for name in vars(kind) if not name.startswith("_")}

        assert calls(SyncQueue) == calls(Queue)

    def test_an_error_reaches_the_caller(self) -> None:
        with SyncQueue(MemoryStore()) as queue, pytest.raises(ValueError, match="type"):
            queue.enqueue("")

    def test_a_fork_is_refused_rather_than_shared(self) -> None:
        queue = SyncQueue(MemoryStore())
        queue._process = os.getpid() + 1
        with pytest.raises(MarianError, match="fork"):
            queue.enqueue("t")

    def test_it_keeps_no_process_alive(self) -> None:
        queue = SyncQueue(MemoryStore())
        queue.enqueue("t")
        assert {t.daemon for t in threading.enumerate() if t.name == "marian-jobs-queue"} == {True}
        queue.close()


class TestErrors:
    async def test_an_unreachable_database_is_told_without_its_password(self) -> None:
        queue = Queue(PostgresStore("postgresql://u:S3CRET-3@127.0.0.1:1/db", deadline=timedelta(seconds=2)))
        with pytest.raises(StoreUnavailable) as error:
            await queue.enqueue("t")
        assert "S3CRET" not in repr(error.value) + str(error.value.__cause__)

    async def test_a_malformed_url_is_told_without_its_password(self) -> None:
        with pytest.raises(ValueError, match="connection string") as error:
            PostgresStore("postgresql//u:S3CRET-3@host")
        assert "S3CRET" not in str(error.value)
        assert error.value.__cause__ is None

    async def test_a_wrong_password_is_a_refusal(self, database: str) -> None:
        wrong = database.replace("postgres:postgres@", "postgres:S3CRET-3@")
        with pytest.raises(StoreRefused, match="login") as error:
            await Queue(PostgresStore(wrong)).enqueue("t")
        assert "S3CRET" not in str(error.value)

    async def test_a_database_without_the_schema_says_what_to_do(self, bare_database: str) -> None:
        with pytest.raises(StoreRefused, match="marian migrate"):
            await Queue(PostgresStore(bare_database)).enqueue("t")

    def test_a_store_shows_no_secret(self) -> None:
        store = PostgresStore("postgresql://u:S3CRET-3@h/db")
        assert "S3CRET" not in repr(store)

    async def test_a_terminated_session_is_replaced_without_the_caller_noticing(self, database: str) -> None:
        async with Queue(PostgresStore(database)) as queue:
            await queue.enqueue("t", key="k")
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = current_database() and pid <> pg_backend_pid() and usename = current_user"
                )
            assert not (await queue.enqueue("t", key="k")).created

    async def test_a_batch_larger_than_a_page_is_one_transaction(self, database: str) -> None:
        async with Queue(PostgresStore(database)) as queue:
            assert len(await queue.enqueue_many([new_job("t", {"n": n}) for n in range(5000)])) == 5000


async def test_limits_and_pauses_can_be_read_back() -> None:
    async with Queue(MemoryStore()) as queue:
        await queue.pause("mail")
        await queue.limit("embed", max_running=3)
        assert [(limit.type, limit.paused, limit.max_running) for limit in await queue.limits()] == [
            ("embed", False, 3),
            ("mail", True, None),
        ]
