"""The command line with hostile arguments: exit code 0, 1 or 2, a message, no traceback, nothing half written."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import environment
from tests.fuzz.hostile import IDS, KEYS, LONG, STATES, fuzzing

ROOT = Path(__file__).parent.parent.parent
ROWS = "select coalesce(md5(string_agg(j::text, ' ' order by id)), '') from public.marian_jobs j"
DEEP = '{"a":' * 3000 + "1" + "}" * 3000
S3CRET = "postgresql://u:S3CRET-3@"

texts = st.sampled_from(
    [
        "",
        " ",
        "-",
        "--",
        "--json",
        "t",
        "\udcff",
        "🦆",
        "\u202e",
        "x" * 129,
        LONG,
        "%s",
        "[red]",
        "\x1b[31m",
        "\n",
        "null",
    ]
) | st.text(st.characters(exclude_characters="\0"), max_size=8)
numbers = st.sampled_from(["0", "-1", "1", "2147483648", "9" * 5000, "1e3", "1.5", "nan", "inf", "٣", "0x10"]) | texts
durations = (
    st.sampled_from(["0", "1s", "-1s", "1e9d", "9" * 400, "99999999999w", "PT1H", "P1Y", "nan", "inf", "٣s"]) | texts
)
moments = (
    st.sampled_from(
        [
            "2030-01-31T12:00:00+00:00",
            "2030-01-31",
            "0001-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59-23:59",
            "infinity",
        ]
    )
    | texts
)
ids = st.sampled_from([*IDS.values(), "0" * 32, "{" + "0" * 32 + "}"]) | texts
keys = st.sampled_from([*KEYS.values(), "fresh"]) | texts
payloads = (
    st.sampled_from(["{}", "[]", '{"a": NaN}', '{"a": "\\u0000"}', '{"a": "\\ud800"}', DEEP, '{"a": 1e400}']) | texts
)
files = st.sampled_from(["nowhere", ".", "/", "/dev/null", "x" * 300, "\udcff"])
databases = st.sampled_from(
    ["x", "postgresql://[", S3CRET + "[", S3CRET + "127.0.0.1:1/x", "host=/nowhere password=S3CRET-3"]
)
targets = (
    st.sampled_from([":", "a:", ":b", ".:x", "..a:b", "no.such:w", "os:path", "os:nothing", "a b:c", "\udcff:x"])
    | texts
)

FLAG = st.none()
COMMANDS: dict[str, tuple[list[st.SearchStrategy[str]], dict[str, st.SearchStrategy[str | None]]]] = {
    "enqueue": ([texts], {
        "--payload": payloads, "--key": keys, "--priority": numbers, "--max-attempts": numbers, "--delay": durations,
        "--run-after": moments, "--user-id": ids, "--file": files,
    }),
    "jobs": ([], {
        "--status": st.sampled_from(STATES) | texts, "--type": texts, "--user-id": ids, "--key": keys, "--before": ids,
        "--limit": numbers,
    }),
    "show": ([ids], {}),
    "retry": ([ids], {"--max-attempts": numbers}),
    "cancel": ([ids], {}),
    "prune": ([], {"--succeeded-older": durations, "--dead-older": durations, "--limit": numbers}),
    "reclaim": ([], {}),
    "stats": ([], {}),
    "worker": ([targets], {
        "--processes": st.sampled_from(["0", "-1", "x"]), "--log-level": texts, "--log-format": texts,
    }),
    "migrate": ([], {"--dry-run": FLAG}),
}  # fmt: skip


class Program:
    """The process that runs the commands, over a queue."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self.table = psycopg.connect(dsn, autocommit=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.commands"],
            cwd=directory,
            env=environment(MARIAN_DATABASE_URL=dsn, PYTHONPATH=str(ROOT)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, arguments: list[str]) -> dict[str, Any]:
        """What became of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def rows(self) -> Any:
        return self.table.execute(ROWS).fetchall()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self.table.close()


@pytest.fixture(scope="module")
def program(filled: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(filled, tmp_path_factory.mktemp("here"))
    yield program
    program.close()


@st.composite
def lines(draw: st.DrawFn, command: str) -> list[str]:
    """A command line: mostly the arguments there are, each perhaps hostile."""
    positional, options = COMMANDS[command]
    line = [command, *(draw(value) for value in positional)]
    extra = {"--json": FLAG, "--database-url": databases} if command != "worker" else {}
    for name in draw(st.lists(st.sampled_from([*options, *extra, "--json", "--nonsense"]), max_size=3)):
        value = draw((options | extra).get(name, FLAG))
        line += [name] if value is None else draw(st.sampled_from([[name, value], [f"{name}={value}"]]))
    return line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_line_is_done_refused_or_wrong_usage(program: Program, command: str) -> None:
    @fuzzing(25)
    @given(lines(command))
    def call(arguments: list[str]) -> None:
        before = program.rows()
        ended = program.run(arguments)
        assert ended["escaped"] == ""
        assert ended["code"] in (0, 1, 2)
        assert "Traceback" not in ended["err"]
        assert "S3CRET" not in ended["out"] + ended["err"]
        if ended["code"]:
            assert ended["err"]
            assert program.rows() == before
        elif "--json" in arguments and "--" not in arguments:
            for line in ended["out"].splitlines():
                json.loads(line)

    call()
