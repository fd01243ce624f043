"""Explores every configuration, then the model without each guard, and prints what was found."""

import sys
from time import monotonic

from model import spin
from model.configurations import BREAK, HOLD


def main() -> int:
    """0 when all configurations hold and every removal is found out."""
    if missing := spin.missing():
        print(f"missing: {', '.join(missing)} (Debian, Ubuntu: apt-get install spin gcc libc6-dev)", file=sys.stderr)
        return 2
    wrong = 0
    for what in HOLD:
        start = monotonic()
        found = spin.explore(what)
        wrong += found.violated is not None
        verdict = "holds" if found.violated is None else f"VIOLATED: {found.violated}"
        print(f"{what.name}: {found.states:,} states, {monotonic() - start:.1f} s: {verdict}", flush=True)
        _tell(found)
    for removal in BREAK:
        found = spin.explore_without(removal)
        is_found = found.violated is not None and removal.violates in found.violated
        wrong += not is_found
        verdict = f"fails, as it must: {found.violated}" if is_found else f"NOT FOUND ({found.violated})"
        print(f"\n{removal.guard}: {found.states:,} states: {verdict}", flush=True)
        _tell(found)
    return 1 if wrong else 0


def _tell(found: spin.Explored) -> None:
    for event in found.story:
        print(f"    {event}")


if __name__ == "__main__":
    sys.exit(main())
