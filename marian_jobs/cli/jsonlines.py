"""A file of jobs: a JSON object a line, read in batches that are checked before any of them is sent."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from marian_jobs import checks
from marian_jobs.cli.options import duration, moment
from marian_jobs.job import NewJob

MOST_JOBS = 500  # a project's API cuts answers of more than 1,000 rows
MOST_BYTES = 4 * 1024 * 1024  # one call of this size is about what a database's HTTP side takes in a second
NAMES = ("payload", "key", "user_id", "priority", "max_attempts", "run_after", "delay")


@dataclass(slots=True)
class Batch:
    """Jobs sent together, the last line they came from, and how many bytes of the file they were."""

    jobs: list[NewJob] = field(default_factory=list)
    last_line: int = 0
    size: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it should be sent before another line is read."""
        return len(self.jobs) >= MOST_JOBS or self.size >= MOST_BYTES


def batches(type: str, lines: Iterable[bytes], common: dict[str, Any]) -> Iterator[Batch]:
    """The jobs of the lines, what a line does not say taken from `common`; `ValueError` names the line that is none."""
    batch = Batch()
    for number, line in enumerate(lines, 1):
        batch.last_line = number
        batch.size += len(line)
        if line.strip():
            batch.jobs.append(_numbered(number, type, line, common))
        if batch.is_full:
            yield batch
            batch = Batch()
    if batch.jobs:
        yield batch


def json_object(text: str) -> dict[str, Any]:
    """The JSON object, its integers exact; `ValueError` for other JSON, for NaN and for a name given twice."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_twins)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except json.JSONDecodeError as e:
        raise ValueError(f"not JSON: {e}") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got a {type(value).__name__}")
    return value


def _numbered(number: int, type: str, line: bytes, common: dict[str, Any]) -> NewJob:
    try:
        return _job(type, json_object(line.decode("utf-8-sig" if number == 1 else "utf-8")), common)
    except UnicodeDecodeError:
        raise ValueError(f"line {number}: not UTF-8") from None
    except (ValueError, TypeError) as e:
        raise ValueError(f"line {number}: {e}") from None


def _job(type: str, fields: dict[str, Any], common: dict[str, Any]) -> NewJob:
    if unknown := sorted(fields.keys() - NAMES):
        raise ValueError(f"unknown name {unknown[0]!r}; known are {', '.join(NAMES)}")
    options = {**common, **fields}
    payload = options.pop("payload", None)
    if isinstance(options["delay"], str | int | float):
        options["delay"] = duration(str(options["delay"]))
    if isinstance(options["run_after"], str):
        options["run_after"] = moment(options["run_after"])
    return checks.new_job(type, payload, **options)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} is given twice")
    return made
