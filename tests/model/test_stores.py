"""Every store answers as the oracle does, whatever workers, operators and the network do, and in whatever order.

The small run is the same every time. `scripts/model --long` plays other games each time, and prints its seed.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Play

SCALE = int(os.environ.get("MARIAN_MODEL_SCALE", "1"))
PLAYS = {"in_memory": 200, "in_postgres": 60, "in_supabase": 12}


@pytest.mark.parametrize("where", PLAYS)
def test_every_answer_and_every_row_is_the_oracles(where: str, request: pytest.FixtureRequest) -> None:
    class Game(Play):
        subject = request.getfixturevalue(where)

    run_state_machine_as_test(
        Game,
        settings=settings(
            max_examples=PLAYS[where] * SCALE,
            stateful_step_count=30,
            derandomize=SCALE == 1,
            deadline=None,
            print_blob=False,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )
