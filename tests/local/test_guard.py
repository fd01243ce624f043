"""The guard as the program it is: what it ends, whom it asks first, and when it goes without a deed."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = "from marian_jobs.local import guard; guard.PATIENCE = 0.3; guard.main()"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


@contextmanager
def victim(program: str) -> Iterator["subprocess.Popen[str]"]:
    """A process to be guarded, ready."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def guard(told: str, *remove: Path) -> int:
    """Runs a guard whose parent says this and is gone; its exit code."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, remove)], input=told, text=True, timeout=30
    ).returncode


def test_a_process_is_asked_to_stop_when_the_parent_is_gone() -> None:
    with victim("import time; print('ready', flush=True); time.sleep(60)") as process:
        assert guard(f"{process.pid}\n") == 0
        assert process.wait(10) == -signal.SIGINT


def test_one_that_does_not_heed_is_killed() -> None:
    with victim(STUBBORN) as process:
        assert guard(f"{process.pid}\n") == 0
        assert process.wait(10) == -signal.SIGKILL


def test_only_the_process_named_last_is_ended() -> None:
    with victim(STUBBORN) as first:
        assert guard(f"{first.pid}\n\n") == 0
        assert first.poll() is None


def test_directories_go_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    assert guard("", tmp_path / "data", tmp_path / "never-was") == 0
    assert not (tmp_path / "data").exists()


def test_a_dismissed_guard_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with victim(STUBBORN) as process:
        assert guard(f"{process.pid}\ndismissed\n", tmp_path / "data") == 0
        assert process.poll() is None
    assert (tmp_path / "data").exists()
