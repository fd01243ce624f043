"""Supabase's access tokens: verified by what is configured, never by what the token says of itself.

The algorithms come from the configuration and are never mixed: with HS256 allowed beside an asymmetric one, a public
key could be used as an HMAC secret. A key of a JWKS is chosen by the token's `kid` and must be of the kind that the
algorithm needs. `exp`, `aud`, `iss` and `sub` must be there.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import httpx
from jose import JOSEError, JWTError, jwt

from marian_jobs import clock
from marian_jobs.errors import MarianError, StoreUnavailable

SYMMETRIC: Final = "HS256"
ASYMMETRIC: Final = ("ES256", "RS256")
AUDIENCE: Final = "authenticated"
LONGEST: Final = 64 * 1024
_SHAPE = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
_KIND = {"ES256": "EC", "RS256": "RSA"}
_OPTIONS = {
    "require_aud": True, "require_exp": True, "require_iss": True, "require_sub": True,
    "verify_aud": True, "verify_iss": True, "verify_exp": True, "verify_nbf": True, "verify_iat": True,
}  # fmt: skip


class TokenRefused(MarianError):
    """The token is not one of ours, or not any more; the text says which rule it breaks, never the token."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says: whose it is, as which role, until when."""

    sub: UUID
    role: str
    email: str | None
    expires: datetime
    raw: Mapping[str, Any] = field(repr=False)


class SecretVerifier:
    """Verifies tokens signed with the project's secret (HS256)."""

    def __init__(
        self, secret: str, *, issuer: str, audience: str = AUDIENCE, leeway: timedelta = timedelta(seconds=10)
    ) -> None:
        if not secret or secret.lstrip().startswith("-----BEGIN"):
            raise ValueError("secret: expected the project's JWT secret, not a public key")
        self._secret = secret
        self._rules = _Rules(issuer, audience, leeway)

    def __repr__(self) -> str:
        return "SecretVerifier(…)"

    def verify(self, token: str) -> Claims:
        """The token's claims; raises `TokenRefused`."""
        _header(token, (SYMMETRIC,))
        return self._rules.read(token, self._secret, SYMMETRIC)


class KeySetVerifier:
    """Verifies tokens signed with a key of the project's JWKS (ES256, RS256), fetched when first needed.

    Fetched again when a token names an unknown `kid` (at most once per `pause`) and when older than `max_age`, so that
    a withdrawn key ends; while the keys cannot be had, the known ones serve, and a token of another key raises
    `StoreUnavailable`. `keys` gives the JWKS itself instead of its URL.
    """

    def __init__(
        self,
        jwks_url: str | None = None,
        *,
        issuer: str,
        keys: Mapping[str, Any] | None = None,
        audience: str = AUDIENCE,
        algorithms: tuple[str, ...] = ASYMMETRIC,
        leeway: timedelta = timedelta(seconds=10),
        pause: timedelta = timedelta(seconds=30),
        max_age: timedelta = timedelta(minutes=10),
        client: httpx.AsyncClient | None = None,
    ) -> None:
        if (jwks_url is None) == (keys is None):
            raise ValueError("give one of jwks_url and keys")
        if not algorithms or not set(algorithms) <= set(ASYMMETRIC):
            raise ValueError(f"algorithms: expected some of {', '.join(ASYMMETRIC)}; HS256 is never mixed with them")
        self._url = jwks_url
        self._algorithms = algorithms
        self._rules = _Rules(issuer, audience, leeway)
        self._pause = pause.total_seconds()
        self._max_age = max_age.total_seconds()
        self._client = client
        self._keys: dict[str, Mapping[str, Any]] = {} if keys is None else _by_kid(keys)
        self._fetched_at: float | None = None
        self._failure: tuple[float, str] | None = None
        self._fetching = asyncio.Lock()

    async def verify(self, token: str) -> Claims:
        """The token's claims; raises `TokenRefused`."""
        header = _header(token, self._algorithms)
        kid = header.get("kid")
        if not isinstance(kid, str):
            raise TokenRefused("the token names no key (kid)")
        await self._refresh(kid)
        key = self._keys.get(kid)
        if key is None:
            raise TokenRefused("the token is signed with a key that the project does not have")
        algorithm = header["alg"]
        if key.get("kty") != _KIND[algorithm] or key.get("alg", algorithm) != algorithm:
            raise TokenRefused("the token's algorithm is not its key's")
        return self._rules.read(token, dict(key), algorithm)

    async def _refresh(self, kid: str) -> None:
        """Fetches the keys where that may bring the one asked for, or where they are old."""
        if self._url is None or not self._is_stale(kid):
            return
        async with self._fetching:
            if not self._is_stale(kid):
                return  # whoever held the lock has fetched them
            if (said := self._lately_failed()) is None:
                try:
                    self._keys, self._fetched_at = await self._fetch(self._url), clock.monotonic()
                    return
                except (httpx.HTTPError, ValueError) as e:
                    said = f"the project's keys could not be fetched: {type(e).__name__}"
                    self._failure = clock.monotonic(), said
            if kid not in self._keys:
                raise StoreUnavailable(said)

    def _is_stale(self, kid: str) -> bool:
        if self._fetched_at is None:
            return True
        return clock.monotonic() - self._fetched_at > (self._max_age if kid in self._keys else self._pause)

    def _lately_failed(self) -> str | None:
        """What the last fetch failed by, for a second: a flood of tokens is no flood of fetches."""
        if self._failure is None or clock.monotonic() - self._failure[0] > min(self._pause, 1.0):
            return None
        return self._failure[1]

    async def _fetch(self, url: str) -> dict[str, Mapping[str, Any]]:
        if self._client is not None:
            answer = await self._client.get(url)
        else:
            async with httpx.AsyncClient(timeout=10) as client:
                answer = await client.get(url)
        return _by_kid(answer.raise_for_status().json())


