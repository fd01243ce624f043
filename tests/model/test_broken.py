"""The plays find out every store that has one guard less."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from marian_jobs import MemoryStore
from tests.model.broken import IN_MEMORY
from tests.model.conftest import InMemory
from tests.model.machine import Play, Subject


def is_found_out(there: Subject) -> bool:
    class Game(Play):
        subject = there

    try:
        run_state_machine_as_test(
            Game,
            settings=settings(
                max_examples=300, stateful_step_count=30, derandomize=True, deadline=None, database=None,
                suppress_health_check=list(HealthCheck), phases=[Phase.generate], report_multiple_bugs=False,
            ),
        )  # fmt: skip
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("store", IN_MEMORY, ids=lambda store: store.__name__)
def test_a_store_that_forgets_a_rule_is_found_out(store: type[MemoryStore], in_memory: InMemory) -> None:
    in_memory.make = store
    assert is_found_out(in_memory)
