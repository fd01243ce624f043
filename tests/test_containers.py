"""MARIAN_TEST_STACK chooses where the tests' servers run; what it chooses is what runs."""

import subprocess
import sys

import httpx
import psycopg
import pytest

from marian_jobs.local.postgres import LocalPostgres
from tests.fix_postgres import apply_migrations, running
from tests.fix_stack import serving_rest


@pytest.fixture
def images() -> list[str]:
    """The images' names; skips where Docker or one of them is missing, in CI too: nobody pulls 1 GB unasked."""
    import docker

    from tests.fix_containers import POSTGRES_IMAGE, POSTGREST_IMAGE

    try:
        client = docker.from_env()
        for image in (POSTGRES_IMAGE, POSTGREST_IMAGE):
            client.images.get(image)
    except docker.errors.DockerException as e:
        pytest.skip(f"on demand only: {e}")
    return [POSTGRES_IMAGE, POSTGREST_IMAGE]


def test_processes_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIAN_TEST_STACK", raising=False)
    assert isinstance(running({}), LocalPostgres)


def test_a_word_that_chooses_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIAN_TEST_STACK", "container")
    with pytest.raises(ValueError, match="processes or containers, got 'container'"):
        running({})


def test_containers_without_docker_run_nothing_else_in_their_place() -> None:
    """Skipped on a laptop, failed in CI, and never quietly run on processes."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/sql/test_table.py", "-x"],
        env={"MARIAN_TEST_STACK": "containers", "DOCKER_HOST": "unix:///nowhere/docker.sock", "CI": "true", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "missing in CI: Docker" in done.stdout
    assert "passed" not in done.stdout.splitlines()[-1]


def test_containers_serve_a_migrated_project(images: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fix_containers import ContainerPostgres

    monkeypatch.setenv("MARIAN_TEST_STACK", "containers")
    with running({"fsync": "off"}) as server:
        assert isinstance(server, ContainerPostgres)
        dsn = server.create_database("project")
        apply_migrations(dsn)
        with psycopg.connect(dsn) as connection:
            assert connection.execute("select current_user, rolsuper from pg_roles where rolname = current_user"
                                      ).fetchone() == ("postgres", False)  # fmt: skip
            assert connection.execute("show fsync").fetchone() == ("off",)
            assert connection.execute("select inet_server_addr() <<= '127.0.0.0/8'").fetchone() == (False,)
        with serving_rest(server, "project") as url:
            assert httpx.get(f"{url}/marian_jobs").json() == []
