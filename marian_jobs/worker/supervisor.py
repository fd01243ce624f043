"""Many worker processes under one: each is restarted with back-off when it ends unasked, all are stopped together.

A supervision library would bring a daemon, a socket and a configuration of its own; what a worker needs is this much.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Sequence

from marian_jobs import clock

logger = logging.getLogger("marian_jobs.supervisor")

SHORTEST, LONGEST = 0.5, 30.0
STEADY = 60.0  # seconds after which a process counts as healthy, and its back-off begins anew


class Supervisor:
    """Runs a command at each of `count` places until a signal comes, or until each has ended with exit code 0."""

    def __init__(self, command: Callable[[int], Sequence[str]], count: int) -> None:
        self._command = command
        self._count = count
        self._stopping = asyncio.Event()
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """The exit code: 0 when all ended well, else the worst."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        codes = await asyncio.gather(*(self._keep(place) for place in range(self._count)))
        return max(codes)

    def _stop(self, number: int) -> None:
        self._stopping.set()
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(number)

    async def _keep(self, place: int) -> int:
        """Starts the process, again and again while it ends unasked and in error."""
        pause = SHORTEST
        while True:
            started = clock.monotonic()
            # A session of its own: Ctrl-C in the terminal reaches it once, through us.
            process = await asyncio.create_subprocess_exec(*self._command(place), start_new_session=True)
            self._processes[place] = process
            if self._stopping.is_set():
                process.terminate()
            code = await process.wait()
            if self._stopping.is_set() or code == 0:
                # A process that was still starting ends by our signal itself: it has nothing to end well.
                return 0 if code in (-signal.SIGTERM, -signal.SIGINT) else abs(code)
            if clock.monotonic() - started > STEADY:
                pause = SHORTEST
            logger.warning("worker process %d ended with %d; starting another in %.1f s", place, code, pause)
            await self._pause(pause)
            if self._stopping.is_set():
                return abs(code)
            pause = min(pause * 2, LONGEST)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds * (1 + clock.chance() / 4)):
                await self._stopping.wait()
        except TimeoutError:
            pass


def same_command_without(*options: str) -> list[str]:
    """This process's own command line without some options and their values: what each copy runs."""
    arguments = sys.argv[1:]
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in options:
            skip = True
        elif not argument.startswith(tuple(f"{option}=" for option in options)):
            kept.append(argument)
    return [sys.executable, "-m", "marian_jobs", *kept]
