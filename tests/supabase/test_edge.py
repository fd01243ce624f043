"""The edge worker in a real Deno, against the local stack."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from time import monotonic
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from marian_jobs.job import Job
from marian_jobs.stores.postgres import PostgresStore
from marian_jobs.worker import Worker
from tests.fix_stack import Stack
from tests.supabase.edge import CONFIG, FUNCTIONS, INDEX, PROBE, Edge, deno_says, serving, swallowing

EMPTY = {"reclaimed": 0, "claimed": 0, "succeeded": 0, "retrying": 0, "dead": 0, "released": 0, "lost": 0}


class Queue:
    """The queue as seen from the database."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)
        self.connection.execute("delete from public.marian_jobs")

    def add(self, type: str, payload: str = "{}", **more: Any) -> str:
        statement = "select id::text from public.enqueue_job(%s, %s, p_max_attempts => %s)"
        return str(self.rows(statement, type, payload, more.get("max_attempts", 3))[0]["id"])

    def rows(self, statement: str, *arguments: Any) -> list[dict[str, Any]]:
        return self.connection.execute(statement.encode(), arguments).fetchall()

    def job(self, id: str) -> dict[str, Any]:
        return self.rows("select *, run_after - now() as wait from public.marian_jobs where id = %s", id)[0]

    def states(self) -> set[tuple[str, int]]:
        return {
            (row["status"], row["attempts"]) for row in self.rows("select status, attempts from public.marian_jobs")
        }


@pytest.fixture
def queue(stack: Stack) -> Iterator[Queue]:
    queue = Queue(stack.dsn)
    yield queue
    queue.connection.close()


@pytest.fixture(scope="module")
def probe(stack: Stack) -> Iterator[Edge]:
    environment = {"SUPABASE_URL": stack.url, "SUPABASE_SERVICE_ROLE_KEY": stack.service_role_key}
    with serving(PROBE, stack.service_role_key, environment) as edge:
        yield edge


@pytest.fixture
def edge(probe: Edge) -> Edge:
    """The probe with an empty log."""
    probe.lines.clear()
    return probe


def test_an_edge_worker_and_a_python_worker_share_a_queue_and_run_every_job_once(
    stack: Stack, queue: Queue, edge: Edge
) -> None:
    ids = [queue.add("mark") for _ in range(150)]
    ran_here: list[str] = []

    async def work_here() -> None:
        async with PostgresStore(stack.dsn) as store:
            worker = Worker(store, concurrency=2)

            @worker.handler("mark")
            async def mark(job: Job) -> None:
                ran_here.append(str(job.id))
                await asyncio.sleep(0.02)

            while (await worker.tick()).job is not None:
                pass

    with ThreadPoolExecutor(1) as pool:
        away = pool.submit(edge.start)
        edge.wait_for("ran")
        asyncio.run(work_here())
        summary = away.result().json()

    ran_away = edge.words("ran")
    assert ran_here
    assert sorted(ids) == sorted(ran_here + ran_away)
    assert {("succeeded", 1)} == queue.states()
    assert EMPTY | {"claimed": len(ran_away), "succeeded": len(ran_away), "ended": "empty"} == summary


def test_only_a_service_key_starts_the_worker(stack: Stack, queue: Queue, edge: Edge) -> None:
    queue.add("nap", '{"ms": 0}')
    _, token = stack.create_user("edge@example.com")
    service = stack.service_role_key
    for refused in ("none", stack.anon_key, token, service[:-1], service + "x", "null", "undefined"):
        for headers in ({"apikey": refused}, {"authorization": f"Bearer {refused}"}, {"authorization": refused}):
            assert httpx.post(edge.url, headers=headers).status_code == 401
    assert httpx.post(edge.url).status_code == 401
    assert httpx.get(edge.url, headers={"apikey": service}).status_code == 405
    assert {("queued", 0)} == queue.states()

    assert httpx.post(edge.url, headers={"authorization": f"Bearer {service}"}).status_code == 200
    assert {("succeeded", 1)} == queue.states()


def test_the_newer_secret_keys_start_the_worker_too(stack: Stack, queue: Queue) -> None:
    keys = f'{{"default": "{stack.secret_key}"}}'
    with serving(INDEX, stack.secret_key, {"SUPABASE_URL": stack.url, "SUPABASE_SECRET_KEYS": keys}) as edge:
        echo = queue.add("echo", '{"hello": "Ada"}')

        assert httpx.post(edge.url, headers={"apikey": stack.service_role_key}).status_code == 401
        assert edge.start().status_code == 200
        assert queue.job(echo)["status"] == "succeeded"
        assert edge.words("echo:") == ['{"hello":"Ada"}']


