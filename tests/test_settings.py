"""Configuration: options, then environment, then `.env`; by our own names; without showing a secret."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from marian_jobs.cli.stores import open_store, settings
from marian_jobs.settings import NotConfigured, Settings
from marian_jobs.stores.postgres import PostgresStore

NAMES = {
    "MARIAN_DATABASE_URL": "database_url",
    "SUPABASE_URL": "supabase_url",
    "SUPABASE_SERVICE_ROLE_KEY": "service_key",
    "SUPABASE_SECRET_KEY": "service_key",
    "SUPABASE_ANON_KEY": "anon_key",
    "SUPABASE_PUBLISHABLE_KEY": "anon_key",
    "SUPABASE_JWT_SECRET": "jwt_secret",
    "SUPABASE_JWKS_URL": "jwks_url",
}


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty directory and none of our variables."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def value(known: Settings, field: str) -> str | None:
    found = getattr(known, field)
    return found.get_secret_value() if isinstance(found, SecretStr) else found


@pytest.mark.parametrize(("variable", "field"), NAMES.items())
def test_each_variable_is_read_from_the_environment_and_from_the_file(
    variable: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(".env").write_text(f'OTHER=1\n{variable}="of the file"\n')
    assert value(Settings(), field) == "of the file"
    monkeypatch.setenv(variable, "of the environment")
    assert value(Settings(), field) == "of the environment"


def test_an_option_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIAN_DATABASE_URL", "postgresql://environment")
    assert settings("postgresql://option").need_database() == "postgresql://option"
    assert settings(None).need_database() == "postgresql://environment"


def test_the_variables_of_other_programs_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "JWT_SECRET", "ANON_KEY", "SERVICE_KEY", "database_url"):
        monkeypatch.setenv(name, "somebody else's")
    assert Settings().model_dump(exclude_none=True) == {}


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIAN_DATABASE_URL", "")
    with pytest.raises(NotConfigured, match="MARIAN_DATABASE_URL"):
        Settings().need_database()


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        ({}, "MARIAN_DATABASE_URL, or SUPABASE_URL with SUPABASE_SERVICE_ROLE_KEY or SUPABASE_SECRET_KEY"),
        ({"SUPABASE_URL": "http://x"}, "set SUPABASE_SERVICE_ROLE_KEY or SUPABASE_SECRET_KEY too"),
        ({"SUPABASE_URL": "http://x", "SUPABASE_ANON_KEY": "k"}, "set SUPABASE_SERVICE_ROLE_KEY"),
        ({"SUPABASE_SECRET_KEY": "S3CRET-2"}, "set SUPABASE_URL too"),
    ],
)
def test_what_is_missing_is_named(known: dict[str, str], missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in known.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(NotConfigured, match=missing):
        open_store()


def test_a_database_is_taken_before_a_project(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MARIAN_DATABASE_URL", "SUPABASE_URL", "SUPABASE_SECRET_KEY"):
        monkeypatch.setenv(name, "postgresql://localhost/x")
    assert isinstance(open_store(), PostgresStore)


def test_no_secret_is_in_a_repr_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "S3CRET-2" if not name.endswith("URL") or "DATABASE" in name else "http://x")
    known = Settings()
    assert "S3CRET" not in f"{known!r} {known} {known.model_dump()}"
    with pytest.raises(ValueError, match="not a valid connection string") as caught:
        open_store()
    assert "S3CRET" not in str(caught.value)
