"""Ends what the local stack started once the stack's own process is gone, however it went: kill -9 included.

    python -m marian_jobs.local.guard [--remove DIRECTORY] PIDFILE …

Reads its standard input, a pipe whose other end the parent holds and never writes to: its end is the parent's end.
Then each process named in the first line of a PIDFILE is asked to stop, and the directory is removed.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

PATIENCE = 10.0


def main() -> None:
    """Waits for the parent's end, then clears up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--remove", type=Path)
    parser.add_argument("pidfiles", type=Path, nargs="+")
    wanted = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C is for the parent; we go when it has gone
    sys.stdin.buffer.read()
    pids = [pid for file in wanted.pidfiles if (pid := _pid(file))]
    for pid in pids:
        _send(pid, signal.SIGINT)  # to Postgres: a fast shutdown
    end = time.monotonic() + PATIENCE
    while any(_send(pid, 0) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in pids:
        _send(pid, signal.SIGKILL)
    if wanted.remove is not None:
        shutil.rmtree(wanted.remove, ignore_errors=True)


def _pid(file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(file.read_text().splitlines()[0])
    return None


def _send(pid: int, number: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
        return True
    return False


if __name__ == "__main__":
    main()