def test_after_its_budget_it_claims_no_more(queue: Queue, edge: Edge) -> None:
    for _ in range(20):
        queue.add("nap", '{"ms": 400}')
    summary = edge.start(budgetMs=1000, limitMs=10_000, concurrency=2).json()

    assert summary["ended"] == "time"
    assert 2 <= summary["succeeded"] == summary["claimed"] < 20
    assert {("succeeded", 1), ("queued", 0)} == queue.states()


def test_at_its_limit_it_ends_and_gives_back_what_still_runs_at_no_cost(queue: Queue, edge: Edge) -> None:
    deaf, obedient = queue.add("nap", '{"ms": 60000}'), queue.add("obedient")
    began = monotonic()
    summary = edge.start(budgetMs=1500, limitMs=2000).json()

    assert monotonic() - began < 6
    assert summary == EMPTY | {"claimed": 2, "released": 2, "ended": "time"}
    assert obedient == edge.wait_for("stopped")
    for id in (deaf, obedient):
        job = queue.job(id)
        assert (job["status"], job["attempts"], job["max_attempts"]) == ("queued", 1, 4)


def test_a_handler_says_by_what_it_throws_what_becomes_of_its_job(queue: Queue, edge: Edge) -> None:
    ids = {type: queue.add(type) for type in ("retry", "snooze", "dead")}
    thrown = queue.add("throw", '{"text": "boom"}')
    summary = edge.start(concurrency=1).json()
    jobs = {type: queue.job(id) for type, id in ids.items()}

    assert summary == EMPTY | {"claimed": 4, "retrying": 2, "dead": 1, "released": 1, "ended": "empty"}
    assert tuple(jobs["retry"][c] for c in ("status", "error", "max_attempts")) == ("retrying", "later", 3)
    assert jobs["retry"]["wait"] > timedelta(minutes=55)
    assert tuple(jobs["snooze"][c] for c in ("status", "error", "max_attempts")) == ("queued", None, 4)
    assert jobs["snooze"]["wait"] > timedelta(minutes=55)
    assert tuple(jobs["dead"][c] for c in ("status", "error")) == ("dead", "no use")
    assert tuple(queue.job(thrown)[c] for c in ("status", "error")) == ("retrying", "TypeError: boom")


def test_an_error_that_postgres_could_not_store_is_stored_bounded(queue: Queue, edge: Edge) -> None:
    long = queue.add("throw", '{"text": "a<NUL>b<LONE>c' + "x" * 20_000 + 'end"}', max_attempts=1)
    assert edge.start().json()["dead"] == 1

    error = queue.job(long)["error"]
    assert error.startswith("TypeError: a\ufffdb\ufffdcxxx")
    assert error.endswith("xend")
    assert 8000 < len(error) <= 8192


def test_a_long_handler_keeps_its_lease(queue: Queue, edge: Edge) -> None:
    id = queue.add("nap", '{"ms": 2500}')
    with ThreadPoolExecutor(1) as pool:
        away = pool.submit(edge.start, leaseMs=1000)
        while not away.done():
            assert queue.rows("select id from public.reclaim_expired()") == []
            threading.Event().wait(0.05)
        assert away.result().json()["succeeded"] == 1
    assert queue.job(id)["attempts"] == 1


def test_a_cancelled_job_stops_its_handler_and_its_result_is_refused(queue: Queue, edge: Edge) -> None:
    id = queue.add("obedient")
    with ThreadPoolExecutor(1) as pool:
        away = pool.submit(edge.start, leaseMs=300)
        edge.wait_for("began")
        queue.rows("select id from public.cancel_job(%s)", id)
        assert away.result().json() == EMPTY | {"claimed": 1, "lost": 1, "ended": "empty"}
    assert id == edge.wait_for("stopped")
    assert (queue.job(id)["status"], queue.job(id)["error"]) == ("dead", "cancelled")


