"""Handlers that tests run in processes of their own: they must be importable."""

import os
import signal
import time
from datetime import timedelta

from marian_jobs import Dead, Job, Retry, Snooze


def work(job: Job) -> None:
    """Does what the payload says."""
    match job.payload["do"]:
        case "return":
            return
        case "raise":
            raise ValueError("boom")
        case "retry" if job.attempts == 1:
            raise Retry("busy", after=timedelta(milliseconds=10))
        case "snooze" if job.attempts == 1:
            raise Snooze(timedelta(milliseconds=10))
        case "dead":
            raise Dead("bad input")
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(3)
        case "hang":
            while True:
                time.sleep(1)
        case "eat":
            bytearray(8 * 2**30)


async def work_async(job: Job) -> None:
    """The same, as a coroutine."""
    work(job)
