"""The enqueuer's side: a producer span around every enqueueing, whoever does it through the store."""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from opentelemetry.metrics import Meter
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from marian_jobs import clock, trace
from marian_jobs.job import Enqueued, NewJob
from marian_jobs.store import Store
from marian_jobs.telemetry import names

_W3C = TraceContextTextMapPropagator()


class TracedStore:
    """A store whose `enqueue` is traced and counted; in all else it is the store that it was made of."""

    def __init__(self, store: Store, tracer: Tracer, meter: Meter, *, propagate: bool) -> None:
        self._store = store
        self._tracer = tracer
        self._propagate = propagate
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs that an enqueuer tried to enqueue."
        )
        self._took = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long an enqueueing took.",
            explicit_bucket_boundaries_advisory=names.SECONDS,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def __repr__(self) -> str:
        return f"TracedStore({self._store!r})"

    async def __aenter__(self) -> Self:
        await self._store.open()
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self._store.close()

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: object | None = None) -> list[Enqueued]:
        """See `Store.enqueue`."""
        types = Counter(job.type for job in jobs)
        attributes = names.enqueueing(set(types))
        name = " ".join(["enqueue", *(types if len(types) == 1 else [])])
        began = clock.monotonic()
        failed: names.Attributes = {}
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
            try:
                answers = await self._store.enqueue(self._prepared(jobs, span), connection=connection)
            except BaseException as e:
                failed = {names.ERROR_TYPE: names.error_type(e)}
                span.set_attributes(failed)
                if not isinstance(e, Exception):  # the tracer itself tells only of those
                    span.set_status(StatusCode.ERROR, type(e).__name__)
                raise
            finally:
                self._took.record(clock.monotonic() - began, {**attributes, **failed})
                for type_, count in types.items():
                    self._sent.add(count, {**names.enqueueing({type_}), **failed})
            _tell(span, answers)
        return [trace.detach(answer)[0] for answer in answers]

    def _prepared(self, jobs: Sequence[NewJob], span: Span) -> Sequence[NewJob]:
        """The jobs, with the span's context where that was asked for."""
        if not self._propagate or not span.get_span_context().is_valid:
            return jobs
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        return [trace.attach(job, carrier) for job in jobs]


def _tell(span: Span, answers: Sequence[Enqueued]) -> None:
    if len(answers) == 1:
        span.set_attributes({names.MESSAGE_ID: str(answers[0].id), names.CREATED: answers[0].created})
    else:
        span.set_attributes({names.MESSAGE_COUNT: len(answers)})
