from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from marian_jobs import MemoryStore, PostgresStore, Store
from marian_jobs.telemetry import Telemetry


@dataclass
class Collected:
    """What telemetry has sent, and the providers through which it does."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    tracer_provider: TracerProvider = field(default_factory=TracerProvider)
    made: list[Telemetry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meter_provider = MeterProvider([self.reader])

    def telemetry(self, *, propagate: bool = False) -> Telemetry:
        made = Telemetry(propagate=propagate, tracer_provider=self.tracer_provider, meter_provider=self.meter_provider)
        self.made.append(made)
        return made

    def spans(self, name: str) -> list[ReadableSpan]:
        """The ended spans of a name, oldest first."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        """The only ended span of a name."""
        [span] = self.spans(name)
        return span

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def collected() -> Iterator[Collected]:
    collected = Collected()
    yield collected
    for telemetry in collected.made:
        telemetry.close()


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else PostgresStore(request.getfixturevalue("database"))
    await store.open()
    yield store
    await store.close()
