"""The places in which runs are performed: long-lived tasks, as many as the worker's concurrency allows.

A slot takes the next run, performs it, hands its outcome on and takes the next. A handler that never waits costs no
task and no turn of the event loop; one that waits frees the loop for the next slot. A slot whose handler will not end
although told to is left behind with it, and another takes its place.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from marian_jobs.worker.outcomes import Outcome
from marian_jobs.worker.processes import HandlerProcesses
from marian_jobs.worker.run import Run
from marian_jobs.worker.threads import DaemonThreads

# A loop full of handlers that never wait must still let signals, timers and sockets have their turn.
TURN = 50


class Slots:
    """Performs runs; `finished` is called once for each, in the event loop, with its outcome."""

    def __init__(self, most: int, finished: Callable[[Run, Outcome], None]) -> None:
        self.processes = HandlerProcesses(most)
        self.threads = DaemonThreads("marian-jobs-handler")
        self._finished = finished
        self._ready: deque[Run] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._waking = False

    def start(self, runs: Iterable[Run]) -> None:
        """Performs the runs, at once as far as the caller has left slots for them."""
        self._ready.extend(runs)
        self._wake()

    def give_up(self, run: Run) -> None:
        """Lets go of a run whose handler would not stop, with the outcome it was stopped for."""
        self._finish(run, run.stopped())

    async def close(self) -> None:
        """Ends the idle slots; whatever still runs is left behind."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.2)
        self.processes.close()

    def _wake(self) -> None:
        """Wakes one slot; it wakes the next when it begins, so that runs which never wait wake one slot in all."""
        if self._waking or not self._ready:
            return
        self._waking = True
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        task = asyncio.get_running_loop().create_task(self._serve(), name="marian-jobs-slot")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        turn = 0
        while True:
            self._waking = False
            while self._ready:
                run = self._ready.popleft()
                self._wake()
                outcome = await run.perform(task, self.threads, self.processes)
                if run.abandoned:
                    return
                self._finish(run, outcome)
                turn += 1
                if turn % TURN == 0:
                    await asyncio.sleep(0)
            await self._rest()

    async def _rest(self) -> None:
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        await idle

    def _finish(self, run: Run, outcome: Outcome) -> None:
        run.ended = True
        self._finished(run, outcome)
