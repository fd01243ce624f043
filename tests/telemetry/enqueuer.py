"""A program that enqueues one job in a trace of its own, and prints that trace's id: run in a process of its own."""

import asyncio
import os
import sys

from opentelemetry.sdk.trace import TracerProvider

from marian_jobs import PostgresStore, Queue, Store, SupabaseStore
from marian_jobs.telemetry import Telemetry


def store() -> Store:
    if url := os.environ.get("SUPABASE_URL"):
        return SupabaseStore(url, os.environ["SUPABASE_SERVICE_ROLE_KEY"])
    return PostgresStore(os.environ["MARIAN_DATABASE_URL"])


async def main(type: str) -> None:
    provider = TracerProvider()
    telemetry = Telemetry(propagate=True, tracer_provider=provider)
    with provider.get_tracer("enqueuer").start_as_current_span("request") as span:
        async with Queue(telemetry.traced(store())) as queue:
            await queue.enqueue(type, {"a": 1})
    print(f"{span.get_span_context().trace_id:032x}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
