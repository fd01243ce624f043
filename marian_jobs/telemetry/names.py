"""What spans and metrics are called: the semantic conventions for messaging 1.4x, and beside them our own.

https://opentelemetry.io/docs/specs/semconv/messaging/
"""

import traceback
from typing import Final

from opentelemetry.util.types import AttributeValue

from marian_jobs.failure import presentable
from marian_jobs.redaction import redact

SCOPE: Final = "marian_jobs"

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
MESSAGE_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"
# The conventions want a system's own attributes under its own name.
ATTEMPT: Final = "messaging.marian_jobs.attempt"
MAX_ATTEMPTS: Final = "messaging.marian_jobs.max_attempts"
CREATED: Final = "messaging.marian_jobs.created"
OUTCOME: Final = "messaging.marian_jobs.outcome"
STATUS: Final = "messaging.marian_jobs.status"

# The conventions' bounds of a duration, and beyond: jobs take longer than messages.
SECONDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 120, 300, 600, 1800, 3600,
)  # fmt: skip

Attributes = dict[str, AttributeValue]


def enqueueing(types: set[str]) -> Attributes:
    """What the metrics of an enqueueing carry; the type where it is one."""
    common: Attributes = {SYSTEM: SCOPE, OPERATION_NAME: "enqueue", OPERATION_TYPE: "send"}
    return {**common, DESTINATION: next(iter(types))} if len(types) == 1 else common


def processing(type: str) -> Attributes:
    """What the metrics of a run carry."""
    return {SYSTEM: SCOPE, OPERATION_NAME: "process", OPERATION_TYPE: "process", DESTINATION: type}


def exception(error: BaseException) -> Attributes:
    """An exception as an event tells of it, without what looks like a credential."""
    return {
        "exception.type": error_type(error),
        "exception.message": presentable("".join(traceback.format_exception_only(error)).strip()),
        "exception.stacktrace": redact("".join(traceback.format_exception(error))),
    }


def error_type(error: BaseException) -> str:
    """The class of an error, as one of few."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
