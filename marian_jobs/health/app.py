"""The three pages: `/healthz`, `/readyz`, `/metrics`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from marian_jobs.health.verdict import Verdict

Answer = tuple[Verdict, dict[str, Any]]


class Together(Collector):
    """Several collectors as one."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client`."""
        for collector in self._collectors:
            yield from collector.collect()


def pages(
    life: Callable[[], Answer], readiness: Callable[[], Answer], figures: Callable[[Request], Collector]
) -> Starlette:
    """The application; every answer is made in a thread of a pool, since it may wait."""

    def healthz(_: Request) -> Response:
        return _told("alive", "stuck", *life())

    def readyz(_: Request) -> Response:
        return _told("ready", "not ready", *readiness())

    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(figures(request)), media_type=None, headers={"content-type": content_type})

    return Starlette(
        routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)],
    )


def with_programs_own(collectors: Sequence[Collector]) -> Collector:
    """With what the program itself has registered with prometheus_client, its handlers' metrics for one."""
    return Together([*collectors, REGISTRY])


def _told(yes: str, no: str, verdict: Verdict, details: dict[str, Any]) -> Response:
    reason = {} if verdict.reason is None else {"reason": verdict.reason}
    document = {"status": yes if verdict.well else no, **reason, **details}
    return JSONResponse(document, 200 if verdict.well else 503, {"cache-control": "no-store"})
