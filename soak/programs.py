"""The programs of a soak run: the local stack, the workers and the load, each a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from marian_jobs.local.ports import free_port
from marian_jobs.local.stack import create_user

ROOT = Path(__file__).parent.parent
PATIENCE = 60.0
USERS = 5


class SoakError(Exception):
    """A program did not do its part; the text says which, and where its log is."""


class Program:
    """A process whose lines of JSON are kept, the newest one alone; its log goes to a file."""

    def __init__(self, name: str, command: list[str], logs: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = logs / f"{name.replace(' ', '-')}.log"
        self.said: dict[str, Any] = {}
        self._heard = threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=self.log.open("wb"),
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=[self._process.stdout], daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for_words(self) -> dict[str, Any]:
        """Its first line; `SoakError` where it does not come."""
        if not self._heard.wait(PATIENCE) or not self.said:
            raise SoakError(f"{self.name}: said nothing; see {self.log}")
        return self.said

    def must_run(self) -> None:
        """Raises `SoakError` where it has ended."""
        if (code := self._process.poll()) is not None:
            raise SoakError(f"{self.name}: ended with {code}; see {self.log}")

    def stop(self) -> int:
        """Asks it to end and returns its exit code; kills it when it does not."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            if line.startswith("{"):
                self.said = json.loads(line)
                self._heard.set()
        self._heard.set()


@contextmanager
def running(logs: Path, rate: float, seed: int) -> Iterator[tuple[str, dict[str, Program]]]:
    """The database's address and all programs, under load until the block ends."""
    with ExitStack() as stack:
        programs: dict[str, Program] = {}

        def start(name: str, command: list[str], **environment: str) -> Program:
            program = programs[name] = Program(name, command, logs, environment)
            stack.callback(program.stop)
            return program

        ports = ["--port", str(free_port()), "--db-port", str(free_port())]
        env = start("gateway", ["-m", "marian_jobs", "dev", "--ephemeral", "--json", *ports]).wait_for_words()
        database = {"dsn": env["DB_URL"]}
        api = {"url": env["API_URL"], "key": env["SERVICE_ROLE_KEY"]}
        users = [create_user(env, f"user{number}@example.com") for number in range(USERS)]
        worker = ["-m", "marian_jobs", "worker", "soak.app:worker", "--log-format", "json"]
        for name, place, part, concurrency in (
            ("worker over Postgres", database, "quick", 20),
            ("worker over the API", api, "quick", 10),
            ("worker with processes", database, "apart", 2),
        ):
            start(name, worker, SOAK_WORKER=json.dumps({**place, "part": part, "concurrency": concurrency}))
        told = {**database, **api, "anon": env["ANON_KEY"], "rate": rate, "seed": seed,
                "users": [(str(id), token) for id, token in users]}  # fmt: skip
        start("client", ["-m", "soak.load"], SOAK_LOAD=json.dumps(told))
        yield env["DB_URL"], programs
