"""The chaos run itself, short."""

import re
import subprocess
import sys
from pathlib import Path

from marian_jobs.local.failure import LocalStackError
from marian_jobs.local.postgrest import program
from tests.needs import need

ROOT = Path(__file__).parent.parent.parent


def test_under_fire_no_job_is_lost_and_none_runs_wrongly() -> None:
    try:
        program()
    except LocalStackError as e:
        need(False, f"PostgREST: {e}")
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "--short"], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "PASS" in done.stdout
    completed = re.search(r"complete +([\d,]+)", done.stdout)
    assert completed is not None
    assert int(completed[1].replace(",", "")) > 50
