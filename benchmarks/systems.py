"""The queues under test as the measuring process sees them: how each is started, and how to ask whether it is done."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 120.0


class BenchmarkError(Exception):
    """A program under test did not do its part; the text says which and what it said."""


@dataclass(frozen=True)
class System:
    """A queue: the program that drives it, and a query that is true while a job is unfinished."""

    name: str
    program: Sequence[str]
    unfinished: str
    note: str = ""
    share: float = 1.0  # of the jobs drained: a slow queue need not be waited for
    environment: dict[str, str] = field(default_factory=dict, hash=False)

    def ask(self, action: str, *arguments: object) -> dict[str, Any]:
        """The one answer of an action."""
        with Process(self, action, *arguments) as process:
            return process.answer()

    def version(self) -> str:
        return str(self.ask("version")["version"])


OWN = System(
    "marian_jobs",
    [sys.executable, "-m", "benchmarks.own"],
    "select exists (select from public.marian_jobs where status = 'queued')"
    " or exists (select from public.marian_jobs where status = 'running')"
    " or exists (select from public.marian_jobs where status = 'retrying')",
)


class Process:
    """A program under test while it runs; its answers come as they are printed."""

    def __init__(self, system: System, action: str, *arguments: object) -> None:
        self._name = f"{system.name} {action}"
        self._process = subprocess.Popen(
            [*system.program, action, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=system.environment or None,
        )
        self.pid = self._process.pid
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # a library may print too
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def answer(self, patience: float = PATIENCE) -> dict[str, Any]:
        """The next answer; raises `BenchmarkError` where the program ends or is silent instead."""
        if (answer := self._next(patience)) is None:
            raise self._ended()
        return answer

    def answers(self) -> Iterator[dict[str, Any]]:
        """All answers until the program ends."""
        while (answer := self._next(PATIENCE)) is not None:
            yield answer

    def arrived(self) -> list[dict[str, Any]]:
        """The answers that are here already; raises `BenchmarkError` where the program has ended and said no more."""
        here: list[dict[str, Any]] = []
        while not self._answers.empty():
            if (answer := self._answers.get()) is None:
                self._answers.put(None)
                if not here:
                    raise self._ended()
                break
            here.append(answer)
        return here

    def _next(self, patience: float) -> dict[str, Any] | None:
        try:
            return self._answers.get(timeout=patience)
        except queue.Empty:
            raise BenchmarkError(f"{self._name}: silent for {patience:g} s") from None

    def _ended(self) -> BenchmarkError:
        return BenchmarkError(f"{self._name}: ended with status {self._process.wait()} before it was asked to")

    def go(self) -> None:
        """Lets a program that said it is ready begin."""
        self._send("go\n")

    def end(self) -> None:
        """Ends stdin, which asks the program to stop, and the program itself if it does not."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()
