"""A producer's own record of what it sent: on disk before it is sent, so that a killed producer's last word counts.

A line names jobs and their fate: `sent` (no answer yet, or none any more: it may exist or not), `acknowledged` (it was
made, or, with another id as its answer, a live job had its key), `refused` and `rolled back` (it must not exist).
"""

import json
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID


class Journal:
    """Appends to a file; each line is the kernel's before the call returns."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)

    def note(self, fate: str, jobs: Iterable[tuple[UUID, UUID | None]], leaked: str | None = None) -> None:
        """The jobs' fate, each with the id that answered for it; `leaked` is an error that should not be one."""
        line: dict[str, object] = {"fate": fate, "jobs": [(str(job), answer and str(answer)) for job, answer in jobs]}
        if leaked is not None:
            line["leaked"] = leaked
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
