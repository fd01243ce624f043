"""The local Postgres: kept or thrown away, alone on its port and directory, gone when its parent is."""

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import marian_jobs
from marian_jobs.local.directory import refuse_unfit
from marian_jobs.local.failure import LocalStackError
from marian_jobs.local.guard import Guard
from marian_jobs.local.postgres import LocalPostgres


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_until_gone(pid: int, within: float = 15) -> None:
    end = time.monotonic() + within
    while alive(pid):
        assert time.monotonic() < end, "still running"
        time.sleep(0.05)


def one(dsn: str, text: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(text).fetchone()
    assert row is not None
    return row[0]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory that the server's account can reach."""
    for directory in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and len(directory.parts) > 2:
            directory.chmod(directory.stat().st_mode | 0o055)
    return tmp_path / "data"


def test_kept_data_is_there_again(home: Path) -> None:
    with LocalPostgres(home) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("create table kept (n int)")
        pid = server.pid
    assert pid is not None
    assert not alive(pid)
    with LocalPostgres(home) as server:
        assert one(server.dsn(), "select to_regclass('kept')::text") == "kept"


def test_temporary_data_goes_with_the_server() -> None:
    with LocalPostgres() as server:
        directory = server.home
        assert directory.exists()
    assert not directory.exists()


def test_a_restart_keeps_port_and_data(home: Path) -> None:
    with LocalPostgres(home) as server:
        port = server.port
        server.restart("immediate")
        assert server.port == port
        assert one(server.dsn(), "select 1") == 1


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalStackError, match=f"port {port} is taken"):
            LocalPostgres(port=port).start()


def test_a_taken_directory_is_named(home: Path) -> None:
    with LocalPostgres(home), pytest.raises(LocalStackError, match="another Postgres"):
        LocalPostgres(home).start()


def test_a_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = LocalPostgres(settings={"no_such_setting": "1"})
    with pytest.raises(LocalStackError, match="no_such_setting"):
        server.start()
    assert server.pid is None
    assert not list(tmp_path.iterdir())


def test_a_server_that_never_started_stops_without_removing_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious").touch()
    monkeypatch.chdir(tmp_path)
    LocalPostgres().stop()
    assert (tmp_path / "precious").exists()


def test_a_directory_of_other_files_is_left_as_it_is(home: Path) -> None:
    home.mkdir(mode=0o750)
    (home / "precious").touch()
    before = home.stat()
    with pytest.raises(LocalStackError, match="holds other files"):
        LocalPostgres(home).start()
    after = home.stat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)


def test_a_first_start_that_was_interrupted_is_made_again(home: Path) -> None:
    with LocalPostgres(home):
        pass
    (home / "unfinished").touch()
    with LocalPostgres(home) as server, psycopg.connect(server.dsn()):
        pass
    assert not (home / "unfinished").exists()


@pytest.mark.parametrize("name", ["a b, 'c'", "x" * 120])
def test_any_path_will_do_for_the_data(home: Path, name: str) -> None:
    with LocalPostgres(home.parent / name) as server:
        assert one(server.socket_dsn(role="supabase_admin"), "select 1") == 1
        assert one(server.dsn(), "select 1") == 1
        socket_directory = server.socket
    assert not socket_directory.exists()
    assert (home.parent / name / "cluster").exists()


def test_nobody_else_on_the_machine_reaches_the_socket(server: LocalPostgres) -> None:
    assert stat.S_IMODE(server.socket.stat().st_mode) == 0o700


def test_a_stale_pid_file_does_not_keep_the_directory(home: Path) -> None:
    with LocalPostgres(home) as server:
        assert server.pid is not None
        kept = (home / "cluster" / "postmaster.pid").read_text().splitlines()
    (home / "cluster" / "postmaster.pid").write_text("\n".join([str(os.getpid()), *kept[1:]]) + "\n")
    refuse_unfit(home)


