"""SQL's moves are the machine's: random sequences through both, rows compared after every move."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from psycopg.rows import tuple_row

from marian_jobs import Backoff, InvalidTransition, Job, machine
from marian_jobs.stores.rows import COLUMNS, to_job

SECONDS = st.integers(1, 3600).map(lambda s: timedelta(seconds=s))
MOMENT = timedelta(milliseconds=1)


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True, row_factory=tuple_row) as connection:
        yield connection


def test_sql_and_machine_move_alike(connection: psycopg.Connection[Any]) -> None:
    class Moves(RuleBasedStateMachine):
        """One job; each rule moves it in SQL and in the machine, whether the move is legal or not."""

        job: Job

        @initialize(budget=st.integers(1, 4), priority=st.integers(-(2**31), 2**31 - 1))
        def enqueue(self, budget: int, priority: int) -> None:
            connection.execute("delete from public.marian_jobs")
            self.job = self.fetch(
                "enqueue_job('t', p_max_attempts => %s, p_priority => %s)", budget, priority
            ) or pytest.fail("no row")

        @rule(lease=SECONDS)
        def claim(self, lease: timedelta) -> None:
            row = self.fetch("claim_job(array['t'], %s)", lease)
            self.compare(row, lambda now: machine.claim(self.job, now=now, lease=lease))

        @rule(late=st.integers(0, 2))
        def complete(self, late: int) -> None:
            row = self.fetch("complete_job(%s, %s)", self.job.id, self.job.attempts - late)
            self.compare(row, self.fenced(late, lambda now: machine.complete(self.job, now=now)))

        @rule(late=st.integers(0, 2), dead=st.booleans(), after=st.none() | SECONDS, error=st.sampled_from(["a", "b"]))
        def fail(self, late: int, dead: bool, after: timedelta | None, error: str) -> None:
            row = self.fetch("fail_job(%s, %s, %s, %s, %s)", self.job.id, self.job.attempts - late, error, after, dead)
            self.compare(
                row,
                self.fenced(
                    late,
                    lambda now: machine.fail(
                        self.job, now=now, error=error, backoff=after or Backoff(), permanent=dead
                    ),
                ),
            )

        @rule(late=st.integers(0, 2), lease=SECONDS)
        def extend(self, late: int, lease: timedelta) -> None:
            self.fetch_all(
                "select * from public.extend_leases(array[%s::uuid], array[%s::int4], %s)",
                self.job.id, self.job.attempts - late, lease,
            )  # fmt: skip
            self.compare(self.row(), self.fenced(late, lambda now: machine.extend(self.job, now=now, lease=lease)))

        @rule(late=st.integers(0, 2), delay=st.just(timedelta(0)) | SECONDS)
        def release(self, late: int, delay: timedelta) -> None:
            row = self.fetch(
                "release_jobs(array[%s::uuid], array[%s::int4], %s)", self.job.id, self.job.attempts - late, delay
            )
            self.compare(row, self.fenced(late, lambda now: machine.release(self.job, now=now, delay=delay)))

        @rule()
        def reclaim(self) -> None:
            self.compare(self.fetch("reclaim_expired()"), lambda now: machine.reclaim(self.job, now=now))

        @rule()
        def cancel(self) -> None:
            self.compare(self.fetch("cancel_job(%s)", self.job.id), lambda now: machine.cancel(self.job, now=now))

        @rule(budget=st.none() | st.integers(1, 5))
        def retry(self, budget: int | None) -> None:
            row = self.fetch("retry_job(%s, %s)", self.job.id, budget)
            self.compare(row, lambda now: machine.retry(self.job, now=now, max_attempts=budget))

        @rule(by=st.sampled_from([timedelta(minutes=1), timedelta(hours=2)]))
        def let_time_pass(self, by: timedelta) -> None:
            connection.execute(
                "update public.marian_jobs set run_after = run_after - %s, lease_until = lease_until - %s", (by, by)
            )
            self.job = self.row()

        def fetch_all(self, text: str, *parameters: object) -> list[Any]:
            return connection.execute(text, parameters).fetchall()

        def fetch(self, call: str, *parameters: object) -> Job | None:
            rows = self.fetch_all(f"select {COLUMNS} from public.{call}", *parameters)
            return to_job(rows[0]) if rows else None

        def row(self) -> Job:
            return to_job(self.fetch_all(f"select {COLUMNS} from public.marian_jobs")[0])

        def fenced(self, late: int, move: Any) -> Any:
            def refuse(_: Any) -> Job:
                raise InvalidTransition("late")

            return refuse if late else move

        def compare(self, answered: Job | None, move: Any) -> None:
            """The row is where the machine leads by the database's now, or untouched where the machine refuses."""
            after = self.row()
            try:
                expected = move(after.updated_at if after != self.job else self.job.updated_at + timedelta(days=1))
            except InvalidTransition:
                expected = self.job
            if after == self.job and expected != self.job:
                # Not due, or the lease not over: refused by the clock; the machine refuses too at the row's own time.
                with pytest.raises(InvalidTransition):
                    move(self.job.updated_at)
                expected = self.job
            assert after == expected
            assert answered is None or answered == after
            self.job = after

    run_state_machine_as_test(
        Moves,
        settings=settings(
            max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
