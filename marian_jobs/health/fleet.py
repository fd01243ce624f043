"""The health of many worker processes under one supervisor, from one address.

Each process tells of itself on a Unix socket of its own; the supervisor asks them all whenever it is asked. It lives
while no process says that it is stuck, or keeps silent (one that is not there is being started); it is ready when every
process is. Figures are told per process, under a label `process`; those of the queue, once.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.requests import Request

from marian_jobs.health.address import UNIX, bind
from marian_jobs.health.app import Answer, Together, pages
from marian_jobs.health.figures import QUEUE
from marian_jobs.health.server import Server
from marian_jobs.health.verdict import Verdict

PATIENCE = 8.0  # seconds; a process bounds what it asks of the database by less
WELL = 200


class Fleet:
    """The processes 0 … count − 1, each with a socket in a directory."""

    def __init__(self, directory: Path, count: int) -> None:
        self.url = ""
        self._directory = directory
        self._count = count
        self._threads = ThreadPoolExecutor(max_workers=count, thread_name_prefix="marian-jobs-fleet")

    def address(self, place: int) -> str:
        """Where a process is to serve its health."""
        return f"{UNIX}{self._directory / f'{place}.sock'}"

    def life(self) -> Answer:
        """See the module's text."""
        answers = self._ask("/healthz")
        stuck = [place for place, answer in enumerate(answers) if answer is not None and answer.status_code != WELL]
        return _judged(stuck, answers, "stuck")

    def readiness(self) -> Answer:
        """See the module's text."""
        answers = self._ask("/readyz")
        unready = [place for place, answer in enumerate(answers) if answer is None or answer.status_code != WELL]
        return _judged(unready, answers, "not ready")

    def figures(self, _: Request) -> Collector:
        """All figures of all processes, as collected now."""
        answers = self._ask("/metrics?queue=no")
        return Together([_Merged(answers), *self._queue(answers)])

    def close(self) -> None:
        """Asks no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _queue(self, answers: list[httpx.Response | None]) -> list[Collector]:
        """The queue's figures, from the first process that is there."""
        for place, answer in enumerate(answers):
            if answer is not None and answer.status_code == WELL:
                return [_Queue(self._get(place, "/metrics"))]
        return []

    def _ask(self, page: str) -> list[httpx.Response | None]:
        return list(self._threads.map(lambda place: self._get(place, page), range(self._count)))

    def _get(self, place: int, page: str) -> httpx.Response | None:
        """The process's answer, None when it is not there; one that keeps silent is answered for: 504."""
        transport = httpx.HTTPTransport(uds=self.address(place).removeprefix(UNIX))
        try:
            with httpx.Client(transport=transport, base_url="http://worker", timeout=PATIENCE) as client:
                return client.get(page)
        except httpx.TimeoutException:
            return httpx.Response(504, json={"reason": f"no answer within {PATIENCE:g} s"})
        except httpx.TransportError:
            return None


class _Merged(Collector):
    """The processes' own figures, told apart by a label."""

    def __init__(self, answers: list[httpx.Response | None]) -> None:
        self._answers = answers

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client`."""
        up = GaugeMetricFamily("marian_jobs_process_up", "Whether the process answers.", labels=["process"])
        merged: dict[str, Metric] = {}
        for place, answer in enumerate(self._answers):
            up.add_metric([str(place)], float(answer is not None and answer.status_code == WELL))
            for family in _families(answer):
                whole = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    whole.add_sample(sample.name, {**sample.labels, "process": str(place)}, sample.value)
        yield from (up, *merged.values())


class _Queue(Collector):
    """The queue's figures of one process, as they are."""

    def __init__(self, answer: httpx.Response | None) -> None:
        self._answer = answer

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client`."""
        yield from (family for family in _families(self._answer) if family.name.startswith(QUEUE))


def _families(answer: httpx.Response | None) -> Iterator[Metric]:
    if answer is not None and answer.status_code == WELL:
        yield from text_string_to_metric_families(answer.text)


def _judged(unwell: list[int], answers: list[httpx.Response | None], what: str) -> Answer:
    """Yes when none is unwell; all processes' own answers with it."""
    details: dict[str, Any] = {
        "processes": [{"status": "starting"} if answer is None else answer.json() for answer in answers]
    }
    if not unwell:
        return Verdict(True), details
    return Verdict(False, f"{len(unwell)} of {len(answers)} processes are {what}"), details


@contextmanager
def serve_fleet(address: str, count: int) -> Iterator[Fleet]:
    """Serves the health of `count` processes on an address as `serve_health` takes it, while the block lasts."""
    with TemporaryDirectory(prefix="marian-") as directory:
        fleet = Fleet(Path(directory), count)
        server = Server(pages(fleet.life, fleet.readiness, fleet.figures), bind(address))
        fleet.url = server.url
        server.start()
        try:
            yield fleet
        finally:
            server.stop()
            fleet.close()