@dataclass(frozen=True, slots=True)
class _Rules:
    issuer: str
    audience: str
    leeway: timedelta

    def read(self, token: str, key: Any, algorithm: str) -> Claims:
        options = {**_OPTIONS, "leeway": self.leeway.total_seconds()}
        try:
            claims = jwt.decode(
                token, key, algorithms=[algorithm], audience=self.audience, issuer=self.issuer, options=options
            )
            return Claims(
                sub=UUID(claims["sub"]),
                role=_said(claims, "role") or "",
                email=_said(claims, "email"),
                expires=datetime.fromtimestamp(claims["exp"], tz=UTC),
                raw=claims,
            )
        except JWTError as e:
            raise TokenRefused(f"the token is refused: {e}") from None
        except JOSEError:
            raise TokenRefused("the token is refused: its key in the key set is not one of its kind") from None
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise TokenRefused("the token is refused: its claims are not an account's") from None


def mint(claims: Mapping[str, Any], secret: str) -> str:
    """A token with these claims, signed with a secret (HS256): for the local stack."""
    return str(jwt.encode(dict(claims), secret, algorithm=SYMMETRIC))


def mint_key(role: str, secret: str, lifetime: timedelta = timedelta(days=3650)) -> str:
    """A local stack's API key: `role` is anon or service_role."""
    return mint({"iss": "supabase", "role": role, "exp": _expiry(lifetime)}, secret)


def mint_access(
    user_id: UUID, email: str, secret: str, *, issuer: str, lifetime: timedelta = timedelta(hours=1)
) -> str:
    """An account's access token, as Supabase's auth server would give it."""
    account = {"sub": str(user_id), "email": email, "role": AUDIENCE, "aud": AUDIENCE, "iss": issuer}
    return mint({**account, "exp": _expiry(lifetime)}, secret)


def _expiry(lifetime: timedelta) -> int:
    return int((clock.utc_now() + lifetime).timestamp())


def _said(claims: Mapping[str, Any], name: str) -> str | None:
    value = claims.get(name)
    if value is not None and not isinstance(value, str):
        raise TypeError(name)
    return value


def _header(token: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    # base64 as Python reads it passes over any other character: one token would have countless spellings.
    if not isinstance(token, str) or len(token) > LONGEST or not _SHAPE.fullmatch(token):
        raise TokenRefused("that is not a token")
    try:
        header: dict[str, Any] = jwt.get_unverified_header(token)
    except (JWTError, AttributeError, TypeError, ValueError, RecursionError):
        raise TokenRefused("that is not a token") from None
    if header.get("alg") not in allowed:
        raise TokenRefused(f"the token's algorithm is not one that is configured ({', '.join(allowed)})")
    return header


def _by_kid(keys: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = keys.get("keys") if isinstance(keys, Mapping) else None
    if not isinstance(found, list):
        raise ValueError("a JWKS is an object with a list of keys")
    return {
        key["kid"]: key
        for key in found
        if isinstance(key, dict) and isinstance(key.get("kid"), str) and key.get("use", "sig") == "sig"
    }
