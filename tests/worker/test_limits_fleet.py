"""Limits over all workers, exact: counted from a ledger that handlers keep by the database's clock, not from the queue.

Eight worker processes compete, and with them what an edge function does: plain SQL, and calls of the API.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest

from marian_jobs import new_job
from marian_jobs.queue import SyncQueue
from marian_jobs.stores.postgres import PostgresStore
from marian_jobs.tokens import mint_key
from tests.fix_postgres import TEMPLATE, Server
from tests.fix_stack import JWT_SECRET, serving_rest
from tests.worker.crew import Crew
from tests.worker.crew_programs import LIMITED, NOTE, limited
from tests.worker.fleet import wait_for

WORKERS = 8
LEASE = timedelta(seconds=4)
LEDGER = """
create table run_log (
  id bigint generated always as identity, job_id uuid, attempt int, type text, what text, pid int,
  claimed timestamptz, at timestamptz not null default clock_timestamp()
)
"""
MOST_AT_ONCE = """
with run as (
  select s.at as began, coalesce(e.at, %(killed_at)s) as ended
    from run_log s left join run_log e on (e.job_id, e.attempt, e.what) = (s.job_id, s.attempt, 'end')
   where s.what = 'start' and s.type = %(type)s
)
select max((select count(*) from run o where o.began <= r.began and o.ended > r.began)) from run r
"""
MOST_IN_A_PERIOD = """
with run as (select claimed from run_log where what = 'start' and type = %(type)s)
select max((select count(*) from run o where o.claimed > r.claimed - %(per)s::interval and o.claimed <= r.claimed))
  from run r
"""


class Claimer:
    """A thread that does as edge code does: claims a few jobs of the limited types, runs them, completes them."""

    def __init__(self, number: int, dsn: str, call: Callable[[str, dict[str, Any]], list[dict[str, Any]]]) -> None:
        self.number = number  # stands for the process's id in the ledger
        self._dsn = dsn
        self._call = call
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def close(self) -> None:
        """Ends when what was claimed is done."""
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as ledger:
            while not self._stopping.wait(0.02):
                jobs = self._call("claim_jobs", {"p_limit": 2, "p_types": list(LIMITED[:3]), "p_lease": "30 seconds"})
                self._note(ledger, jobs, "start")
                self._stopping.wait(0.02 if jobs else 0)
                self._note(ledger, jobs, "end")
                for job in jobs:
                    assert self._call("complete_job", {"p_id": job["id"], "p_attempt": job["attempts"]})

    def _note(self, ledger: psycopg.Connection[Any], jobs: list[dict[str, Any]], what: str) -> None:
        for job in jobs:
            ledger.execute(NOTE, (job["id"], job["attempts"], job["type"], what, self.number, job["updated_at"]))


def by_sql(connection: psycopg.Connection[Any]) -> Callable[[str, dict[str, Any]], list[dict[str, Any]]]:
    def call(function: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        named = ", ".join(f"{name} => %({name})s" for name in arguments)
        return connection.execute(f"select * from public.{function}({named})".encode(), arguments).fetchall()

    return call


def by_api(client: httpx.Client) -> Callable[[str, dict[str, Any]], list[dict[str, Any]]]:
    def call(function: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        answer = client.post(f"/rpc/{function}", json=arguments)
        answer.raise_for_status()
        return list(answer.json())

    return call


class Place:
    """The crew, the other two claimers, the operator's queue, and the ledger."""

    def __init__(self, dsn: str, crew: Crew, queue: SyncQueue) -> None:
        self.dsn = dsn
        self.crew = crew
        self.queue = queue

    def ask(self, text: str, parameters: Sequence[Any] | dict[str, Any] | None = None) -> Any:
        """The one value that a query returns."""
        with psycopg.connect(self.dsn) as connection:
            ((value,),) = connection.execute(text.encode(), parameters).fetchall()
            return value

    def man(self) -> None:
        """Brings the crew to its number, and returns when all are ready."""
        self.crew.start(WORKERS - len(self.crew.pids))
        wait_for(lambda: self.ready() == WORKERS, 60, "the workers are ready")

    def ready(self) -> int:
        return int(self.ask("select count(*) from run_log where what = 'ready' and pid = any (%s)", [self.crew.pids]))

    def noted(self, what: str, type: str) -> int:
        return int(self.ask("select count(*) from run_log where (what, type) = (%s, %s)", [what, type]))

    def most_at_once(self, type: str, killed_at: object = None) -> int:
        """Over how many runs of the type any moment lies; one that was killed ended then."""
        return int(self.ask(MOST_AT_ONCE, {"type": type, "killed_at": killed_at}))


