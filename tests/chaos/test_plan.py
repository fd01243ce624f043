"""A seed is a plan."""

from collections import Counter

import pytest

from chaos.plan import KINDS, plan
from chaos.run import SHORT


@pytest.mark.parametrize("seed", range(20))
def test_a_short_run_meets_every_kind_of_event(seed: int) -> None:
    events = plan(seed, SHORT.seconds, SHORT.gap)
    assert {event.kind for event in events} == set(KINDS)


def test_a_seed_is_a_plan_and_another_seed_another_one() -> None:
    assert plan(1, 60, 0.5) == plan(1, 60, 0.5)
    assert plan(1, 60, 0.5) != plan(2, 60, 0.5)


def test_events_come_in_order_and_leave_the_end_in_peace() -> None:
    events = plan(3, 600, 1.0)
    times = [event.at for event in events]
    assert sorted(times) == times
    assert times[-1] < 600
    assert min(Counter(event.kind for event in events).values()) >= 10
