"""What a project's API can tell: whether it knows the queue, and the figures of its jobs."""

from datetime import datetime
from typing import Any, Protocol

from marian_jobs.clock import Clock
from marian_jobs.doctor.finding import Bounds
from marian_jobs.doctor.patient import Figures, ProjectPatient, Reading
from marian_jobs.stores.answers import to_duration, to_type_limit


class Project(Protocol):
    """What is asked of a store over an API; `SupabaseStore` is one."""

    async def open(self) -> None:
        """Connects; `StoreRefused` where the API does not know the queue or refuses the key."""

    async def close(self) -> None:
        """Gives back the connections."""

    async def ask(self, function: str, **arguments: Any) -> Any:
        """What a function that only reads answers, as JSON."""


async def examined(project: Project, bounds: Bounds, clock: Clock) -> ProjectPatient:
    """What the API answers, ready to be judged; `StoreRefused` where it refuses, `StoreUnavailable` where it cannot."""
    await project.open()
    try:
        before = clock()
        figures = [_figures(row) for row in await project.ask("marian_jobs_figures")]
        reading = Reading(before, figures[0].measured_at, clock())
        limits = [to_type_limit(row) for row in await project.ask("job_limits")]
    finally:
        await project.close()
    return ProjectPatient(bounds, figures, limits, reading)


def _figures(row: dict[str, Any]) -> Figures:
    ages = {name: to_duration(value) for name, value in row.items() if name.endswith("_age")}
    return Figures(**{**row, **ages, "measured_at": datetime.fromisoformat(row["measured_at"])})
