"""A file of jobs: a JSON object a line, each checked when it is read, and which of them have gone in."""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from marian_jobs import checks
from marian_jobs.cli.options import duration, moment
from marian_jobs.job import NewJob

NAMES = ("payload", "key", "user_id", "priority", "max_attempts", "run_after", "delay")


class JobLines:
    """The jobs of the lines, what a line does not say taken from `common`; `ValueError` names the line that is none.

    `done` is told how many jobs have gone in: `last_line` is then the line of the last of them, and `bytes_done` where
    the next one begins.
    """

    def __init__(self, type: str, lines: Iterable[bytes], common: dict[str, Any]) -> None:
        self._type = type
        self._lines = lines
        self._common = common
        self._read: deque[tuple[int, int]] = deque()  # line and end of each job that is not known to have gone in
        self._gone = 0
        self.last_line = 0
        self.bytes_done = 0

    def __iter__(self) -> Iterator[NewJob]:
        end = 0
        for number, line in enumerate(self._lines, 1):
            end += len(line)
            if line.strip():
                job = _numbered(number, self._type, line, self._common)
                self._read.append((number, end))
                yield job

    def done(self, total: int) -> None:
        """Notes that the first `total` jobs have gone in."""
        for _ in range(total - self._gone):
            self.last_line, self.bytes_done = self._read.popleft()
        self._gone = total


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
