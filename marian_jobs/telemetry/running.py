"""The worker's side: a consumer span around every run, and the worker's metrics.

The span begins where the handler's code begins, as the outermost middleware, and is current in it: in its coroutine, or
in its thread. It ends with the run's outcome, which only the worker knows: also that of a handler that hangs.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from opentelemetry.context import Context as TraceContext
from opentelemetry.metrics import Meter
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, get_current_span, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from marian_jobs.errors import LeaseLost
from marian_jobs.job import Held, Job
from marian_jobs.telemetry import names
from marian_jobs.worker import CallNext, Context, Failed, Outcome, Snooze
from marian_jobs.worker.observers import waited
from marian_jobs.worker.outcomes import name_of

_W3C = TraceContextTextMapPropagator()
TIMEOUT = "timeout"


@dataclass(slots=True)
class _Open:
    """A run whose span has not ended."""

    span: Span
    error_type: str = TIMEOUT  # of a failure that no exception tells of


class RunTelemetry:
    """An `Observer`, and a middleware."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._open: dict[Held, _Open] = {}
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Jobs that were claimed to be run."
        )
        self._took = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long handlers ran.",
            explicit_bucket_boundaries_advisory=names.SECONDS,
        )
        self._waited = meter.create_histogram(
            "marian_jobs.wait.duration",
            "s",
            "How long jobs were due before they were claimed, by the database's clock.",
            explicit_bucket_boundaries_advisory=names.SECONDS,
        )
        self._runs = meter.create_counter("marian_jobs.runs", "{run}", "Runs that ended, by their outcome.")
        self._running = meter.create_up_down_counter("marian_jobs.running", "{job}", "Jobs in this worker's slots.")
        self._reclaimed = meter.create_counter(
            "marian_jobs.reclaimed", "{job}", "Jobs found whose leases had run out, whosever they were."
        )
        self._refused = meter.create_counter(
            "marian_jobs.refused", "{run}", "Outcomes that came too late: the job had moved on."
        )

    async def around(self, context: Context, call_next: CallNext) -> Any:
        """The middleware: the handler within its span."""
        run = self._open[context.job.held] = _Open(self._started(context))
        with use_span(run.span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            try:
                return await call_next()
            except Exception as e:
                if not isinstance(e, Snooze | LeaseLost):  # which are no failures
                    run.error_type = names.error_type(e)
                    run.span.add_event("exception", names.exception(e))
                raise

    def _started(self, context: Context) -> Span:
        """A child of the enqueuer's span, and linked to it, where its context came along; else the root of a trace."""
        job = context.job
        parent = _W3C.extract(context.trace, TraceContext())
        sender = get_current_span(parent).get_span_context()
        return self._tracer.start_span(
            f"process {job.type}",
            context=parent,
            kind=SpanKind.CONSUMER,
            links=[Link(sender)] if sender.is_valid else [],
            attributes={
                **names.processing(job.type),
                names.MESSAGE_ID: str(job.id),
                names.ATTEMPT: job.attempts,
                names.MAX_ATTEMPTS: job.max_attempts,
            },
        )

    def began(self, job: Job) -> None:
        """See `Observer.began`."""
        attributes = names.processing(job.type)
        self._consumed.add(1, attributes)
        self._running.add(1, attributes)
        self._waited.record(waited(job).total_seconds(), attributes)

    def ended(self, job: Job, outcome: Outcome, took: timedelta) -> None:
        """See `Observer.ended`."""
        attributes = names.processing(job.type)
        self._running.add(-1, attributes)
        run = self._open.pop(job.held, None)
        told: names.Attributes = {names.OUTCOME: name_of(outcome, job)}
        if isinstance(outcome, Failed):
            told[names.ERROR_TYPE] = run.error_type if run else TIMEOUT
        self._took.record(took.total_seconds(), {**attributes, **told})
        self._runs.add(1, {**attributes, **told})
        if run is not None:
            run.span.set_attributes(told)
            if isinstance(outcome, Failed):
                run.span.set_status(StatusCode.ERROR, outcome.error)
            run.span.end()

    def refused(self, held: Held) -> None:
        """See `Observer.refused`."""
        self._refused.add(1, {names.SYSTEM: names.SCOPE})

    def reclaimed(self, count: int) -> None:
        """See `Observer.reclaimed`."""
        self._reclaimed.add(count, {names.SYSTEM: names.SCOPE})
