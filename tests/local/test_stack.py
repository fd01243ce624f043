"""`marian dev` as a program: what it prints works, what it started goes when it goes, however it goes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from marian_jobs import SupabaseStore, UserJobs, new_job
from marian_jobs.local.ports import free_port

MARIAN = [sys.executable, "-m", "marian_jobs"]


class Dev:
    """A running `marian dev`, and what it printed."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        ports = ["--port", str(free_port()), "--db-port", str(free_port())]
        self.process = subprocess.Popen(
            [*MARIAN, "dev", "--json", *ports, *options], cwd=directory, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.env: dict[str, str] = json.loads(self.process.stdout.readline())

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*MARIAN, *arguments], cwd=self.directory, capture_output=True, text=True, check=False)

    def started(self) -> list[int]:
        """The servers that run for it: Postgres, PostgREST."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        programs = {Path(f"/proc/{pid}/comm").read_text().strip(): int(pid) for pid in children}
        return [programs["postgres"], programs["postgrest"]]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for part in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and len(part.parts) > 2:
            part.chmod(part.stat().st_mode | 0o055)
    return tmp_path


@pytest.fixture
def dev(directory: Path) -> Iterator[Dev]:
    dev = Dev(directory)
    yield dev
    if dev.process.poll() is None:
        dev.end(signal.SIGTERM)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pids: list[int]) -> None:
    end = time.monotonic() + 15
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < end, "still running"
        time.sleep(0.05)


def test_it_prints_what_supabase_status_prints(dev: Dev) -> None:
    assert set(dev.env) == {
        "DB_URL", "API_URL", "REST_URL", "ANON_KEY", "SERVICE_ROLE_KEY", "PUBLISHABLE_KEY", "SECRET_KEY", "JWT_SECRET",
    }  # fmt: skip


@pytest.mark.parametrize("key", ["SERVICE_ROLE_KEY", "SECRET_KEY"])
async def test_a_worker_works_with_either_service_key_and_a_user_sees_its_own(dev: Dev, key: str) -> None:
    account = json.loads(dev.run("dev", "user", "a@example.com", "--json").stdout)
    async with SupabaseStore(dev.env["API_URL"], dev.env[key]) as store:
        (job,) = await store.enqueue([new_job("t", user_id=UUID(account["USER_ID"])), new_job("t")][:1])
        async with UserJobs(dev.env["API_URL"], dev.env["PUBLISHABLE_KEY"], account["ACCESS_TOKEN"]) as jobs:
            assert [seen.id for seen in (await jobs.list()).jobs] == [job.id]


def test_a_second_one_in_the_same_directory_is_refused(dev: Dev) -> None:
    second = dev.run("dev", "--port", str(free_port()), "--db-port", str(free_port()))
    assert second.returncode == 1
    assert "another Postgres" in second.stderr


def test_the_directory_in_use_is_named_before_the_port_is(dev: Dev) -> None:
    second = dev.run("dev", "--port", dev.env["API_URL"].rsplit(":", 1)[1])
    assert second.returncode == 1
    assert "another Postgres" in second.stderr


def test_an_account_is_not_made_in_another_directorys_stack(dev: Dev, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "running.json").write_text(json.dumps(dev.env))
    done = dev.run("dev", "user", "a@example.com", "--data", "other")
    assert done.returncode == 1
    assert "no local stack runs" in done.stderr


def test_a_postgrest_that_cannot_be_run_is_named_and_leaves_nothing(directory: Path) -> None:
    home = directory / "data"
    done = subprocess.run(
        [*MARIAN, "dev", "--data", "data", "--port", str(free_port()), "--db-port", str(free_port())],
        cwd=directory, capture_output=True, text=True, check=False, timeout=30,
        env={**os.environ, "MARIAN_POSTGREST_BIN": "/nowhere/postgrest"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "/nowhere/postgrest: cannot be run" in done.stderr
    assert not (home / "cluster" / "postmaster.pid").exists()


def test_a_port_that_does_not_exist_is_wrong_usage(directory: Path) -> None:
    done = subprocess.run([*MARIAN, "dev", "--port", "99999"], cwd=directory, capture_output=True, check=False)
    assert done.returncode == 2


def test_a_taken_port_is_refused_and_leaves_nothing(dev: Dev, directory: Path) -> None:
    taken = dev.env["API_URL"].rsplit(":", 1)[1]
    (directory / "other").mkdir()
    refused = subprocess.run(
        [*MARIAN, "dev", "--ephemeral", "--port", taken, "--db-port", str(free_port())],
        cwd=directory, capture_output=True, text=True, check=False, timeout=30,
        env={**os.environ, "TMPDIR": str(directory / "other")},
    )  # fmt: skip
    assert refused.returncode == 1
    assert f"port {taken} is taken" in refused.stderr
    assert not list((directory / "other").iterdir())


def test_an_account_needs_a_stack_that_runs(directory: Path) -> None:
    done = subprocess.run(
        [*MARIAN, "dev", "user", "a@example.com"], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no local stack runs" in done.stderr


def test_keys_and_data_stay_from_start_to_start(directory: Path) -> None:
    first = Dev(directory)
    assert first.end(signal.SIGINT) == 0
    second = Dev(directory)
    assert second.env["SECRET_KEY"] == first.env["SECRET_KEY"]
    assert second.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_runs_on_when_it_ends(dev: Dev, number: int) -> None:
    pids = dev.started()
    dev.end(number)
    wait_until_gone(pids)


class TestGateway:
    @pytest.fixture
    def get(self, dev: Dev) -> Iterator[Any]:
        with httpx.Client(base_url=dev.env["API_URL"]) as client:
            yield lambda path, **headers: client.get(path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def test_a_key_is_needed_and_must_be_known(self, dev: Dev, get: Any) -> None:
        path = "/rest/v1/marian_jobs"
        assert get(path).status_code == 401
        assert get(path, apikey="sb_secret_unknown").status_code == 401
        assert get(path, apikey=dev.env["ANON_KEY"][:-4] + "AAAA").status_code == 401
        assert get(path, apikey=dev.env["ANON_KEY"]).json() == []
        assert get(path, apikey=dev.env["PUBLISHABLE_KEY"]).json() == []
        assert get(f"{path}?apikey={dev.env['ANON_KEY']}").json() == []
        secret = dev.env["SECRET_KEY"]
        assert get(path, apikey=secret, authorization=f"Bearer {secret}").status_code == 200
        assert get("/rest/v1/marian_job_limits", apikey=secret).json() == []
        assert get("/rest/v1/marian_job_limits", apikey=dev.env["ANON_KEY"]).status_code == 401

    def test_an_account_s_token_is_no_api_key(self, dev: Dev, get: Any) -> None:
        token = json.loads(dev.run("dev", "user", "a@example.com", "--json").stdout)["ACCESS_TOKEN"]
        path = "/rest/v1/marian_jobs"
        assert get(path, apikey=token).status_code == 401
        assert get(path, apikey="a.b.c", authorization=f"Bearer {token}").status_code == 401
        assert get(path, apikey=dev.env["ANON_KEY"], authorization=f"Bearer {token}").json() == []

    def test_it_keeps_methods_ranges_and_preferences(self, dev: Dev) -> None:
        headers = {"apikey": dev.env["SECRET_KEY"]}
        with httpx.Client(base_url=dev.env["REST_URL"], headers=headers) as client:
            for _ in range(3):
                client.post("/rpc/enqueue_job", json={"p_type": "t"})
            page = client.get("/marian_jobs", headers={"range": "0-1", "prefer": "count=exact"})
            assert page.headers["content-range"] == "0-1/3"
            deleted = client.delete("/marian_jobs?type=eq.t", headers={"prefer": "return=representation"})
            assert len(deleted.json()) == 3

    def test_browsers_may_call_from_anywhere(self, dev: Dev) -> None:
        asked = httpx.options(
            f"{dev.env['REST_URL']}/marian_jobs",
            headers={
                "origin": "https://app.example",
                "access-control-request-method": "GET",
                "access-control-request-headers": "apikey, authorization",
            },
        )
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == "*"

    def test_it_serves_the_page_and_says_where_it_is(self, dev: Dev, get: Any) -> None:
        assert "<!doctype html>" in get("/").text
        config = get("/config.json").json()
        assert config == {"url": dev.env["API_URL"], "anonKey": dev.env["ANON_KEY"], "realtime": False}
        assert dev.env["SERVICE_ROLE_KEY"] not in json.dumps(config)

    def test_a_postgrest_that_is_gone_is_a_502(self, dev: Dev, get: Any) -> None:
        os.kill(dev.started()[1], signal.SIGKILL)
        time.sleep(0.2)
        assert get("/rest/v1/marian_jobs", apikey=dev.env["ANON_KEY"]).status_code == 502
