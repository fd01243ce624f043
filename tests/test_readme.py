"""The README's code does what it says: its blocks are run, in order, as one program."""

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

import psycopg

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


async def test_the_python_blocks_run(database: str) -> None:
    program = "async def readme():\n" + textwrap.indent("\n".join(blocks("python")), "    ")
    names: dict[str, Any] = {"database_url": database}
    exec(compile(ast.parse(program), "README.md", "exec"), names)
    await names["readme"]()


def test_the_sql_blocks_run(database: str) -> None:
    with psycopg.connect(database) as connection:
        for block in blocks("sql"):
            assert connection.execute(block).fetchall()


def test_it_stays_readable_in_one_sitting() -> None:
    assert len(README.splitlines()) <= 200


def test_its_links_lead_somewhere() -> None:
    root = Path(__file__).parent.parent
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^## (.+)$", README, re.M)
    }
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert link.startswith("http") or (link[1:] in anchors if link.startswith("#") else (root / link).exists()), (
            link
        )
