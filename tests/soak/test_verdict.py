"""What grows is found; what only wavers is not."""

import pytest

from soak.verdict import Series, judge, slope

AT = [float(second) for second in range(0, 1800, 5)]


def series(values: list[float], floor: float = 1.0) -> Series:
    return Series("memory", "MiB", floor, values)


def test_a_steady_series_with_a_long_warming_up_does_not_grow() -> None:
    assert judge(AT, series([50 + min(at, 600) / 20 for at in AT])).holds


def test_a_slow_leak_is_found() -> None:
    verdict = judge(AT, series([50 + at / 100 for at in AT]))
    assert not verdict.holds
    assert verdict.growth == pytest.approx(8.95, abs=0.1)
    assert verdict.allowed == pytest.approx(6.35, abs=0.1)


def test_a_saw_tooth_does_not_grow_and_one_that_climbs_does() -> None:
    assert judge(AT, series([100 + at % 60 for at in AT])).holds
    assert not judge(AT, series([100 + at % 60 + at / 30 for at in AT])).holds


def test_a_single_peak_is_no_growth() -> None:
    values = [50.0] * len(AT)
    values[-10] = 5_000
    assert judge(AT, series(values)).growth == 0


def test_growth_below_the_floor_is_none() -> None:
    assert judge(AT, series([1 + at / 1800 for at in AT], floor=1.0)).holds
    assert not judge(AT, series([1 + at / 1800 for at in AT], floor=0.1)).holds


def test_too_few_samples_are_not_judged() -> None:
    with pytest.raises(ValueError, match="too few"):
        judge(AT[:5], series([1.0] * 5))


def test_the_slope_is_per_second() -> None:
    assert slope([0, 5, 10], [0, 10, 20]) == 2
