"""Spans: of the enqueuer, of the run, and how the one comes to be the other's parent."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import BaseModel, ConfigDict

from marian_jobs import (
    Backoff,
    Context,
    Dead,
    Job,
    KeyConflict,
    MemoryStore,
    Queue,
    Retry,
    Snooze,
    Status,
    Store,
    SyncQueue,
    Worker,
    new_job,
)
from tests.telemetry.conftest import Collected
from tests.worker import isolated

SOON = Backoff(base=timedelta(0), max=timedelta(0))


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Trace and span."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


class TestEnqueueing:
    async def test_it_is_a_producer_span_by_the_conventions(self, store: Store, collected: Collected) -> None:
        job = await Queue(collected.telemetry().traced(store)).enqueue("embed", {"document": 1})
        span = collected.span("enqueue embed")
        assert span.kind is SpanKind.PRODUCER
        assert attributes(span) == {
            "messaging.system": "marian_jobs",
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
            "messaging.destination.name": "embed",
            "messaging.message.id": str(job.id),
            "messaging.marian_jobs.created": True,
        }

    async def test_a_job_that_was_there_is_said_to_be(self, store: Store, collected: Collected) -> None:
        queue = Queue(collected.telemetry().traced(store))
        first = await queue.enqueue("t", key="k")
        await queue.enqueue("t", key="k")
        again = attributes(collected.spans("enqueue t")[1])
        assert (again["messaging.marian_jobs.created"], again["messaging.message.id"]) == (False, str(first.id))

    async def test_a_batch_is_one_span(self, store: Store, collected: Collected) -> None:
        queue = Queue(collected.telemetry().traced(store))
        await queue.enqueue_many([new_job("a"), new_job("a")])
        await queue.enqueue_many([new_job("a"), new_job("b"), new_job("b")])
        assert attributes(collected.span("enqueue a"))["messaging.batch.message_count"] == 2
        mixed = attributes(collected.span("enqueue"))
        assert mixed["messaging.batch.message_count"] == 3
        assert "messaging.destination.name" not in mixed

    async def test_a_refusal_is_recorded(self, store: Store, collected: Collected) -> None:
        queue = Queue(collected.telemetry().traced(store))
        await queue.enqueue("t", key="k")
        if isinstance(store, MemoryStore):  # the table's owner column refers to real accounts
            with pytest.raises(KeyConflict):
                await queue.enqueue("t", key="k", user_id="00000000-0000-0000-0000-000000000001")
            span = collected.spans("enqueue t")[1]
            assert span.status.status_code is StatusCode.ERROR
            assert attributes(span)["error.type"] == "marian_jobs.errors.KeyConflict"
            assert [event.name for event in span.events] == ["exception"]

    def test_code_without_a_loop_passes_its_span_on(self, collected: Collected) -> None:
        with (
            SyncQueue(collected.telemetry().traced(MemoryStore())) as queue,
            collected.tracer_provider.get_tracer("test").start_as_current_span("request") as request,
        ):
            queue.enqueue("t")
        child = collected.span("enqueue t")
        assert child.parent is not None
        assert child.parent.span_id == request.get_span_context().span_id


class TestTheContextsJourney:
    async def test_unasked_the_payload_is_left_alone(self, store: Store, collected: Collected) -> None:
        telemetry = collected.telemetry()
        job = await Queue(telemetry.traced(store)).enqueue("t", {"a": 1})
        stored = await store.get(job.id)
        assert stored is not None
        assert stored.payload == {"a": 1}
        worker = Worker(store)
        telemetry.watch(worker)
        worker.handler("t")(lambda job: None)
        await worker.tick()
        run = collected.span("process t")
        assert (run.parent, run.links) == (None, ())
        assert ids(run)[0] != ids(collected.span("enqueue t"))[0]

    async def test_asked_for_the_run_is_the_enqueuers_child(self, store: Store, collected: Collected) -> None:
        telemetry = collected.telemetry(propagate=True)
        seen: list[Any] = []
        worker = Worker(store)
        telemetry.watch(worker)

        @worker.handler("t")
        async def handle(job: Job, context: Context) -> None:
            seen.extend([job.payload, context.job.payload, context.trace])

        with collected.tracer_provider.get_tracer("test").start_as_current_span("request"):
            job = await Queue(telemetry.traced(store)).enqueue("t", {"a": 1})
        assert job.payload == {"a": 1}
        await worker.tick()
        sent, run = collected.span("enqueue t"), collected.span("process t")
        assert run.parent is not None
        assert (run.parent.trace_id, run.parent.span_id) == ids(sent)
        assert [link.context.span_id for link in run.links] == [ids(sent)[1]]
        assert ids(run)[0] == ids(collected.span("request"))[0]
        trace_id, span_id = ids(sent)
        assert seen[:2] == [{"a": 1}, {"a": 1}]
        assert seen[2]["traceparent"][:-3] == f"00-{trace_id:032x}-{span_id:016x}"  # and then flags

    async def test_a_worker_that_does_not_trace_takes_it_out_too(self, store: Store, collected: Collected) -> None:
        class Strict(BaseModel):
            model_config = ConfigDict(extra="forbid")
            a: int

        queue = Queue(collected.telemetry(propagate=True).traced(store))
        job = await queue.enqueue("t", {"a": 1})
        stored = await store.get(job.id)
        assert stored is not None
        assert set(stored.payload) == {"a", "_trace"}
        worker = Worker(store)

        @worker.handler("t")
        def handle(payload: Strict) -> None:
            assert payload.a == 1

        await worker.tick()
        done = await store.get(job.id)
        assert done is not None
        assert done.status is Status.SUCCEEDED

    @pytest.mark.parametrize("mine", ["mine", 1, None, {"traceparent": "mine"}, {"traceparent": 1}, {"more": "x"}, {}])
    async def test_a_member_of_that_name_that_is_the_users_stays(self, mine: object, collected: Collected) -> None:
        store = MemoryStore()
        seen: list[object] = []
        await Queue(collected.telemetry(propagate=True).traced(store)).enqueue("t", {"_trace": mine})
        worker = Worker(store)
        worker.handler("t")(lambda job: seen.append(job.payload))
        await worker.tick()
        assert seen == [{"_trace": mine}]

    async def test_without_a_provider_nothing_is_added(self) -> None:
        from marian_jobs.telemetry import Telemetry

        store = MemoryStore()
        provider = trace.NoOpTracerProvider()
        job = await Queue(Telemetry(propagate=True, tracer_provider=provider).traced(store)).enqueue("t", {"a": 1})
        stored = await store.get(job.id)
        assert stored is not None
        assert stored.payload == {"a": 1}

    async def test_retries_are_children_of_the_same_enqueueing(self, store: Store, collected: Collected) -> None:
        telemetry = collected.telemetry(propagate=True)
        worker = Worker(store)
        telemetry.watch(worker)

        @worker.handler("t", backoff=SOON)
        async def handle(job: Job) -> None:
            if job.attempts == 1:
                raise ValueError("once")

        await Queue(telemetry.traced(store)).enqueue("t")
        await worker.tick()
        await worker.tick()
        runs = collected.spans("process t")
        assert [attributes(run)["messaging.marian_jobs.attempt"] for run in runs] == [1, 2]
        assert {run.parent.span_id for run in runs if run.parent} == {ids(collected.span("enqueue t"))[1]}


class TestRunning:
    async def run(self, store: Store, collected: Collected, function: Any, **options: Any) -> ReadableSpan:
        """The span of the first run of a job whose handler is the function."""
        worker = Worker(store, grace=timedelta(0))
        worker.handler("t", backoff=SOON, **options)(function)
        collected.telemetry().watch(worker)
        await Queue(store).enqueue("t", {"do": "return"}, max_attempts=2)
        await worker.tick()
        return collected.span("process t")

    async def test_it_is_a_consumer_span_by_the_conventions(self, store: Store, collected: Collected) -> None:
        async def handle(job: Job) -> None:
            pass

        span = await self.run(store, collected, handle)
        told = attributes(span)
        assert span.kind is SpanKind.CONSUMER
        assert span.status.status_code is StatusCode.UNSET
        assert told.pop("messaging.message.id")
        assert told == {
            "messaging.system": "marian_jobs",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "t",
            "messaging.marian_jobs.attempt": 1,
            "messaging.marian_jobs.max_attempts": 2,
            "messaging.marian_jobs.outcome": "succeeded",
        }

    @pytest.mark.parametrize(
        ("error", "outcome", "kind"),
        [
            (ValueError("boom"), "failed", "ValueError"),
            (Retry("busy"), "failed", "marian_jobs.worker.outcomes.Retry"),
            (Dead("bad input"), "dead", "marian_jobs.worker.outcomes.Dead"),
            (Snooze(timedelta(seconds=1)), "released", None),
        ],
    )
    async def test_what_a_handler_raises_is_told(
        self, error: Exception, outcome: str, kind: str | None, collected: Collected
    ) -> None:
        async def handle(job: Job) -> None:
            raise error

        span = await self.run(MemoryStore(), collected, handle)
        told = attributes(span)
        assert (told["messaging.marian_jobs.outcome"], told.get("error.type")) == (outcome, kind)
        assert (span.status.status_code is StatusCode.ERROR) == (kind is not None)
        assert [event.name for event in span.events] == (["exception"] if kind else [])

    async def test_no_credential_leaves_with_an_exception(self, collected: Collected) -> None:
        async def handle(job: Job) -> None:
            raise ValueError("could not reach postgresql://me:S3CRET@db/x")

        span = await self.run(MemoryStore(), collected, handle)
        assert "could not reach postgresql://me:…@db/x" in str(
            (span.events[0].attributes or {})["exception.stacktrace"]
        )
        assert "S3CRET" not in span.to_json()

    async def test_an_exception_that_cannot_be_read_is_told_all_the_same(self, collected: Collected) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        async def handle(job: Job) -> None:
            raise Mute

        span = await self.run(MemoryStore(), collected, handle)
        assert [event.name for event in span.events] == ["exception"]

    async def test_the_last_failure_is_dead(self, collected: Collected) -> None:
        store = MemoryStore()
        worker = Worker(store)
        collected.telemetry().watch(worker)

        @worker.handler("t", backoff=SOON)
        def handle(job: Job) -> None:
            raise ValueError("always")

        await Queue(store).enqueue("t", max_attempts=2)
        await worker.tick()
        await worker.tick()
        outcomes = [attributes(run)["messaging.marian_jobs.outcome"] for run in collected.spans("process t")]
        assert outcomes == ["failed", "dead"]

    async def test_a_timeout_is_an_error_of_its_own_type(self, collected: Collected) -> None:
        async def handle(job: Job) -> None:
            await asyncio.sleep(60)

        span = await self.run(MemoryStore(), collected, handle, timeout=0.05)
        told = attributes(span)
        assert (told["messaging.marian_jobs.outcome"], told["error.type"]) == ("failed", "timeout")
        assert span.status.description == "timeout: the handler took longer than 0.05 s"

    async def test_the_span_of_a_thread_that_hangs_ends_all_the_same(self, collected: Collected) -> None:
        free = threading.Event()

        def handle(job: Job) -> None:
            free.wait(30)

        span = await self.run(MemoryStore(), collected, handle, timeout=0.05)
        free.set()
        assert attributes(span)["error.type"] == "timeout"

    async def test_it_is_current_in_coroutines_and_in_threads(self, collected: Collected) -> None:
        store = MemoryStore()
        worker = Worker(store)
        collected.telemetry().watch(worker)
        tracer = collected.tracer_provider.get_tracer("test")

        @worker.handler("a")
        async def in_loop(job: Job) -> None:
            with tracer.start_as_current_span("inside"):
                pass

        @worker.handler("b")
        def in_thread(job: Job) -> None:
            with tracer.start_as_current_span("inside"):
                pass

        await Queue(store).enqueue("a")
        await Queue(store).enqueue("b")
        await worker.tick()
        await worker.tick()
        parents = [span.parent.span_id for span in collected.spans("inside") if span.parent]
        assert parents == [ids(collected.span(f"process {type}"))[1] for type in "ab"]

    async def test_a_handler_in_a_process_has_its_span_here(self, collected: Collected) -> None:
        span = await self.run(MemoryStore(), collected, isolated.work, isolation="process")
        assert attributes(span)["messaging.marian_jobs.outcome"] == "succeeded"

    async def test_jobs_that_run_enqueue_in_the_same_trace(self, collected: Collected) -> None:
        store = MemoryStore()
        telemetry = collected.telemetry(propagate=True)
        queue, worker = Queue(telemetry.traced(store)), Worker(store)
        telemetry.watch(worker)

        @worker.handler("first")
        async def first(job: Job) -> None:
            await queue.enqueue("second")

        worker.handler("second")(lambda job: None)
        await queue.enqueue("first")
        await worker.tick()
        await worker.tick()
        assert len({ids(span)[0] for span in collected.exporter.get_finished_spans()}) == 1

    async def test_telemetry_stands_outside_other_middleware(self, collected: Collected) -> None:
        store = MemoryStore()
        worker = Worker(store)
        inside: list[bool] = []

        @worker.middleware
        async def mine(context: Context, call_next: Any) -> Any:
            inside.append(trace.get_current_span().is_recording())
            return await call_next()

        collected.telemetry().watch(worker)
        worker.handler("t")(lambda job: None)
        await Queue(store).enqueue("t")
        await worker.tick()
        assert inside == [True]


@dataclass
class Broken:
    """An observer that fails at everything."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("broken")


async def test_an_observer_that_fails_harms_no_job(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    worker = Worker(store)
    worker.observe(Broken())
    worker.handler("t")(lambda job: None)
    job = await Queue(store).enqueue("t")
    await worker.tick()
    done = await store.get(job.id)
    assert done is not None
    assert done.status is Status.SUCCEEDED
    assert "observer Broken failed" in caplog.text
