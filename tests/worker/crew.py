"""Worker processes that start fast: forked from a server which has imported everything, and killed as any others."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.worker.crew_programs"])


class Crew:
    """Processes that all run one function with the same arguments."""

    def __init__(self, program: Callable[..., None], *arguments: Any) -> None:
        self._program = program
        self._arguments = arguments
        self.processes: list[ForkServerProcess] = []

    def start(self, count: int = 1) -> None:
        """Starts some more."""
        for _ in range(count):
            process = FORKS.Process(target=self._program, args=self._arguments, daemon=True)
            process.start()
            self.processes.append(process)

    @property
    def pids(self) -> list[int]:
        """The processes that live, oldest first."""
        return [process.pid for process in self.processes if process.pid is not None]

    def kill(self, pids: set[int]) -> None:
        """Kills some without warning, and returns when they are gone."""
        doomed = [process for process in self.processes if process.pid in pids]
        for process in doomed:
            process.kill()
        for process in doomed:
            process.join()
            self.processes.remove(process)

    def stop(self) -> None:
        """Kills all."""
        self.kill(set(self.pids))
