"""What the migrations make, read from their own texts: no second list to keep."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from marian_jobs.migrations import Migration

_STEP: Final = re.compile(
    r"^create (?:or replace )?function public\.(?P<made>\w+)\((?P<head>.*?)\bas "
    r"\$(?P<tag>\w*)\$(?P<body>.*?)\$(?P=tag)\$"
    r"|^drop function (?:if exists )?public\.(?P<dropped>\w+)"
    r"|^alter function public\.(?P<altered>\w+)\([^)]*\) (?P<setting>set [^;]+);",
    re.DOTALL | re.MULTILINE,
)
_SETTING: Final = re.compile(r"^set (\w+) = (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Function:
    """A function as it is to be: its body, and the settings it runs with as `pg_proc.proconfig` writes them."""

    body: str
    settings: frozenset[str]


def functions(steps: Iterable[Migration]) -> dict[str, Function]:
    """The functions that stand after these steps, by name: there are no overloads."""
    standing: dict[str, Function] = {}
    for step in steps:
        for match in _STEP.finditer(step.sql):
            if match["dropped"]:
                standing.pop(match["dropped"], None)
            elif match["altered"]:
                function = standing[match["altered"]]
                standing[match["altered"]] = replace(function, settings=function.settings | _settings(match["setting"]))
            else:
                standing[match["made"]] = Function(same_ends(match["body"]), _settings(match["head"]))
    return standing


def same_ends(text: str) -> str:
    """The text with line ends of one kind: a checkout on Windows, or a tool, may have changed them."""
    return text.replace("\r\n", "\n")


def _settings(head: str) -> frozenset[str]:
    """`set search_path = ''` stands in the catalog as `search_path=""`."""
    return frozenset(f"{name}={value}" for name, value in _SETTING.findall(head.replace("''", '""')))
