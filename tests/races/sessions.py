"""Two sessions that meet: one holds its transaction open, the other is seen to wait for it, or not to."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg

PATIENCE = 10.0
EMPTY = "delete from auth.users; delete from public.marian_jobs; delete from public.marian_job_limits"


class Session:
    """A connection whose statements run in a thread of its own; a transaction lasts until `commit` or `rollback`."""

    def __init__(self, dsn: str, observer: psycopg.Connection[Any]) -> None:
        self.connection = psycopg.connect(dsn)
        self._observer = observer
        self._thread = ThreadPoolExecutor(1)

    def start(self, text: str, *parameters: object) -> "Future[list[Any]]":
        """Sends the statement; its rows are the future's."""
        return self._thread.submit(self._execute, text, parameters)

    def do(self, text: str, *parameters: object) -> list[Any]:
        """The statement's rows; it must not have to wait for anybody."""
        return self.start(text, *parameters).result(PATIENCE)

    def one(self, text: str, *parameters: object) -> Any:
        """The one value of the one row."""
        ((value,),) = self.do(text, *parameters)
        return value

    def start_and_wait(self, text: str, *parameters: object) -> "Future[list[Any]]":
        """Sends the statement and returns once the session waits for another's lock."""
        sent = self.start(text, *parameters)
        end = time.monotonic() + PATIENCE
        while not self._is_blocked():
            assert not sent.done(), f"it did not wait: {sent.exception() or sent.result()}"
            assert time.monotonic() < end, "the session never waited"
            time.sleep(0.005)
        return sent

    def commit(self) -> None:
        """Ends the transaction, with its effect."""
        self._thread.submit(self.connection.commit).result(PATIENCE)

    def rollback(self) -> None:
        """Ends the transaction, without."""
        self._thread.submit(self.connection.rollback).result(PATIENCE)

    def end(self, how: str) -> None:
        """Ends the transaction by `commit` or `rollback`."""
        getattr(self, how)()

    def close(self) -> None:
        """Ends the session, whatever it waits for."""
        self.connection.cancel_safe()
        self._thread.shutdown()
        self.connection.close()

    def _execute(self, text: str, parameters: tuple[object, ...]) -> list[Any]:
        cursor = self.connection.execute(text.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def _is_blocked(self) -> bool:
        pid = self.connection.info.backend_pid
        return bool(self._observer.execute("select cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchall()[0][0])


class Meeting:
    """Two sessions, `first` and `second`, and a bystander in autocommit who sets the scene and looks at the end."""

    def __init__(self, dsn: str, first: Session, second: Session, bystander: psycopg.Connection[Any]) -> None:
        self.dsn = dsn
        self.first = first
        self.second = second
        self.bystander = bystander

    def ask(self, text: str, *parameters: object) -> list[Any]:
        """What a third session sees."""
        return self.bystander.execute(text.encode(), parameters).fetchall()

    def queued(self, key: str | None = None, **columns: object) -> Any:
        """The id of a waiting job."""
        return self._row(idempotency_key=key, **columns)

    def running(self, *, expired: bool = False, key: str | None = None, **columns: object) -> Any:
        """The id of a job that runs its first attempt."""
        lease = "-1 second" if expired else "1 hour"
        return self._row(idempotency_key=key, status="running", attempts=1, lease=lease, **columns)

    def dead(self, key: str | None = None, **columns: object) -> Any:
        """The id of a dead job."""
        return self._row(idempotency_key=key, status="dead", attempts=1, **columns)

    def status(self, id: Any) -> str | None:
        """The job's state as others see it, or None when it is gone."""
        found = self.ask("select status from public.marian_jobs where id = %s", id)
        return found[0][0] if found else None

    def user(self) -> Any:
        """The id of a new account."""
        return self.ask("insert into auth.users (id) values (gen_random_uuid()) returning id")[0][0]

    def _row(self, *, lease: object = None, **columns: object) -> Any:
        known = {"type": "t", **columns}
        names = ", ".join([*known, "lease_until"])
        places = ", ".join(["%s"] * len(known))
        text = f"insert into public.marian_jobs ({names}) values ({places}, now() + %s::interval) returning id"
        return self.ask(text, *known.values(), lease)[0][0]


@contextmanager
def meeting(dsn: str) -> Iterator[Meeting]:
    """A meeting over an emptied queue."""
    with psycopg.connect(dsn, autocommit=True) as bystander, ExitStack() as sessions:
        bystander.execute(EMPTY)
        first, second = Session(dsn, bystander), Session(dsn, bystander)
        for session in (first, second):
            sessions.callback(session.close)
        yield Meeting(dsn, first, second, bystander)
