"""How the texts of options and of a file's lines are read; no database."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from marian_jobs.cli.jsonlines import JobLines, json_object
from marian_jobs.cli.options import duration, moment
from marian_jobs.job import NewJob

COMMON: dict[str, Any] = {
    "key": None, "priority": 0, "delay": None, "run_after": None, "max_attempts": 3, "user_id": None,
}  # fmt: skip


def read(*lines: str | bytes, **common: Any) -> list[NewJob]:
    return list(JobLines("t", [line.encode() if isinstance(line, str) else line for line in lines], COMMON | common))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", timedelta(seconds=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("30s", timedelta(seconds=30)),
        ("1.5 m", timedelta(seconds=90)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(days=14)),
        ("PT1H30M", timedelta(minutes=90)),
        ("P1D", timedelta(days=1)),
        ("0", timedelta(0)),
    ],
)
def test_durations_are_read_in_short_in_iso_and_in_seconds(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "nan", "inf", "1e400", "9" * 400 + "d", "5m5", "--3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration(text)


def test_a_moment_has_a_time_zone() -> None:
    assert moment("2030-01-31T12:00:00+00:00") == datetime(2030, 1, 31, 12, tzinfo=UTC) == moment("2030-01-31T12:00Z")
    for text in ("2030-01-31T12:00:00", "tomorrow", ""):
        with pytest.raises(ValueError, match="not a moment with a time zone"):
            moment(text)


def test_integers_and_floats_of_a_payload_are_exact() -> None:
    assert json_object('{"n": 9007199254740993, "k": 1%s, "f": 0.1, "e": 1e-300}' % ("0" * 40)) == {
        "n": 2**53 + 1, "k": 10**40, "f": 0.1, "e": 1e-300,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[1]", "expected a JSON object"),
        ("null", "expected a JSON object"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('{"a": {"b": 1, "b": 2}}', "the name 'b' is given twice"),
        ('{"a":' * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_payload_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        json_object(text)


def test_a_line_says_what_differs_from_the_options() -> None:
    first, second, third = read(
        '\ufeff{"payload": {"i": 1}, "key": "k", "priority": 5, "delay": "5m"}',
        "",
        '{"delay": 1.5, "max_attempts": 9}',
        "{}",
        priority=1,
    )
    assert (first.payload, first.idempotency_key, first.priority, first.delay) == (
        {"i": 1},
        "k",
        5,
        timedelta(minutes=5),
    )
    assert (second.delay, second.max_attempts, second.priority) == (timedelta(seconds=1.5), 9, 1)
    assert (third.payload, third.delay, third.max_attempts) == ({}, None, 3)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("oops", "line 2: not JSON"),
        ('{"payload": [1]}', "line 2: payload: expected a JSON object"),
        ('{"paylod": {}}', "line 2: unknown name 'paylod'; known are payload, key"),
        ('{"payload": {"a": "\\u0000"}}', r"line 2: payload.a: must not contain the character NUL"),
        ('{"priority": 0.5}', "line 2: priority: expected an integer"),
        ('{"run_after": "2030-01-31T12:00:00"}', "line 2: .* not a moment with a time zone"),
        ('{"delay": true}', "line 2: 'True' is not a duration"),
        ('{"delay": "1s", "run_after": "2030-01-31T12:00Z"}', "line 2: run_after and delay: give one of the two"),
        (b'{"payload": {"a": "\xff"}}', "line 2: not UTF-8"),
    ],
)
def test_a_bad_line_is_named_with_its_number(line: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read("{}", line)


def test_lines_that_have_gone_in_are_known_by_the_number_of_jobs() -> None:
    jobs = JobLines("t", [b"{}\n", b"\n", b'{"priority": 1}\n', b"{}"], COMMON)
    assert len(list(jobs)) == 3
    assert (jobs.last_line, jobs.bytes_done) == (0, 0)
    jobs.done(2)
    assert (jobs.last_line, jobs.bytes_done) == (3, 20)
    jobs.done(3)
    assert (jobs.last_line, jobs.bytes_done) == (4, 22)
