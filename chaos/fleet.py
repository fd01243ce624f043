"""The processes under fire: each in its place, started again when it ends, whatever ended it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent
PAUSE = 0.3


@dataclass
class Place:
    """A place for one process after the other; `told(n)` describes the n-th to itself."""

    name: str
    command: list[str]
    variable: str
    told: Callable[[int], Mapping[str, Any]]
    log: Path
    process: asyncio.subprocess.Process | None = None
    number: int = 0
    asked: set[str] = field(default_factory=set)

    async def start(self) -> None:
        """Starts the next process."""
        told = json.dumps({**self.told(self.number), "parent": os.getpid()})
        self.number += 1
        self.asked = set()
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self.command,
                cwd=ROOT,
                env={**os.environ, self.variable: told},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def send(self, number: int, what: str) -> bool:
        """Sends a signal and remembers why; false where no process is."""
        if self.process is None or self.process.returncode is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
            self.asked.add(what)
            return True
        return False


class Fleet:
    """All places. `unasked` lists the ends that nobody had asked for, with their exit codes."""

    def __init__(self, places: list[Place]) -> None:
        self.places = places
        self.unasked: list[str] = []
        self.killed: list[int] = []  # processes that died of SIGKILL unasked: a job may have done it
        self.survived: Counter[str] = Counter()
        self._sessions: set[int] = set()
        self._closing: set[str] = set()
        self._keepers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Fills all places, and keeps them filled."""
        self._keepers = [asyncio.create_task(self._keep(place)) for place in self.places]

    async def stop(self, name: str, within: float) -> None:
        """Asks the processes whose place's name begins so to end, and no more are started; kills what will not."""
        stopping = [place for place in self.places if place.name.startswith(name)]
        self._closing |= {place.name for place in stopping}
        for place in stopping:
            place.send(signal.SIGTERM, "stop")
        keepers = [k for k, place in zip(self._keepers, self.places, strict=True) if place in stopping]
        _, late = await asyncio.wait(keepers, timeout=within)
        if late:
            for place in stopping:
                if place.send(signal.SIGKILL, "kill"):
                    self.unasked.append(f"{place.name}: still there {within:g} s after it was asked to stop")
            await asyncio.wait(late)

    def leftovers(self) -> list[str]:
        """The processes that are still there of all that were ever started, and of their own children."""
        found = []
        for process in psutil.process_iter(["pid", "status", "cmdline"]):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                ours = os.getsid(process.info["pid"]) in self._sessions
                if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                    found.append(f"process {process.info['pid']}: {' '.join(process.info['cmdline'] or [])[:100]}")
        return found

    def end(self) -> None:
        """Kills whatever is left."""
        for keeper in self._keepers:
            keeper.cancel()
        for session in self._sessions:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(session, signal.SIGKILL)

    async def _keep(self, place: Place) -> None:
        while place.name not in self._closing:
            await place.start()
            assert place.process is not None
            self._sessions.add(place.process.pid)
            code = await place.process.wait()
            self._note(place, code)
            await asyncio.sleep(PAUSE)

    def _note(self, place: Place, code: int) -> None:
        assert place.process is not None
        self.survived[f"{place.name.split()[0]} processes ended"] += 1
        if code == -signal.SIGKILL and "kill" not in place.asked:
            self.killed.append(place.process.pid)
        elif code == -signal.SIGTERM and "stop" in place.asked:
            pass  # it was asked before it listened: it had nothing yet
        elif code != 0 and "kill" not in place.asked:
            self.unasked.append(f"{place.name}: ended with {code}, see {place.log}")
        elif code == 0 and not place.asked:
            self.unasked.append(f"{place.name}: ended by itself, see {place.log}")
