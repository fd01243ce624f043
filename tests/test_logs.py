"""Log lines for people and for machines, on standard error alone."""

import json
import logging
from collections.abc import Iterator

import pytest

from marian_jobs import logs


@pytest.fixture(autouse=True)
def the_logging_of_before() -> Iterator[None]:
    """Puts the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers.clear()  # so that the test runner's are not closed
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def say() -> None:
    try:
        raise LookupError("gone")
    except LookupError:
        logging.getLogger("marian_jobs.x").exception("job %s failed", "a", extra={"job_id": "7", "attempt": 2})
    logging.getLogger("marian_jobs.x").debug("too quiet")


def test_json_lines_carry_the_fields_of_a_job(capfd: pytest.CaptureFixture[str]) -> None:
    logs.set_up("json", "INFO")
    say()
    out, err = capfd.readouterr()
    [line] = [json.loads(line) for line in err.splitlines()]
    assert out == ""
    assert line.pop("time")
    assert "LookupError: gone" in line.pop("exc_info")
    assert line == {
        "level": "ERROR", "logger": "marian_jobs.x", "message": "job a failed", "job_id": "7", "attempt": 2,
    }  # fmt: skip


def test_without_a_terminal_a_message_is_one_line_however_long(capfd: pytest.CaptureFixture[str]) -> None:
    logs.set_up("console", "INFO")
    logging.getLogger("marian_jobs.x").warning("[red]%s", "long " * 100, extra={"job_id": "7"})
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.endswith(f"WARNING [red]{'long ' * 100} [job_id=7]\n")
