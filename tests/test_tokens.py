"""Tokens of every kind of forgery: K62."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jose import jwk, jwt

from marian_jobs import StoreUnavailable
from marian_jobs.tokens import KeySetVerifier, SecretVerifier, TokenRefused, mint, mint_access, mint_key

SECRET = "a-secret-of-at-least-thirty-two-characters"
ISSUER = "https://project.example/auth/v1"
SUB = uuid4()


def claims(**changes: Any) -> dict[str, Any]:
    account = {"sub": str(SUB), "role": "authenticated", "aud": "authenticated", "iss": ISSUER, "email": "a@b.c"}
    made: dict[str, Any] = {**account, "exp": int(time.time()) + 60, **changes}
    return {name: value for name, value in made.items() if value is not None}


def pem(key: Any) -> str:
    return str(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
    )


def public_pem(key: Any) -> str:
    return str(
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def public_jwk(key: Any, algorithm: str, kid: str) -> dict[str, Any]:
    made = {
        k: v.decode() if isinstance(v, bytes) else v
        for k, v in jwk.construct(public_pem(key), algorithm).to_dict().items()
    }
    return {**made, "kid": kid, "alg": algorithm, "use": "sig"}


KEYS = {"keys": [public_jwk(RSA, "RS256", "r1"), public_jwk(EC, "ES256", "e1")]}


def signed(key: Any, algorithm: str, kid: str | None, **changes: Any) -> str:
    headers = {} if kid is None else {"kid": kid}
    return str(jwt.encode(claims(**changes), pem(key), algorithm=algorithm, headers=headers))


def unsigned(**changes: Any) -> str:
    parts = [{"alg": "none", "typ": "JWT"}, claims(**changes)]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, ""])


@pytest.fixture
def by_secret() -> SecretVerifier:
    return SecretVerifier(SECRET, issuer=ISSUER, leeway=timedelta(0))


def test_a_good_token_says_whose_it_is(by_secret: SecretVerifier) -> None:
    read = by_secret.verify(mint(claims(), SECRET))
    assert (read.sub, read.role, read.email) == (SUB, "authenticated", "a@b.c")


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": None}, {"aud": None}, {"iss": None}, {"sub": None},
        {"exp": 1}, {"aud": "other"}, {"iss": "https://elsewhere"}, {"sub": "not-a-uuid"},
        {"nbf": 4_000_000_000}, {"exp": "soon"}, {"sub": 5},
    ],
    ids=str,
)  # fmt: skip
def test_a_claim_that_is_missing_or_wrong_is_refused(by_secret: SecretVerifier, changes: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        by_secret.verify(mint(claims(**changes), SECRET))


@pytest.mark.parametrize(
    "token",
    [
        unsigned(role="service_role"),
        unsigned(),
        mint(claims(), "another-secret-of-at-least-thirty-two"),
        signed(RSA, "RS256", "r1"),
        str(jwt.encode(claims(), SECRET, algorithm="HS384")),
        mint(claims(), SECRET)[:-3] + "abc",
        "", "a.b", "a.b.c", "x" * 10_000, None, 5,
    ],
    ids=lambda t: str(t)[:12],
)  # fmt: skip
def test_a_token_not_signed_by_the_secret_is_refused_without_being_shown(by_secret: SecretVerifier, token: Any) -> None:
    with pytest.raises(TokenRefused) as refusal:
        by_secret.verify(token)
    assert not token or str(token) not in str(refusal.value)


def test_a_public_key_is_no_secret() -> None:
    with pytest.raises(ValueError, match="public key"):
        SecretVerifier(public_pem(RSA), issuer=ISSUER)


def test_nothing_shows_the_secret(by_secret: SecretVerifier) -> None:
    assert SECRET not in repr(by_secret)


def test_a_minted_access_token_verifies_and_an_api_key_is_no_access_token(by_secret: SecretVerifier) -> None:
    read = by_secret.verify(mint_access(SUB, "a@b.c", SECRET, issuer=ISSUER))
    assert (read.sub, read.role, read.email) == (SUB, "authenticated", "a@b.c")
    with pytest.raises(TokenRefused):
        by_secret.verify(mint_key("service_role", SECRET))


class TestKeySet:
    @pytest.mark.parametrize(("key", "algorithm", "kid"), [(RSA, "RS256", "r1"), (EC, "ES256", "e1")])
    async def test_a_key_of_the_set_verifies(self, key: Any, algorithm: str, kid: str) -> None:
        assert (await KeySetVerifier(issuer=ISSUER, keys=KEYS).verify(signed(key, algorithm, kid))).sub == SUB

    @pytest.mark.parametrize(
        "token",
        [
            signed(OTHER_RSA, "RS256", "r1"),
            signed(RSA, "RS256", "unknown"),
            signed(RSA, "RS256", None),
            signed(RSA, "RS256", "e1"),
            signed(RSA, "RS256", "r1", exp=1),
            signed(RSA, "RS256", "r1", iss=None),
            unsigned(),
            mint(claims(), SECRET),
        ],
        ids=count(),  # two test processes make two tokens; the names must be the same
    )
    async def test_anything_else_is_refused(self, token: str) -> None:
        with pytest.raises(TokenRefused):
            await KeySetVerifier(issuer=ISSUER, keys=KEYS).verify(token)

    async def test_a_public_key_used_as_an_hmac_secret_is_refused(self) -> None:
        def part(value: object) -> str:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

        import hashlib
        import hmac

        body = f"{part({'alg': 'HS256', 'kid': 'r1'})}.{part(claims(role='service_role'))}"
        signature = hmac.new(public_pem(RSA).encode(), body.encode(), hashlib.sha256).digest()
        forged = f"{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
        with pytest.raises(TokenRefused, match="algorithm"):
            await KeySetVerifier(issuer=ISSUER, keys=KEYS).verify(forged)

    def test_symmetric_and_asymmetric_are_never_mixed(self) -> None:
        with pytest.raises(ValueError, match="never mixed"):
            KeySetVerifier(issuer=ISSUER, keys=KEYS, algorithms=("RS256", "HS256"))

    async def test_a_rotated_key_is_fetched_once_and_a_flood_of_unknown_ones_is_not(self, jwks: "Served") -> None:
        verifier = KeySetVerifier(jwks.url, issuer=ISSUER, pause=timedelta(seconds=0.2))
        jwks.keys = {"keys": KEYS["keys"][:1]}
        await verifier.verify(signed(RSA, "RS256", "r1"))
        await verifier.verify(signed(RSA, "RS256", "r1"))
        assert jwks.fetches == 1
        for _ in range(20):
            with pytest.raises(TokenRefused):
                await verifier.verify(signed(EC, "ES256", "e1"))
        assert jwks.fetches == 1
        jwks.keys = KEYS
        time.sleep(0.25)
        assert (await verifier.verify(signed(EC, "ES256", "e1"))).sub == SUB
        assert jwks.fetches == 2

    async def test_a_withdrawn_key_ends_when_the_keys_are_old(self, jwks: "Served") -> None:
        verifier = KeySetVerifier(jwks.url, issuer=ISSUER, max_age=timedelta(0))
        jwks.keys = KEYS
        await verifier.verify(signed(RSA, "RS256", "r1"))
        jwks.keys = {"keys": KEYS["keys"][1:]}
        with pytest.raises(TokenRefused):
            await verifier.verify(signed(RSA, "RS256", "r1"))

    async def test_known_keys_serve_while_the_project_cannot_be_reached(self, jwks: "Served") -> None:
        verifier = KeySetVerifier(jwks.url, issuer=ISSUER, max_age=timedelta(0), pause=timedelta(0))
        jwks.keys = {"keys": KEYS["keys"][:1]}
        await verifier.verify(signed(RSA, "RS256", "r1"))
        for broken in ({"keys": None}, ["no key set"]):
            jwks.keys = broken
            assert (await verifier.verify(signed(RSA, "RS256", "r1"))).sub == SUB
            with pytest.raises(StoreUnavailable):
                await verifier.verify(signed(EC, "ES256", "e1"))

    async def test_a_flood_while_the_keys_cannot_be_had_is_no_flood_of_fetches(self, jwks: "Served") -> None:
        verifier = KeySetVerifier(jwks.url, issuer=ISSUER)
        jwks.keys = []
        token = signed(RSA, "RS256", "r1")  # once: on a busy machine twenty signatures outlast the pause
        for _ in range(20):
            with pytest.raises(StoreUnavailable):
                await verifier.verify(token)
        assert jwks.fetches == 1

    @pytest.mark.parametrize(
        "change", [{"n": "!"}, {"n": None}, {"kty": "oct", "k": "AAAA"}, {"alg": "ES256"}, {"use": "enc"}]
    )
    async def test_a_key_of_the_set_that_is_not_of_the_kind_refuses(self, change: dict[str, Any]) -> None:
        keys = {"keys": [KEYS["keys"][0] | change]}
        with pytest.raises(TokenRefused):
            await KeySetVerifier(issuer=ISSUER, keys=keys).verify(signed(RSA, "RS256", "r1"))

    async def test_keys_that_cannot_be_had_are_an_outage_and_no_refusal(self) -> None:
        with pytest.raises(StoreUnavailable, match="keys"):
            await KeySetVerifier("http://127.0.0.1:1/jwks", issuer=ISSUER).verify(signed(RSA, "RS256", "r1"))


class Served:
    """A JWKS over HTTP, and how often it was asked for."""

    def __init__(self) -> None:
        self.keys: Any = {"keys": []}
        self.fetches = 0
        self.url = ""


@pytest.fixture
def jwks() -> Iterator[Served]:
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.fetches += 1
            body = json.dumps(served.keys).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}/jwks"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield served
    server.shutdown()
