"""The soak itself, for a few seconds."""

import json
import subprocess
import sys
from pathlib import Path

from marian_jobs.local.failure import LocalStackError
from marian_jobs.local.postgrest import program
from tests.needs import need

ROOT = Path(__file__).parent.parent.parent


def test_a_short_soak_samples_every_process_and_writes_its_chart(tmp_path: Path) -> None:
    try:
        program()
    except LocalStackError as e:
        need(False, f"PostgREST: {e}")
    done = subprocess.run(
        [sys.executable, "-m", "soak", "--short", "--output", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads((tmp_path / "soak.json").read_text())
    for part in ("gateway", "postgres", "postgrest", "worker over Postgres", "worker over the API", "client"):
        assert min(told["series"][f"memory: {part}"]) > 1
    assert told["counts"]["enqueued"] > 0
    assert not [name for name in told["counts"] if name.startswith("error")]
    assert "<svg" in (tmp_path / "soak.svg").read_text()
