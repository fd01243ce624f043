"""The local stack's keys, kept with its data so that they stay the same from start to start."""

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from marian_jobs.tokens import mint_key


@dataclass(frozen=True)
class Keys:
    """A project's secrets and the keys made of them: of the older kind (tokens) and of the newer (names)."""

    jwt_secret: str
    anon: str
    service_role: str
    publishable: str
    secret: str

    def __repr__(self) -> str:
        return "Keys(…)"

    @classmethod
    def kept_in(cls, directory: Path) -> Self:
        """The keys of a data directory, made at the first call; the file is its owner's alone."""
        file = directory / "keys.json"
        if file.exists():
            return cls(**json.loads(file.read_text()))
        keys = cls._fresh()
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as kept:
            json.dump(asdict(keys), kept)
        return keys

    @classmethod
    def _fresh(cls) -> Self:
        secret = secrets.token_urlsafe(40)
        return cls(
            jwt_secret=secret,
            anon=mint_key("anon", secret),
            service_role=mint_key("service_role", secret),
            publishable=f"sb_publishable_{secrets.token_urlsafe(24)}",
            secret=f"sb_secret_{secrets.token_urlsafe(24)}",
        )

    def token_of(self, key: str) -> str | None:
        """The role's token that one of the project's four keys stands for, None for anything else."""
        known = {
            self.publishable: self.anon,
            self.secret: self.service_role,
            self.anon: self.anon,
            self.service_role: self.service_role,
        }
        return known.get(key)
