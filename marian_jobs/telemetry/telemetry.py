"""What a program asks for its telemetry."""

from typing import TypeVar, cast

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from marian_jobs.stats_reader import StatsReader
from marian_jobs.store import Store
from marian_jobs.telemetry.depth import measure_depth
from marian_jobs.telemetry.enqueueing import TracedStore
from marian_jobs.telemetry.names import SCOPE
from marian_jobs.telemetry.running import RunTelemetry
from marian_jobs.worker import Worker

S = TypeVar("S", bound=Store)


class Telemetry:
    """Spans and metrics by OpenTelemetry's global providers, or by those given.

    With `propagate` jobs carry the enqueuer's trace context in a payload member `_trace`, which workers take out again:
    then enqueueing and running are one trace. Without it payloads are left alone, and a run is a trace of its own.
    """

    def __init__(
        self,
        *,
        propagate: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._propagate = propagate
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._readers: list[StatsReader] = []
        self._meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)

    def traced(self, store: S) -> S:
        """The store, with a producer span and metrics for every enqueueing through it: for `Queue` and `SyncQueue`."""
        return cast("S", TracedStore(store, self._tracer, self._meter, propagate=self._propagate))

    def watch(self, worker: Worker) -> None:
        """A consumer span around every run of the worker, outside its other middleware; and its metrics."""
        runs = RunTelemetry(self._tracer, self._meter)
        worker.middlewares.insert(0, runs.around)
        worker.observe(runs)

    def measure(self, store: Store) -> None:
        """The metrics of the queue itself, read whenever metrics are collected: once, in one process of yours."""
        self._readers.append(StatsReader(store))
        measure_depth(self._meter, self._readers[-1])

    def close(self) -> None:
        """Gives back the connections by which the queue was measured."""
        for reader in self._readers:
            reader.close()