def test_jobs_of_a_lost_worker_are_reclaimed_first(queue: Queue, edge: Edge) -> None:
    id = queue.add("nap", '{"ms": 0}')
    queue.rows("select id from public.claim_job(p_lease => '1 millisecond')")
    assert edge.start().json() == EMPTY | {"reclaimed": 1, "claimed": 1, "succeeded": 1, "ended": "empty"}
    assert (queue.job(id)["status"], queue.job(id)["attempts"]) == ("succeeded", 2)


def test_asked_to_respond_at_once_it_works_on_behind(queue: Queue, edge: Edge) -> None:
    id = queue.add("nap", '{"ms": 1500}')
    began = monotonic()
    response = edge.start(prefer="respond-async")

    assert response.status_code == 202
    assert monotonic() - began < 1.4
    assert '"succeeded":1' in edge.wait_for("marian:")
    assert queue.job(id)["status"] == "succeeded"


def test_a_handler_enqueues_by_key_once(queue: Queue, edge: Edge) -> None:
    queue.add("parent")
    assert edge.start().json()["succeeded"] == 1

    assert edge.wait_for("children") == "true false true"
    assert queue.rows("select payload from public.marian_jobs where type = 'child'") == [{"payload": {"n": 1}}]


def test_a_lost_answer_to_a_report_is_asked_for_again(stack: Stack, queue: Queue, edge: Edge) -> None:
    nap, dead = queue.add("nap", '{"ms": 0}'), queue.add("dead")
    with swallowing(stack.url, {"complete_job", "fail_job"}) as (url, called):
        summary = edge.start(url=url, concurrency=1).json()

    assert summary == EMPTY | {"claimed": 2, "succeeded": 1, "dead": 1, "ended": "empty"}
    assert (called.count("complete_job"), called.count("fail_job")) == (2, 2)
    assert (queue.job(nap)["status"], queue.job(dead)["status"]) == ("succeeded", "dead")


def test_a_claim_whose_answer_is_lost_is_not_sent_again(stack: Stack, queue: Queue, edge: Edge) -> None:
    id = queue.add("nap", '{"ms": 0}')
    with swallowing(stack.url, {"claim_job"}) as (url, called):
        response = edge.start(url=url, concurrency=1)

    assert response.status_code == 500
    assert stack.service_role_key not in response.text
    assert called.count("claim_job") == 1
    assert (queue.job(id)["status"], queue.job(id)["attempts"]) == ("running", 1)


def test_the_webhook_handler_goes_to_listed_hosts_and_obeys_the_receiver(stack: Stack, queue: Queue) -> None:
    received: list[tuple[str, str | None, bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, self.headers["idempotency-key"], body))
            self.send_response(int(self.path[1:]))
            self.send_header("retry-after", "1800")
            self.send_header("location", "http://elsewhere.example/")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{receiver.server_port}"
    environment = {
        "SUPABASE_URL": stack.url,
        "SUPABASE_SERVICE_ROLE_KEY": stack.service_role_key,
        "MARIAN_WEBHOOK_HOSTS": f"hooks.example.com, {host}",
    }

    def deliver(url: str) -> str:
        return queue.add("webhook", f'{{"url": "{url}", "body": {{"n": 1}}}}')

    good = deliver(f"http://{host}/200")
    busy, gone, moved, broken = (deliver(f"http://{host}/{code}") for code in (503, 404, 302, 500))
    strange, none = deliver("http://169.254.169.254/latest"), queue.add("webhook")
    with serving(INDEX, stack.service_role_key, environment) as edge:
        edge.start()
    receiver.shutdown()
    receiver.server_close()
    status = {id: queue.job(id)["status"] for id in (good, busy, gone, moved, broken, strange, none)}

    assert ("/200", good, b'{"n":1}') in received
    assert {good: "succeeded", busy: "retrying", gone: "dead", moved: "dead", broken: "retrying",
            strange: "dead", none: "dead"} == status  # fmt: skip
    assert timedelta(minutes=29) < queue.job(busy)["wait"] < timedelta(minutes=31)
    assert queue.job(broken)["wait"] < timedelta(seconds=5)
    assert "not listed" in queue.job(strange)["error"]


@pytest.mark.parametrize("command", [["check"], ["lint"], ["fmt", "--check"]], ids=lambda command: command[0])
def test_deno_has_nothing_to_complain_of(command: list[str]) -> None:
    files = [PROBE, *FUNCTIONS.rglob("*.ts")]
    assert deno_says(command[0], "--config", CONFIG, *command[1:], *files) == ""
