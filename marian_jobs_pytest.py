"""The fixtures `marian_queue` and `marian_worker`, wherever marian-jobs and pytest are installed together.

`pytest -p no:marian_jobs` leaves them out. A module beside the package, because pytest loads it at every start, also
for tests that have nothing to do with jobs: the package is imported when a fixture is first asked for.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from marian_jobs import Worker
    from marian_jobs.testing import VirtualQueue


@pytest.fixture
def marian_queue() -> "VirtualQueue":
    """A queue in memory whose time the test moves: `marian_jobs.testing.VirtualQueue`, starting at the present."""
    from marian_jobs.testing import VirtualQueue

    return VirtualQueue()


@pytest.fixture
def marian_worker(marian_queue: "VirtualQueue") -> "Worker":
    """A worker of `marian_queue`, to register handlers with."""
    return marian_queue.worker()