def test_the_guard_goes_though_a_forked_child_holds_its_pipe(tmp_path: Path) -> None:
    guard = Guard(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    child = os.fork()
    if child == 0:
        signal.pause()
    guard.dismiss()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / "kept").exists()


def test_missing_programs_are_named(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="no Postgres server there"):
        LocalPostgres(bin=tmp_path)


def test_nothing_is_left_when_the_parent_is_killed() -> None:
    program = (
        "from marian_jobs.local.postgres import LocalPostgres\n"
        "import time\n"
        "server = LocalPostgres()\n"
        "server.start()\n"
        "print(server.pid, server.home, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, directory = parent.stdout.readline().split()
    assert alive(int(pid))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until_gone(int(pid))
    end = time.monotonic() + 5
    while Path(directory).exists():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_runs_it_as_itself() -> None:
    program = (
        "from marian_jobs.local.postgres import LocalPostgres\n"
        "with LocalPostgres() as server:\n"
        "    print(server.dsn(), flush=True)\n"
    )
    package = Path(marian_jobs.__file__).parent.parent
    paths = {"PYTHONPATH": f"{package}:{sysconfig.get_path('platlib')}", "PYTHONDONTWRITEBYTECODE": "1"}
    # Our own Python may lie where no other user can reach it; then the system's does, where it is of the same version.
    same = f"import sys, marian_jobs; assert sys.version_info[:2] == {sys.version_info[:2]}"
    done = None
    for python in (sys.executable, "/usr/bin/python3"):
        run = partial(
            subprocess.run, user="nobody", group="nogroup", extra_groups=[], capture_output=True, text=True,
            check=False, cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/tmp", **paths},
        )  # fmt: skip
        with contextlib.suppress(OSError):
            if run([python, "-c", same]).returncode == 0:
                done = run([python, "-c", program])
                break
    if done is None:
        pytest.skip("no Python with this package that another user can reach")
    assert done.stdout.startswith("postgresql://"), done.stderr


class TestLooksLikeSupabase:
    def test_postgres_owns_the_database_and_is_no_superuser(self, server: LocalPostgres, bare_database: str) -> None:
        assert one(bare_database, "select rolsuper from pg_roles where rolname = current_user") is False
        one(
            bare_database,
            "select 1 from pg_database where datname = current_database() and datdba = 'postgres'::regrole",
        )

    def test_what_is_new_is_granted_to_everybody_by_default(self, bare_database: str) -> None:
        with psycopg.connect(bare_database, autocommit=True) as connection:
            connection.execute("create function public.forgotten() returns int language sql as 'select 1'")
            connection.execute("create table public.forgotten (n int)")
        for role in ("anon", "authenticated", "service_role"):
            assert one(bare_database, f"select has_function_privilege('{role}', 'public.forgotten()', 'execute')")
            assert one(bare_database, f"select has_table_privilege('{role}', 'public.forgotten', 'insert')")

    def test_what_the_superuser_makes_is_granted_as_well(self, server: LocalPostgres, bare_database: str) -> None:
        server.execute(sql.SQL("create table public.made (n int)"), database=bare_database.split("/")[-1].split("?")[0])
        assert one(bare_database, "select has_table_privilege('anon', 'public.made', 'insert')")

    def test_the_newer_projects_grant_nothing(self) -> None:
        with LocalPostgres(grants="none") as server:
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                connection.execute("create table public.fresh (n int)")
            for role in ("anon", "authenticated", "service_role"):
                assert not one(server.dsn(), f"select has_table_privilege('{role}', 'public.fresh', 'select')")

    def test_a_request_says_who_it_is(self, bare_database: str) -> None:
        with psycopg.connect(bare_database) as connection:
            connection.execute(
                "select set_config('request.jwt.claims', "
                """'{"sub": "00000000-0000-0000-0000-00000000000a", "role": "authenticated"}', true)"""
            )
            row = connection.execute("select auth.uid()::text, auth.role(), auth.jwt() ->> 'role'").fetchone()
        assert row == ("00000000-0000-0000-0000-00000000000a", "authenticated", "authenticated")
