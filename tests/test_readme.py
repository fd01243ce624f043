"""The README's and the documentation's code does what it says: a page's blocks are run, in order, as one program."""

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

import psycopg
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [
    "docs/handlers.md",
    "README.md",
    "docs/observability.md",
    "docs/operations.md",
    "docs/schedules.md",
    "docs/testing-your-jobs.md",
]


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


@pytest.mark.parametrize("page", PAGES)
async def test_the_python_blocks_run(page: str, database: str) -> None:
    found = blocks("python", (ROOT / page).read_text())
    assert found
    program = "async def page():\n" + textwrap.indent("\n".join(found), "    ")
    names: dict[str, Any] = {"database_url": database}
    exec(compile(ast.parse(program), page, "exec"), names)
    await names["page"]()


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
