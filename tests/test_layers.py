"""Dependencies point one way: read from the imports themselves."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "marian_jobs"

# What each layer may import of this package; a package stands for all its modules.
MAY: dict[str, set[str]] = {
    "errors": set(),
    "job": set(),
    "clock": set(),
    "redaction": set(),
    "backoff": {"clock"},
    "failure": {"redaction"},
    "machine": {"backoff", "errors", "job"},
    "checks": {"clock", "job"},
    "cron": {"checks", "job"},
    "store": {"checks", "job"},
    "stores": {"checks", "clock", "errors", "failure", "job", "machine", "redaction", "store", "stores"},
    "stream": {"job", "store"},
    "queue": {"checks", "errors", "job", "store", "stream"},
    "testing": {"checks", "clock", "errors", "job", "queue", "store", "stores", "worker"},
    "trace": {"job"},
    "worker": {"backoff", "checks", "clock", "cron", "errors", "failure", "job", "machine", "store", "trace", "worker"},
    "stats_reader": {"clock", "errors", "store"},
    "telemetry": {
        "clock",
        "errors",
        "failure",
        "job",
        "redaction",
        "stats_reader",
        "store",
        "telemetry",
        "trace",
        "worker",
    },
    "health": {"checks", "clock", "errors", "health", "job", "stats_reader", "store", "worker"},
    "tokens": {"clock", "errors"},
    "changes": {"clock", "redaction"},
    "users": {"changes", "clock", "errors", "job", "store", "stores", "tokens"},
    "migrations": {"errors", "stores"},
    "doctor": {"clock", "doctor", "errors", "migrations", "store", "stores"},
    "settings": {"errors"},
    "logs": {"redaction"},
    "local": {"clock", "errors", "local", "tokens"},
}
FORBIDDEN_NAMES = {"utils", "common", "manager", "base", "helpers"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(file: Path) -> set[str]:
    """The layers of this package that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("marian_jobs.")}


def layer(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


@pytest.mark.parametrize("file", MODULES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_a_module_imports_only_what_lies_below_it(file: Path) -> None:
    if layer(file) in {"cli", "__init__", "__main__"}:
        return  # at the top, where everything is put together
    assert imports(file) <= MAY[layer(file)]


def test_only_the_command_line_picks_a_store() -> None:
    stores = re.compile(r"import .*(PostgresStore|SupabaseStore)")
    picking = {layer(file) for file in MODULES if stores.search(file.read_text())}
    assert picking <= {"cli", "stores", "__init__"}


def test_the_rules_need_the_standard_library_alone() -> None:
    for name in ("machine", "backoff", "job", "failure"):
        text = (PACKAGE / f"{name}.py").read_text()
        assert not re.search(r"^(from|import) (psycopg|httpx|supabase|pydantic|anyio)", text, flags=re.M)


def test_no_module_is_named_for_what_it_is_not() -> None:
    assert not {file.stem for file in MODULES} & FORBIDDEN_NAMES


def test_no_file_is_longer_than_fits_in_the_head() -> None:
    assert [str(file) for file in MODULES if len(file.read_text().splitlines()) > 400] == []
