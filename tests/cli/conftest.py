"""The command as a user has it: real processes where exit codes and pipes matter, in this process where they do not."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

PROGRAM = [sys.executable, "-c", "from marian_jobs.cli import main; main()"]
OURS = ("MARIAN_", "SUPABASE_")

Marian = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(**more: str) -> dict[str, str]:
    """This process's environment without anybody's queue in it; wide, so that no message is broken into lines."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**kept, "COLUMNS": "200", **more}


@pytest.fixture
def marian(tmp_path: Path) -> Marian:
    """Runs `marian` in an empty directory and returns the ended process; `dsn` is where its queue is."""

    def run(
        *arguments: str, dsn: str | None = None, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        known = {"MARIAN_DATABASE_URL": dsn} if dsn else {}
        return subprocess.run(
            [*PROGRAM, *arguments],
            input=stdin,
            env=environment(**known, **(env or {})),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def answers(done: "subprocess.CompletedProcess[str]") -> list[Any]:
    """What a command that was done printed as JSON lines."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def answer(done: "subprocess.CompletedProcess[str]") -> Any:
    """The one JSON document that it printed."""
    [document] = answers(done)
    return document
