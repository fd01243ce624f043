"""Planted secrets are looked for wherever text leaves a process: K45 and its kind.

Every secret holds `S3CRET`, so that one search finds any of them, whole or in part.
"""

import asyncio
import json
import logging
import re
import signal
import stat
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from marian_jobs import Dead, Job, MarianError, PostgresStore, Queue, Retry, SupabaseStore, UserJobs, Worker, new_job
from marian_jobs.local.keys import Keys
from marian_jobs.local.ports import free_port
from marian_jobs.settings import Settings
from marian_jobs.stores.resend import http_client
from marian_jobs.tokens import KeySetVerifier, SecretVerifier, TokenRefused, mint_access, mint_key
from tests.cli.conftest import PROGRAM, environment
from tests.fix_stack import Stack
from tests.worker.conftest import fleet, postgres
from tests.worker.fleet import Fleet, finished

__all__ = ["fleet", "postgres"]  # fixtures

PLANTED = "S3CRET"
JWT_SECRET = "S3CRET-at-least-thirty-two-characters-long"
SECRET_KEY = "sb_secret_S3CRETS3CRET"
SOON = timedelta(seconds=2)
TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+")


def chain(error: BaseException | None) -> str:
    """All that the error and what caused it say in any way."""
    said = []
    while error is not None:
        said += [str(error), repr(error), *getattr(error, "__notes__", [])]
        said += traceback.format_exception_only(error)
        error = error.__cause__
    return "\n".join(said)


