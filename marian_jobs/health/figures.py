"""A worker's figures for Prometheus: what its observer has counted, how it is, and how the queue stands."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from marian_jobs import clock
from marian_jobs.health.verdict import judge_readiness
from marian_jobs.job import Held, Job
from marian_jobs.store import Stat
from marian_jobs.worker import Outcome
from marian_jobs.worker.observers import waited
from marian_jobs.worker.outcomes import name_of
from marian_jobs.worker.vitals import Vitals

QUEUE = "marian_jobs_queue"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Counts:
    """An `Observer` that counts into its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._runs = Counter(
            "marian_jobs_runs", "Runs that ended, by their outcome.", ["type", "outcome"], registry=self.registry
        )
        self._took = Histogram(
            "marian_jobs_run_seconds", "How long handlers ran.", ["type"], registry=self.registry, buckets=SECONDS
        )
        self._waited = Histogram(
            "marian_jobs_wait_seconds",
            "How long jobs were due before they were claimed, by the database's clock.",
            ["type"],
            registry=self.registry,
            buckets=SECONDS,
        )
        self._running = Gauge("marian_jobs_running", "Jobs in this worker's slots.", ["type"], registry=self.registry)
        self._reclaimed = Counter(
            "marian_jobs_reclaimed",
            "Jobs found whose leases had run out, whosever they were.",
            registry=self.registry,
        )
        self._refused = Counter(
            "marian_jobs_refused", "Outcomes that came too late: the job had moved on.", registry=self.registry
        )

    def began(self, job: Job) -> None:
        """See `Observer.began`."""
        self._running.labels(job.type).inc()
        self._waited.labels(job.type).observe(waited(job).total_seconds())

    def ended(self, job: Job, outcome: Outcome, took: timedelta) -> None:
        """See `Observer.ended`."""
        self._running.labels(job.type).dec()
        self._took.labels(job.type).observe(took.total_seconds())
        self._runs.labels(job.type, name_of(outcome, job)).inc()

    def refused(self, held: Held) -> None:
        """See `Observer.refused`."""
        self._refused.inc()

    def reclaimed(self, count: int) -> None:
        """See `Observer.reclaimed`."""
        self._reclaimed.inc(count)


class WorkerFigures(Collector):
    """How the worker is, at the moment of the scrape."""

    def __init__(self, examine: Callable[[], Vitals]) -> None:
        self._examine = examine

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client`."""
        vitals, now = self._examine(), clock.monotonic()
        ready = judge_readiness(vitals, now).well
        yield GaugeMetricFamily("marian_jobs_worker_ready", "Whether /readyz answers 200.", float(ready))
        yield GaugeMetricFamily("marian_jobs_worker_slots", "The worker's concurrency.", vitals.concurrency)
        yield GaugeMetricFamily("marian_jobs_worker_abandoned", "Handlers that would not stop.", vitals.abandoned)
        if vitals.answered_at is not None:
            age = now - vitals.answered_at
            yield GaugeMetricFamily("marian_jobs_store_answer_age_seconds", "Since the store last answered.", age)


class QueueFigures(Collector):
    """How the queue stands: the same from every worker, so take the maximum. Nothing where it is not known in time."""

    def __init__(self, read: Callable[[], Sequence[Stat] | None]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client`."""
        stats = self._read()
        if stats is None:
            return
        jobs = GaugeMetricFamily(f"{QUEUE}_jobs", "Jobs in the table.", labels=["type", "status"])
        age = GaugeMetricFamily(
            f"{QUEUE}_oldest_due_seconds", "How long the oldest due job has waited.", labels=["type"]
        )
        expired = GaugeMetricFamily(f"{QUEUE}_expired_leases", "Running jobs with a lease run out.", labels=["type"])
        for stat in stats:
            jobs.add_metric([stat.type, stat.status.value], stat.count)
            if stat.status.value == "running":
                expired.add_metric([stat.type], stat.expired_leases)
        for type in dict.fromkeys(stat.type for stat in stats):
            age.add_metric([type], _oldest(stat for stat in stats if stat.type == type))
        yield from (jobs, age, expired)


def _oldest(stats: Iterable[Stat]) -> float:
    """The age of the oldest due job in seconds, 0 when none is due: an alert wants a number."""
    return max((stat.oldest_due_age or timedelta(0)).total_seconds() for stat in stats)
