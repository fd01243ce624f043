"""The formal model holds in every order of events, and stops holding when any one guard is taken away."""

import pytest

from model import spin
from model.configurations import BREAK, HOLD, Configuration, Removal
from tests.needs import need


@pytest.fixture(autouse=True)
def _explorer() -> None:
    need(not spin.missing(), f"{', '.join(spin.missing())}: apt-get install spin gcc libc6-dev")


@pytest.mark.parametrize("what", [what for what in HOLD if what.is_quick], ids=lambda what: what.name)
def test_the_model_holds(what: Configuration) -> None:
    found = spin.explore(what)
    assert found.violated is None, "\n".join(found.story)
    assert found.states > 1000


@pytest.mark.parametrize("removal", BREAK, ids=lambda removal: removal.guard)
def test_no_guard_is_there_for_nothing(removal: Removal) -> None:
    found = spin.explore_without(removal)
    assert found.violated is not None
    assert removal.violates in found.violated


def test_without_the_fencing_token_a_late_result_is_told_as_a_story() -> None:
    (removal,) = [removal for removal in BREAK if removal.guard == "NO_FENCING"]
    *_, claimed, accepted = spin.explore_without(removal).story
    assert "claims job 0: attempt 2" in claimed
    assert "as attempt 1" in accepted
