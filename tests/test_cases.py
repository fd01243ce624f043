"""tests/CASES.md names tests that are there, for every case."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
LINES = re.findall(r"^\| (K\d\d) \|[^|]*\|(.*)\|$", (TESTS / "CASES.md").read_text(), re.M)
CASES = [*range(1, 7), *range(10, 27), *range(30, 35), *range(40, 46), *range(50, 58), *range(60, 65)]


def test_every_case_has_a_line() -> None:
    assert [f"K{number:02}" for number in CASES] == [case for case, _ in LINES]


def test_every_test_that_is_named_is_there() -> None:
    named = [(case, *test) for case, tests in LINES for test in re.findall(r"`([\w/.]+)::(\w+)`", tests)]
    assert {case for case, *_ in named} == {case for case, _ in LINES}
    missing = [n for n in named if f"def {n[2]}(" not in (TESTS / n[1]).read_text()]
    assert not missing
