import math
from datetime import timedelta

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marian_jobs import Backoff

ATTEMPTS = [1, 2, 9, 10, 31, 40, 64, 1024, 5000, 2**31 - 1]


def test_the_schedule_doubles_from_a_second_to_five_minutes() -> None:
    seconds = [Backoff().delay(n).total_seconds() for n in range(1, 12)]
    assert seconds == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_sql_and_python_agree_on_any_attempt(database: str) -> None:
    with psycopg.connect(database) as connection:
        for attempt in ATTEMPTS:
            row = connection.execute("select public.job_backoff(%s)", (attempt,)).fetchone()
            assert row == (Backoff().delay(attempt),)


@given(
    st.integers(1, 2**31 - 1),
    st.timedeltas(timedelta(0), timedelta(days=365)),
    st.floats(1, 1e6),
    st.timedeltas(timedelta(0), timedelta(days=365)),
)
def test_any_schedule_answers_any_attempt_within_its_cap(
    attempt: int, base: timedelta, factor: float, cap: timedelta
) -> None:
    delay = Backoff(base=base, factor=factor, max=cap).delay(attempt)
    assert min(base, cap) <= delay <= cap


@given(st.integers(1, 100), st.floats(1, 100))
def test_a_later_attempt_never_waits_less(attempt: int, factor: float) -> None:
    backoff = Backoff(factor=factor)
    assert backoff.delay(attempt) <= backoff.delay(attempt + 1)


@given(st.floats(0, 10))
def test_jitter_only_lengthens_and_by_its_share_at_most(jitter: float) -> None:
    backoff = Backoff(jitter=jitter)
    assert timedelta(seconds=4) <= backoff.spread_delay(3) <= timedelta(seconds=4) * (1 + jitter)


@pytest.mark.parametrize(
    "options",
    [
        {"base": timedelta(seconds=-1)},
        {"max": timedelta(seconds=-1)},
        {"factor": math.nan},
        {"factor": math.inf},
        {"factor": 0.5},
        {"jitter": -0.5},
        {"jitter": math.nan},
        {"jitter": math.inf},
    ],
)
def test_what_is_no_schedule_is_refused(options: dict[str, object]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=name):
        Backoff(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"base": 1}, {"factor": "2"}, {"jitter": True}])
def test_what_is_no_number_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        Backoff(**options)  # type: ignore[arg-type]
