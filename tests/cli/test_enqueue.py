"""`marian enqueue`: one job, or a file of them, and always clear about what went in."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import PROGRAM, Marian, answer, answers, environment
from tests.worker.fleet import wait_for


def count(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select count(*) from public.marian_jobs").fetchone()
        assert row is not None
        return int(row[0])


def lines(path: Path, number: int) -> Path:
    path.write_text("".join(f'{{"payload": {{"i": {i}}}}}\n' for i in range(1, number + 1)))
    return path


def test_a_job_goes_in_with_all_that_was_said_of_it(marian: Marian, database: str) -> None:
    made = answer(
        marian(
            "enqueue",
            "mail",
            "--payload",
            '{"to": "ada", "emoji": "😀"}',
            "--key",
            "k",
            "--priority",
            "-5",
            "--run-after",
            "2030-01-31T12:00:00+02:00",
            "--max-attempts",
            "7",
            "--json",
            dsn=database,
        )
    )
    assert (made["type"], made["status"], made["created"]) == ("mail", "queued", True)
    assert (made["payload"], made["idempotency_key"]) == ({"to": "ada", "emoji": "😀"}, "k")
    assert (made["priority"], made["max_attempts"], made["user_id"]) == (-5, 7, None)
    assert made["run_after"] == "2030-01-31T10:00:00+00:00"


def test_one_key_twice_is_one_job_and_the_second_time_says_so(marian: Marian, database: str) -> None:
    first = answer(marian("enqueue", "a", "--key", "K1", "--json", dsn=database))
    second = answer(marian("enqueue", "a", "--key", "K1", "--json", dsn=database))
    third = marian("enqueue", "a", "--key", "K1", dsn=database)

    assert (second["id"], second["created"]) == (first["id"], False)
    assert third.returncode == 0
    assert first["id"] in third.stdout
    assert "nothing was added" in third.stdout
    assert count(database) == 1


def test_large_integers_come_back_as_they_went_in(marian: Marian, database: str) -> None:
    numbers = {"n": 2**53 + 1, "m": 2**63 + 1, "k": 10**40}
    made = answer(marian("enqueue", "a", "--payload", json.dumps(numbers), "--json", dsn=database))
    shown = answer(marian("show", made["id"], "--json", dsn=database))
    assert made["payload"] == shown["payload"] == numbers
    with psycopg.connect(database) as connection:
        kept = connection.execute("select jsonb_typeof(payload), payload ->> 'k' from public.marian_jobs").fetchone()
    assert kept == ("object", str(10**40))


def test_the_deepest_payload_that_is_allowed_can_be_shown(marian: Marian, database: str) -> None:
    deep = '{"a":' * 512 + "1" + "}" * 512
    made = answer(marian("enqueue", "a", "--payload", deep, "--json", dsn=database))
    assert json.dumps(made["payload"], separators=(",", ":")) == deep
    assert '{"a"' in marian("show", made["id"], dsn=database).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--payload", "{"],
        ["--payload", "[]"],
        ["--payload", '{"a": NaN}'],
        ["--key", " "],
        ["--key", "k" * 513],
        ["--priority", "2147483648"],
        ["--priority", "x"],
        ["--max-attempts", "0"],
        ["--delay", "soon"],
        ["--run-after", "2030-01-31T12:00:00"],
        ["--delay", "1s", "--run-after", "2030-01-31T12:00Z"],
        ["--user-id", "ada"],
        ["--file", "nowhere.jsonl"],
        ["--file", "-", "--key", "k"],
    ],
)
def test_what_cannot_be_a_job_is_wrong_usage_and_nothing_is_sent(arguments: list[str], marian: Marian) -> None:
    done = marian("enqueue", "a", *arguments, dsn="postgresql://127.0.0.1:1/nobody-is-asked")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Invalid value" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_goes_in_line_by_line(marian: Marian, database: str, tmp_path: Path) -> None:
    file = lines(tmp_path / "jobs.jsonl", 2500)
    assert answer(marian("enqueue", "a", "--file", str(file), "--json", dsn=database)) == {
        "enqueued": 2500, "existing": 0,
    }  # fmt: skip
    newest = answer(marian("jobs", "--limit", "1", "--json", dsn=database))
    assert newest["payload"]["i"] > 2000
    assert count(database) == 2500


def test_standard_input_is_a_file_and_known_keys_are_counted(marian: Marian, database: str) -> None:
    text = '{"key": "x"}\n{"key": "y"}\n{"key": "x"}\n'
    first = answer(marian("enqueue", "a", "--file", "-", "--json", dsn=database, stdin=text))
    again = marian("enqueue", "a", "--file", "-", dsn=database, stdin=text)
    assert first == {"enqueued": 2, "existing": 1}
    assert again.stdout == "0 enqueued, 3 there already\n"


def test_a_bad_line_stops_the_file_and_it_is_said_which_lines_went_in(
    marian: Marian, database: str, tmp_path: Path
) -> None:
    file = lines(tmp_path / "jobs.jsonl", 1500)
    file.write_text(file.read_text().replace('{"i": 1200}', "[1200]"))
    done = marian("enqueue", "a", "--file", str(file), dsn=database)

    assert (done.returncode, done.stdout) == (1, "")
    assert "lines 1 to 1000 were enqueued" in done.stderr
    assert "line 1200: payload: expected a JSON object" in done.stderr
    assert count(database) == 1000


def test_a_bad_line_among_the_first_lets_none_in(marian: Marian, database: str) -> None:
    done = marian("enqueue", "a", "--file", "-", dsn=database, stdin="{}\n{}\noops\n")
    assert done.returncode == 1
    assert "no line was enqueued" in done.stderr
    assert "line 3: not JSON" in done.stderr
    assert count(database) == 0


def test_ctrl_c_in_the_middle_says_which_lines_went_in_and_ends_with_130(database: str) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "enqueue", "a", "--file", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(MARIAN_DATABASE_URL=database),
        # A runner in the background ignores SIGINT, and what is ignored is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    assert process.stdin is not None
    process.stdin.write(b"{}\n" * 1001)
    process.stdin.flush()
    wait_for(lambda: count(database) == 1000, 10, "the first batch is in")
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=10)

    assert process.returncode == 130
    # The second batch may be in while its reply is still on its way: then the first is all that is sure.
    assert re.search(rb"lines 1 to (500|1000) were enqueued", said)
    assert b"Traceback" not in said


def test_without_json_a_job_is_a_line_of_a_table(marian: Marian, database: str) -> None:
    done = marian("enqueue", "mail", "--key", "[red]k[/]", dsn=database)
    [job] = answers(marian("jobs", "--json", dsn=database))
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].split()[:4] == [job["id"], "mail", "queued", "0/3"]
    assert "[red]k[/]" in done.stdout
