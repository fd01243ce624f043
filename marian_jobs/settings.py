"""Where the queue is, and with which keys: options first, then the environment, then `.env`.

A database's connection string is taken before a Supabase project's URL: who has both (migrations need the former, a
browser the latter) means one and the same queue.
"""

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from marian_jobs.errors import MarianError

SERVICE_KEYS = ("SUPABASE_SERVICE_ROLE_KEY", "SUPABASE_SECRET_KEY")
ANON_KEYS = ("SUPABASE_ANON_KEY", "SUPABASE_PUBLISHABLE_KEY")


class NotConfigured(MarianError):
    """Nothing says where the queue is, or only half of it."""


class Settings(BaseSettings):
    """The configuration of a process, empty variables being none; its repr and its errors show no secret.

    Variables are read by the names below alone: a `DATABASE_URL` or `JWT_SECRET` in the environment is another
    program's.
    """

    model_config = SettingsConfigDict(env_file=".env", env_ignore_empty=True, extra="ignore", hide_input_in_errors=True)

    database_url: SecretStr | None = Field(None, validation_alias=AliasChoices("MARIAN_DATABASE_URL"))
    supabase_url: str | None = Field(None, validation_alias=AliasChoices("SUPABASE_URL"))
    service_key: SecretStr | None = Field(None, validation_alias=AliasChoices(*SERVICE_KEYS))
    anon_key: SecretStr | None = Field(None, validation_alias=AliasChoices(*ANON_KEYS))
    jwt_secret: SecretStr | None = Field(None, validation_alias=AliasChoices("SUPABASE_JWT_SECRET"))
    jwks_url: str | None = Field(None, validation_alias=AliasChoices("SUPABASE_JWKS_URL"))

    def need_database(self) -> str:
        """The database's connection string, or `NotConfigured`."""
        if self.database_url is None:
            raise NotConfigured("no database: set MARIAN_DATABASE_URL (or give --database-url)")
        return self.database_url.get_secret_value()

    def need_project(self) -> tuple[str, str]:
        """The Supabase project's URL and service key, or `NotConfigured` naming what is missing."""
        keys = " or ".join(SERVICE_KEYS)
        if self.supabase_url is None and self.service_key is None:
            raise NotConfigured(f"no queue: set MARIAN_DATABASE_URL, or SUPABASE_URL with {keys}")
        if self.supabase_url is None:
            raise NotConfigured("a Supabase key without a project: set SUPABASE_URL too")
        if self.service_key is None:
            raise NotConfigured(f"SUPABASE_URL without a service key: set {keys} too")
        return self.supabase_url, self.service_key.get_secret_value()
