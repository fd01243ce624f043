"""Where the queue is, and with which keys: options first, then the environment, then `.env`."""

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from marian_jobs.errors import MarianError


class NotConfigured(MarianError):
    """Nothing says where the queue is, or two things do."""


class Settings(BaseSettings):
    """The configuration of a process; its repr shows no secret."""

    model_config = SettingsConfigDict(env_file=".env", extra="ignore", populate_by_name=True)

    database_url: SecretStr | None = Field(None, validation_alias=AliasChoices("MARIAN_DATABASE_URL"))
    supabase_url: str | None = Field(None, validation_alias=AliasChoices("SUPABASE_URL"))
    service_key: SecretStr | None = Field(
        None, validation_alias=AliasChoices("SUPABASE_SERVICE_ROLE_KEY", "SUPABASE_SECRET_KEY")
    )
    anon_key: SecretStr | None = Field(
        None, validation_alias=AliasChoices("SUPABASE_ANON_KEY", "SUPABASE_PUBLISHABLE_KEY")
    )
    jwt_secret: SecretStr | None = Field(None, validation_alias=AliasChoices("SUPABASE_JWT_SECRET"))
    jwks_url: str | None = Field(None, validation_alias=AliasChoices("SUPABASE_JWKS_URL"))

    def need_database(self) -> str:
        """The database's connection string, or `NotConfigured`."""
        if self.database_url is None:
            raise NotConfigured("no database: set MARIAN_DATABASE_URL (or give --database-url)")
        return self.database_url.get_secret_value()

    def need_project(self) -> tuple[str, str]:
        """The Supabase project's URL and service key, or `NotConfigured`."""
        if self.supabase_url is None or self.service_key is None:
            raise NotConfigured(
                "no queue: set MARIAN_DATABASE_URL, or SUPABASE_URL with SUPABASE_SERVICE_ROLE_KEY (or …_SECRET_KEY)"
            )
        return self.supabase_url, self.service_key.get_secret_value()
