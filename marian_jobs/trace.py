"""The trace context that an enqueuer may send along with a job: one reserved member of the payload.

The table has no column for headers. So whoever wants traces to go from the enqueuer to the handler says so (see
`marian_jobs.telemetry`), and then the payload holds `"_trace": {"traceparent": …}`, as the W3C has it, with a
`tracestate` where there is one. Every worker takes it out again, whether it traces or not, before a handler sees it.
A `_trace` of any other shape is the user's own and stays.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from marian_jobs.job import Job, JsonObject, NewJob

MEMBER = "_trace"
MEMBERS = frozenset({"traceparent", "tracestate"})
NONE: Mapping[str, str] = {}

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

J = TypeVar("J", bound=Job)


def attach(job: NewJob, trace: Mapping[str, str]) -> NewJob:
    """The job with the trace context in its payload; unchanged where the payload has a `_trace` already."""
    if not trace or MEMBER in job.payload:
        return job
    return replace(job, payload={**job.payload, MEMBER: dict(trace)})


def detach(job: J) -> tuple[J, Mapping[str, str]]:
    """The job without the trace context in its payload, and that context; empty where there is none."""
    if MEMBER not in job.payload or not _is_trace(job.payload[MEMBER]):
        return job, NONE
    rest: JsonObject = {name: value for name, value in job.payload.items() if name != MEMBER}
    return replace(job, payload=rest), job.payload[MEMBER]


def _is_trace(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() <= MEMBERS
        and all(isinstance(text, str) for text in value.values())
        and _TRACEPARENT.fullmatch(value.get("traceparent", "")) is not None
    )
