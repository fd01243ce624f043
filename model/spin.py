"""Runs Spin: translates the model, compiles the verifier, explores, and tells a counter-example as a story."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from model.configurations import Configuration, Removal

MODEL: Final = Path(__file__).parent / "lease.pml"
PROGRAMS: Final = ("spin", "gcc")
_DEEPEST = "1000000"
_LONGEST = 900  # seconds: an exploration that takes longer is an error, not an answer


class ExplorationError(Exception):
    """Spin, the compiler or the verifier failed or was not complete; the text says what it printed."""


@dataclass(frozen=True, slots=True)
class Explored:
    """How an exploration ended: how many states, and the first violation with the events that lead to it, if any."""

    states: int
    violated: str | None = None
    story: tuple[str, ...] = ()


def missing() -> list[str]:
    """The programs that are needed and not there."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


def explore(what: Configuration) -> Explored:
    """Every order of events."""
    return _explore(_defines(what.sizes), what.ltl, "-DSAFETY")


def explore_without(removal: Removal) -> Explored:
    """The same without a guard; a violated assertion is reached by a shortest way."""
    return _explore(_defines((removal.guard, *removal.sizes)), removal.ltl, "-DSAFETY", "-DBFS")


def _explore(defines: Sequence[str], ltl: str | None, *options: str) -> Explored:
    with TemporaryDirectory(prefix="marian-model-") as directory:
        if ltl is None:
            _build(directory, defines, "-DNOCLAIM", *options)
            return _explored(directory, defines)
        _build(directory, defines, "-DNFAIR=3")
        return _explored(directory, defines, "-a", "-f", "-N", ltl)


def _defines(sizes: Sequence[str]) -> list[str]:
    return [f"-D{size}" for size in sizes]


def _build(directory: str, defines: Sequence[str], *options: str) -> None:
    _run(directory, "spin", "-a", *defines, str(MODEL))
    # Compiling well takes longer than exploring does. Its generated C indexes arrays of one element so that gcc warns.
    _run(directory, "gcc", "-w", "-O0", "-DVECTORSZ=2048", *options, "-o", "pan", "pan.c")


def _explored(directory: str, defines: Sequence[str], *options: str) -> Explored:
    said = _run(directory, "./pan", f"-m{_DEEPEST}", *options)
    states = re.search(r"(\d+) states, stored", said)
    errors = re.search(r"errors: (\d+)", said)
    if states is None or errors is None or "max search depth too small" in said or "out of memory" in said:
        raise ExplorationError(f"the exploration is not complete:\n{said}")
    if errors[1] == "0":
        return Explored(int(states[1]))
    story = _run(directory, "spin", "-t", "-T", *defines, "-k", f"{MODEL.name}.trail", str(MODEL))
    violated = re.search(r"text of failed assertion: assert\((.*)\)", story)
    return Explored(int(states[1]), violated[1] if violated else _first_error(said), tuple(_events(story)))


def _events(story: str) -> list[str]:
    return [line for line in story.splitlines() if re.match(r" *(worker|job|an operator|tick|accepted|refused)", line)]


def _first_error(said: str) -> str:
    return next((line for line in said.splitlines() if line.startswith("pan:1:")), "an acceptance cycle")


def _run(directory: str, *command: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        raise ExplorationError(f"{command[0]} took longer than {_LONGEST} s") from None
    said = done.stdout.decode(errors="replace")
    # The verifier and a replayed trail end with other codes when they have found something, which is an answer.
    if done.returncode != 0 and (command[0] == "gcc" or "-a" in command[:2]):
        raise ExplorationError(f"{command[0]} failed:\n{said}")
    return said
