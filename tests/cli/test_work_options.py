"""Options of `marian worker` that stand in for what the module says."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from marian_jobs import MarianError, MemoryStore, Worker, new_job
from tests.cli.conftest import Marian
from tests.cli.test_work import app

__all__ = ["app"]


NOWHERE = "postgresql://127.0.0.1:1/nobody-is-asked"


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--concurrency", "0"], "concurrency: must be between 1 and 100000, got 0"),
        (["--lease", "0"], "lease: must be longer than zero"),
        (["--poll", "soon"], "'soon' is not a duration"),
        (["--grace", "-1s"], "'-1s' is not a duration"),
        (["--health", "http://x"], "'http://x' is no address; write 9090, 127.0.0.1:9090"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(options: list[str], reason: str, marian: Marian) -> None:
    done = marian("worker", "shop.jobs:worker", *options, dsn=NOWHERE)
    assert done.returncode == 2
    assert reason in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.usefixtures("app")
def test_health_without_its_extra_says_what_to_install(marian: Marian, tmp_path: Path) -> None:
    (tmp_path / "prometheus_client.py").write_text(
        "raise ModuleNotFoundError('gone', name='prometheus_client')\n"  # found before the installed one
    )
    done = marian("worker", "shop.jobs:worker", "--health", "0", dsn=NOWHERE, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "health needs prometheus_client: pip install 'marian-jobs[health]'" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_tuned_worker_goes_by_the_new_options_and_keeps_the_others() -> None:
    store = MemoryStore()
    worker = Worker(store, concurrency=7, lease=timedelta(seconds=10), poll=timedelta(seconds=40))
    worker.tune(concurrency=2, lease=timedelta(hours=1))
    leases: list[Any] = []

    @worker.handler("t")
    async def handle(job: Any) -> None:
        leases.append(job.lease_until - job.updated_at)

    await store.enqueue([new_job("t")])
    await worker.run(drain=True)
    assert leases == [timedelta(hours=1)]
    assert worker.vitals().concurrency == 2
    with pytest.raises(MarianError, match="has run already"):
        worker.tune(concurrency=3)


def test_a_refused_option_changes_nothing() -> None:
    worker = Worker(MemoryStore(), concurrency=7)
    before = worker.vitals()
    with pytest.raises(ValueError, match="lease"):
        worker.tune(concurrency=2, lease=timedelta(0))
    assert worker.vitals() == before
