"""OpenTelemetry for the queue: spans from the enqueuer to the handler, and metrics. Needs the extra `otel`.

    telemetry = Telemetry()                              # the global providers, unless others are given
    queue = Queue(telemetry.traced(PostgresStore(url)))  # a span per enqueueing
    telemetry.watch(worker)                              # a span per run, and the worker's metrics
    telemetry.measure(PostgresStore(url))                # the queue's own, in one process

Names follow the semantic conventions for messaging: see docs/observability.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from marian_jobs.errors import NotInstalled

if TYPE_CHECKING:
    from marian_jobs.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]


def __getattr__(name: str) -> Any:
    """OpenTelemetry is imported when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module("marian_jobs.telemetry.telemetry").Telemetry
    except ModuleNotFoundError as e:
        if e.name and e.name.startswith("opentelemetry"):
            raise NotInstalled("telemetry needs OpenTelemetry: pip install 'marian-jobs[otel]'") from None
        raise
