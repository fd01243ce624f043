"""`/healthz`, `/readyz` and `/metrics` of a worker, from a thread of its own. Needs the extra `health`.

    async with serve_health(worker, "9090"):
        await worker.run()

`marian worker --health 9090` does this. What the answers mean: docs/observability.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from marian_jobs.errors import NotInstalled

if TYPE_CHECKING:
    from marian_jobs.health.fleet import serve_fleet
    from marian_jobs.health.serving import serve_health

__all__ = ["serve_fleet", "serve_health"]
_WHERE = {"serve_fleet": "marian_jobs.health.fleet", "serve_health": "marian_jobs.health.serving"}


def __getattr__(name: str) -> Any:
    """The server and prometheus_client are imported when they are first asked for."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_WHERE[name]), name)
    except ModuleNotFoundError as e:
        if e.name in ("prometheus_client", "starlette", "uvicorn"):
            raise NotInstalled(f"health needs {e.name}: pip install 'marian-jobs[health]'") from None
        raise
