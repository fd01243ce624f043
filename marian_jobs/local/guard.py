"""Ends what the local stack started once the stack's own process is gone, however it went: kill -9 included.

`Guard` starts this file as a program of its own, with the standard library alone, so that it is there within
milliseconds. Its standard input is a pipe that the parent holds. A line is the process to end from now on, or nothing
when there is none. The end of the input is the parent's end: the process is asked to stop, and the directories are
removed. The line `dismissed` lets the guard go at once, even where a forked child still holds the pipe.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 10.0
DISMISSED = "dismissed"


class Guard:
    """A guard over one process of ours, and over directories that go with it."""

    def __init__(self, *remove: Path) -> None:
        from marian_jobs.local.surroundings import surroundings  # not at the top: the program has no such package

        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *map(str, remove)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # not the parent's: whoever reads that would wait for us
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=surroundings(),
            start_new_session=True,
        )

    def watch(self, pid: int | None) -> None:
        """From now on it is this process that the guard ends; None for no process."""
        self._tell("" if pid is None else str(pid))

    def dismiss(self) -> None:
        """Lets the guard go: it ends no process and removes nothing."""
        self._tell(DISMISSED)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # somebody killed the guard; what it guards runs on
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()


def main() -> None:
    """Waits for the parent's end, then clears up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("remove", type=Path, nargs="*")
    wanted = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C is for the parent; we go when it has gone
    told = ""
    for line in sys.stdin:
        told = line.strip()
        if told == DISMISSED:
            return
    if told:
        _end(int(told))
    for directory in wanted.remove:
        shutil.rmtree(directory, ignore_errors=True)


def _end(pid: int) -> None:
    _send(pid, signal.SIGINT)  # to Postgres: a fast shutdown
    end = time.monotonic() + PATIENCE
    while _send(pid, 0) and time.monotonic() < end:
        time.sleep(0.05)
    _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
        return True
    return False


if __name__ == "__main__":
    main()