@pytest.fixture(scope="module")
def place(server: Server) -> Iterator[Place]:
    dsn = server.create_database("limits", template=TEMPLATE)
    with ExitStack() as stack:
        stack.callback(server.drop_database, "limits")
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True, row_factory=psycopg.rows.dict_row))
        connection.execute(LEDGER)
        crew = Crew(limited, dsn, LEASE)
        stack.callback(crew.stop)
        place = Place(dsn, crew, stack.enter_context(SyncQueue(PostgresStore(dsn))))
        place.man()
        headers = {"authorization": f"Bearer {mint_key('service_role', JWT_SECRET)}"}
        rest = stack.enter_context(serving_rest(server, "limits"))
        client = stack.enter_context(httpx.Client(base_url=rest, headers=headers, timeout=30))
        for number, call in ((-1, by_sql(connection)), (-2, by_api(client))):
            stack.callback(Claimer(number, dsn, call).close)
        yield place


def claimants(place: Place, type: str) -> set[int]:
    with psycopg.connect(place.dsn) as connection:
        rows = connection.execute("select distinct pid from run_log where (what, type) = ('start', %s)", [type])
        return {row[0] for row in rows.fetchall()}


def test_never_more_run_at_once_than_the_limit_and_all_of_it_is_used(place: Place) -> None:
    place.man()
    place.queue.limit("capped", max_running=5)
    place.queue.enqueue_many([new_job("capped", {"seconds": 0.03}) for _ in range(120)])
    wait_for(lambda: place.noted("end", "capped") == 120, 60, "all have run")
    assert place.most_at_once("capped") == 5
    assert place.noted("start", "capped") == 120
    assert {-1, -2} < claimants(place, "capped")


def test_never_more_start_in_a_period_than_the_rate(place: Place) -> None:
    place.man()
    per = timedelta(seconds=0.7)
    place.queue.limit("rated", rate=12, per=per)
    place.queue.enqueue_many([new_job("rated", {"seconds": 0}) for _ in range(60)])
    wait_for(lambda: place.noted("end", "rated") == 60, 60, "all have run")
    assert place.ask(MOST_IN_A_PERIOD, {"type": "rated", "per": per}) == 12
    assert place.noted("start", "rated") == 60
    took = place.ask("select max(claimed) - min(claimed) from run_log where (what, type) = ('start', 'rated')")
    assert took >= 4 * per


def test_nothing_starts_after_a_pause_and_all_of_it_after_the_resumption(place: Place) -> None:
    place.man()
    place.queue.enqueue_many([new_job("pausable", {"seconds": 0.02}) for _ in range(400)])
    wait_for(lambda: place.noted("end", "pausable") >= 20, 30, "it runs")
    place.queue.pause("pausable")
    paused_at = place.ask("select clock_timestamp()")
    wait_for(lambda: place.ask("select clock_timestamp() > %s + interval '2 seconds'", [paused_at]), 10)
    wait_for(lambda: place.noted("start", "pausable") == place.noted("end", "pausable"), 10, "what ran has ended")
    ran = place.noted("end", "pausable")
    assert ran < 400
    claimed, started = (
        "select max(claimed) from run_log where type = %s",
        "select max(at) from run_log where (what, type) = ('start', %s)",
    )
    assert place.ask(claimed, ["pausable"]) <= paused_at
    assert place.ask(started, ["pausable"]) <= paused_at + timedelta(seconds=2)
    place.queue.resume("pausable")
    wait_for(lambda: place.noted("end", "pausable") == 400, 30, "the rest has run")
    assert place.noted("start", "pausable") == 400


def test_capacity_of_a_killed_worker_is_free_when_its_lease_ends_and_not_before(place: Place) -> None:
    place.man()
    place.queue.limit("held", max_running=2)
    place.queue.enqueue_many([new_job("held", {"seconds": 60}, priority=1) for _ in range(2)])
    wait_for(lambda: place.noted("start", "held") == 2, 30, "two hold it all")
    place.queue.enqueue_many([new_job("held", {"seconds": 0.05}) for _ in range(4)])
    place.crew.kill(claimants(place, "held"))
    killed_at = place.ask("select clock_timestamp()")
    held_until = place.ask("select min(lease_until) from public.marian_jobs where type = 'held' and status = 'running'")
    assert held_until > killed_at
    wait_for(lambda: place.noted("end", "held") == 6, 30, "nothing is stuck")
    assert place.most_at_once("held", killed_at) == 2
    first = place.ask("select min(claimed) from run_log where type = 'held' and at > %s", [killed_at])
    assert held_until <= first < held_until + timedelta(seconds=10)