def looks_clean(text: str) -> bool:
    return PLANTED not in text and not TOKEN.search(text)


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log of every library at its most talkative."""
    quiet = {name: logging.getLogger(name).level for name in ("httpx", "psycopg.pool")}
    for name in quiet:
        logging.getLogger(name).setLevel(logging.NOTSET)
    with caplog.at_level(logging.DEBUG):
        yield caplog
    for name, level in quiet.items():
        logging.getLogger(name).setLevel(level)


class TestErrors:
    @pytest.mark.parametrize(
        "dsn",
        [
            "postgresql://u:S3CRET@127.0.0.1:1/d",
            "postgresql://u:a@S3CRET@127.0.0.1:1/d",
            "postgresql://u:a/S3CRET@127.0.0.1:1/d",
            "postgresql://u:S3CRET/a@127.0.0.1:1/d",
            "postgresql://u:1/S3CRET@127.0.0.1:1/d",
            "postgresql://u:a?S3CRET@127.0.0.1:1/d",
            "postgresql://u:a#S3CRET@127.0.0.1:1/d",
            "postgresql://u:a%S3CRET@127.0.0.1:1/d",
            "postgresql://u:S3CRET:127.0.0.1:1/d",
            "postgresql://u:S3CRET@[h",
            "postgresql://u:S3CRET@no-such-host.invalid/d",
            "host=127.0.0.1 port=1 user=u password=S3CRET",
            "host=127.0.0.1 port=1 user=u password=a S3CRET",
            "host=127.0.0.1 port=1 user=u password='S3CRET",
        ],
    )
    async def test_a_databases_password_stays_out_however_its_url_is_wrong(
        self, dsn: str, everything_logged: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises((MarianError, ValueError)) as caught:
            async with PostgresStore(dsn, deadline=SOON):
                pass
        assert looks_clean(chain(caught.value))
        assert looks_clean(everything_logged.text)

    async def test_a_wrong_password_stays_out(self, database: str, everything_logged: pytest.LogCaptureFixture) -> None:
        wrong = database.replace(":postgres@", ":S3CRET@")
        with pytest.raises(MarianError, match="login") as caught:
            async with PostgresStore(wrong, deadline=SOON):
                pass
        assert looks_clean(chain(caught.value))
        assert looks_clean(everything_logged.text)

    @pytest.mark.parametrize(
        "key", [SECRET_KEY, mint_key("service_role", JWT_SECRET), "S3CRET", "S3CRET\n", "S3CRET É", ""]
    )
    async def test_a_service_key_stays_out_whether_the_api_is_there_or_not(
        self, stack: Stack, key: str, everything_logged: pytest.LogCaptureFixture
    ) -> None:
        for url in (stack.url, "http://127.0.0.1:1", "http://[h"):
            with pytest.raises((MarianError, ValueError)) as caught:
                async with SupabaseStore(url, key, deadline=SOON) as store:
                    await store.stats()
            assert looks_clean(chain(caught.value)), url
        assert looks_clean(everything_logged.text)

    async def test_a_users_token_stays_out(self, stack: Stack, everything_logged: pytest.LogCaptureFixture) -> None:
        forged = mint_access(uuid4(), "a@b.c", JWT_SECRET, issuer="x")
        for url in (stack.url, "http://127.0.0.1:1"):
            async with UserJobs(url, stack.publishable_key, forged, deadline=SOON, realtime=True) as jobs:
                with pytest.raises(MarianError) as caught:
                    await anext(jobs.watch_newest(every=timedelta(seconds=0.1)))
            assert looks_clean(chain(caught.value)), url
        assert looks_clean(everything_logged.text)

    def test_a_token_that_is_refused_is_not_shown(self) -> None:
        forged = mint_access(uuid4(), "a@b.c", "another-secret-of-at-least-32-characters", issuer="x")
        for token in (forged, "S3CRET", "S3CRET.S3CRET.S3CRET"):
            with pytest.raises(TokenRefused) as caught:
                SecretVerifier(JWT_SECRET, issuer="x").verify(token)
            assert looks_clean(chain(caught.value))

    @pytest.mark.parametrize(
        "refused",
        [
            lambda: new_job("t", {"password": {"S3CRET"}}),
            lambda: new_job("t", {"password": float("nan")}, key="S3CRET" * 100),
            lambda: new_job("t", {"a": "S3CRET\0"}),
            lambda: new_job("t", {"a": b"S3CRET"}),
            lambda: new_job("t", {"a": "S3CRET"}, largest_payload=3),
            lambda: new_job("t", key="S3CRET\ud800"),
            lambda: SupabaseStore("S3CRET", "S3CRET"),
            lambda: SupabaseStore("https://x", "sb_publishable_S3CRET"),
            lambda: UserJobs("https://x", SECRET_KEY, "t"),
            lambda: UserJobs("https://x", "k", mint_key("service_role", JWT_SECRET)),
            lambda: SecretVerifier("-----BEGIN S3CRET", issuer="x"),
        ],
    )  # fmt: skip
    def test_what_is_refused_is_not_quoted(self, refused: Callable[[], Any]) -> None:
        with pytest.raises((ValueError, TypeError)) as caught:
            refused()
        assert looks_clean(chain(caught.value))


async def test_no_repr_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    key = mint_key("service_role", JWT_SECRET)
    monkeypatch.setenv("MARIAN_DATABASE_URL", "postgresql://u:S3CRET@h/d")
    monkeypatch.setenv("SUPABASE_SECRET_KEY", SECRET_KEY)
    monkeypatch.setenv("SUPABASE_JWT_SECRET", JWT_SECRET)
    postgres = PostgresStore("postgresql://u:S3CRET@h/d")
    job = new_job("t", {"password": "S3CRET"})
    things = [
        postgres,
        postgres.alarm(["t"]),
        postgres.for_another_loop(),
        SupabaseStore("https://x", key),
        SupabaseStore("https://me:S3CRET@x", key),
        SupabaseStore("https://x", key).for_another_loop(),
        UserJobs("https://x", mint_key("anon", JWT_SECRET), mint_access(uuid4(), "a@b.c", JWT_SECRET, issuer="x")),
        Queue(postgres),
        Worker(postgres),
        SecretVerifier(JWT_SECRET, issuer="x"),
        KeySetVerifier(issuer="x", keys={"keys": [{"kid": "1", "k": "S3CRET"}]}),
        Keys("S3CRET", "S3CRET", "S3CRET", "S3CRET", "S3CRET"),
        Settings(),
        http_client(SOON),
        job,
    ]
    for thing in things:
        assert looks_clean(f"{thing!r} {thing}"), type(thing)


class TestHandlers:
    """What a handler knows, and what its libraries' errors quote, is not the job's user's to read."""

    @pytest.mark.parametrize("store", ["postgres", "memory"])
    async def test_neither_variables_nor_quoted_credentials_reach_the_row(self, store: str, database: str) -> None:
        from marian_jobs import MemoryStore

        made = PostgresStore(database) if store == "postgres" else MemoryStore()
        worker = Worker(made, concurrency=1)
        raised: dict[str, Callable[[], BaseException]] = {
            "variable": lambda: ValueError("bad"),
            "dsn": lambda: ConnectionError("cannot reach postgresql://u:S3CRET@h/d"),
            "slash": lambda: ConnectionError("cannot reach postgres://u:a/S3CRET@h/d"),
            "header": lambda: RuntimeError("401 for {'Authorization': 'Bearer S3CRET-S3CRET'}"),
            "token": lambda: RuntimeError(f"refused: {mint_key('service_role', JWT_SECRET)}"),
            "key": lambda: Dead(f"no such project for {SECRET_KEY}"),
            "retry": lambda: Retry("apikey=S3CRET is limited"),
            "cause": lambda: RuntimeError("outer").with_traceback(None),
        }

        @worker.handler("t")
        async def handle(job: Job) -> None:
            password = "S3CRET-1"
            assert password
            try:
                raise KeyError("S3CRET")
            except KeyError as cause:
                raise raised[job.payload["how"]]() from cause

        await made.open()
        try:
            for how in raised:
                await made.enqueue([new_job("t", {"how": how, "password": "S3CRET"}, max_attempts=1)])
                tick = await worker.tick()
                assert tick.job is not None
                ended = await made.get(tick.job.id)
                assert ended is not None
                assert ended.error, how
                assert looks_clean(ended.error), how
        finally:
            await worker.close()
            await made.close()

    @pytest.mark.parametrize("style", ["console", "json"])
    async def test_a_workers_log_tells_the_failure_without_them(
        self, fleet: Fleet, postgres: PostgresStore, style: str, tmp_path: Path
    ) -> None:
        (tmp_path / "leaky.py").write_text(LEAKY)
        await postgres.enqueue([new_job("leak", {"password": "S3CRET"}, max_attempts=1)])
        done = await asyncio.to_thread(
            run, "worker", "leaky:worker", "--drain", "--log-format", style, "--log-level", "DEBUG", cwd=tmp_path,
            MARIAN_DATABASE_URL=fleet.dsn, OTHER_KEY="S3CRET",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "ConnectionError" in done.stderr
        assert looks_clean(done.stdout + done.stderr)


LEAKY = """
import os
from marian_jobs import PostgresStore, Worker

worker = Worker(PostgresStore(os.environ["MARIAN_DATABASE_URL"]))

@worker.handler("leak")
async def leak(job):
    key = os.environ["OTHER_KEY"]
    try:
        raise KeyError(f"apikey={key}")
    except KeyError as e:
        raise ConnectionError(f"cannot reach postgresql://u:{key}@h/d with Bearer {key}{key}") from e
"""


def run(*arguments: str, cwd: Path, stdin: str = "", **known: str) -> "subprocess.CompletedProcess[str]":
    """`marian` in a directory, with a queue in its environment."""
    return subprocess.run(
        [*PROGRAM, *arguments], input=stdin, cwd=cwd, env=environment(**known), capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip


class TestCommands:
    """What the commands print where the queue cannot be had, or what they were given is no good."""

    COMMANDS = (["jobs"], ["enqueue", "a", "--json"], ["migrate"])

    @pytest.mark.parametrize(
        "known",
        [
            {"MARIAN_DATABASE_URL": "postgresql://u:a@S3CRET@127.0.0.1:1/d"},
            {"SUPABASE_URL": SECRET_KEY, "SUPABASE_SECRET_KEY": "http://127.0.0.1:1"},
            {"SUPABASE_SECRET_KEY": SECRET_KEY},
        ],
        ids=["database", "swapped", "half"],
    )
    def test_an_unreachable_queue_is_told_without_its_secrets(self, known: dict[str, str], tmp_path: Path) -> None:
        for command in self.COMMANDS:
            done = run(*command, cwd=tmp_path, **known)
            assert done.returncode in (1, 2)
            assert done.stderr
            assert looks_clean(done.stdout + done.stderr), command

    def test_a_payload_or_a_line_that_is_refused_is_not_quoted(self, tmp_path: Path, database: str) -> None:
        refused = ['{"password": "S3CRET"', '["S3CRET"]', '{"a": "S3CRET\\u0000"}']
        for text in refused:
            for how in (["--payload", text], ["--file", "-"]):
                line = "" if how[0] == "--payload" else f'{{"payload": {text}}}\n'
                done = run("enqueue", "a", *how, cwd=tmp_path, stdin=line, MARIAN_DATABASE_URL=database)
                assert done.returncode in (1, 2), text
                assert looks_clean(done.stdout + done.stderr), (text, how)

    def test_a_worker_whose_module_fails_shows_no_credential(self, tmp_path: Path) -> None:
        (tmp_path / "app.py").write_text(
            "import os\nraise ValueError('at postgresql://u:' + os.environ['X'] + '@h/d')\n"
        )
        done = run("worker", "app:worker", cwd=tmp_path, X="S3CRET")
        assert done.returncode == 1
        assert "ValueError" in done.stderr
        assert looks_clean(done.stderr)


class TestProcesses:
    """What others on the machine can see of us: command lines, environments, files."""

    SECRETS = {  # noqa: RUF012
        "SUPABASE_SERVICE_ROLE_KEY": "S3CRET",
        "SUPABASE_JWT_SECRET": "S3CRET",
        "OPENAI_API_KEY": "S3CRET",
        "DATABASE_URL": "postgresql://u:S3CRET@h/d",
    }

    @pytest.fixture
    def place(self) -> Iterator[Path]:
        """A directory that the server's account can reach, whatever becomes of the test runner's own."""
        with tempfile.TemporaryDirectory(dir="/tmp") as made:
            Path(made).chmod(0o755)
            yield Path(made)

    @pytest.fixture
    def dev(self, place: Path) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
        ports = ["--port", str(free_port()), "--db-port", str(free_port())]
        known = environment(**self.SECRETS)
        process = subprocess.Popen(
            [*PROGRAM, "dev", "--json", *ports], cwd=place, env=known, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        process.wait(20)

    def test_what_dev_starts_knows_no_secret_that_it_does_not_need(
        self, dev: tuple["subprocess.Popen[str]", dict[str, str]]
    ) -> None:
        process, env = dev
        keys = [env[name] for name in ("SERVICE_ROLE_KEY", "SECRET_KEY", "JWT_SECRET")]
        started = descendants(process.pid)
        assert {"postgres", "postgrest"} <= {comm(pid) for pid in started}
        for pid in [*started, process.pid]:
            shown = proc(pid, "cmdline") + ("" if pid == process.pid else proc(pid, "environ"))
            assert not [key for key in (*keys, PLANTED) if key in shown], comm(pid)

    def test_files_that_hold_keys_are_their_owners_and_no_others_hold_any(
        self, dev: tuple["subprocess.Popen[str]", dict[str, str]], place: Path
    ) -> None:
        _, env = dev
        bytes_of = [env[name].encode() for name in ("SERVICE_ROLE_KEY", "SECRET_KEY", "JWT_SECRET")]
        home = (place / ".marian").resolve()
        run("dev", "user", "a@example.com", cwd=place)
        with psycopg.connect(env["DB_URL"]) as connection, pytest.raises(psycopg.Error):
            connection.execute("select public.enqueue_job('', '{\"password\": \"S3CRET\"}')")
        holding = {}
        for file in (file for root in (home, place) for file in root.rglob("*") if file.is_file()):
            text = file.read_bytes()
            if any(key in text for key in bytes_of):
                holding[file.name.rstrip("-0123456789")] = stat.S_IMODE(file.stat().st_mode)
        assert holding == {"keys.json": 0o600, "running.json": 0o600, "jwt-secret": 0o600}
        assert stat.S_IMODE(home.stat().st_mode) == 0o700

    async def test_worker_processes_are_started_without_the_databases_password_in_sight(
        self, fleet: Fleet, postgres: PostgresStore
    ) -> None:
        (job,) = await postgres.enqueue([new_job("sleep")])
        process = fleet.start("--processes", "2")
        await finished(postgres, job.id, 30)
        workers = descendants(process.pid)
        assert len(workers) >= 2
        for pid in (process.pid, *workers):
            assert ":postgres@" not in proc(pid, "cmdline")


def proc(pid: int, file: str) -> str:
    """What /proc tells of a process; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def comm(pid: int) -> str:
    return proc(pid, "comm").strip()


def descendants(pid: int) -> list[int]:
    """The processes below a process, of any of its threads."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found
