"""Row-level security and grants through the real PostgREST: the same matrix, and the tokens that must not work."""

import base64
import json
from collections.abc import Iterator
from functools import cache
from time import monotonic, sleep, time
from typing import Any

import httpx
import psycopg
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jose import jwt

from tests.fix_postgres import Server, apply_migrations
from tests.fix_stack import JWT_SECRET, serving_rest
from tests.supabase.fix_rls import WHO, Who, restore
from tests.supabase.rls_matrix import DONE, FUNCTIONS, REFUSED, VERBS, A, B, Function, Verb

Project = tuple[Server, str]
CLAIMS: dict[Who, dict[str, str]] = {
    "a": {"role": "authenticated", "sub": A},
    "b": {"role": "authenticated", "sub": B},
    "service": {"role": "service_role"},
}
REFUSALS = {"anon": 401, "a": 403, "b": 403, "service": 403}


class Api:
    """PostgREST, and what its table holds."""

    def __init__(self, url: str, dsn: str) -> None:
        self.client = httpx.Client(base_url=url, headers={"prefer": "return=representation"})
        self.dsn = dsn

    def ask(self, who: Who, method: str, path: str, body: Any) -> httpx.Response:
        token = jwt.encode(CLAIMS[who] | {"exp": time() + 60}, JWT_SECRET) if who in CLAIMS else None
        return self.send(token, method, path, body)

    def send(self, token: str | None, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return self.client.request(method, path, json=body, headers=headers)

    def rows(self) -> list[Any]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute("select * from public.marian_jobs order by id").fetchall()


@pytest.fixture(scope="module")
def rest(project: Project) -> Iterator[Api]:
    server, database = project
    with serving_rest(server, database) as url:
        yield Api(url, server.dsn(database=database))


@pytest.fixture
def api(rest: Api) -> Api:
    """The API over the matrix's four rows."""
    restore(rest.dsn)
    return rest


def check(api: Api, expected: int | str, who: Who, question: tuple[str, str, Any]) -> None:
    before = api.rows()
    response = api.ask(who, *question)
    if expected == REFUSED:
        assert (response.status_code, response.json()["code"]) == (REFUSALS[who], "42501")
        assert api.rows() == before
    else:
        assert response.is_success, response.text
        assert expected == DONE or expected == len(response.json())


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.http], ids=lambda verb: verb.name)
def test_a_verb_is_answered_as_the_matrix_says(api: Api, verb: Verb, who: Who) -> None:
    assert verb.http is not None
    check(api, getattr(verb, who), who, verb.http)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_a_function_is_answered_as_the_matrix_says(api: Api, function: Function, who: Who) -> None:
    check(api, getattr(function, who), who, ("POST", f"rpc/{function.name}", function.arguments))


@cache
def bad_tokens() -> dict[str, str]:
    """K62: tokens that say service_role and must not be believed."""
    claims = {"role": "service_role", "exp": time() + 60}
    key = rsa.generate_private_key(65537, 2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    unsigned = ".".join(part(text) for text in ({"alg": "none", "typ": "JWT"}, claims)) + "."
    good = jwt.encode(claims, JWT_SECRET)
    return {
        "without signature": unsigned,
        "with a signature of nothing": unsigned + good.rsplit(".", 1)[1],
        "expired": jwt.encode(claims | {"exp": time() - 60}, JWT_SECRET),
        "signed by another key": jwt.encode(claims, "another-secret-with-at-least-32-characters"),
        "signed with RS256": jwt.encode(claims, private.decode(), "RS256"),
        "signed with a public key as secret": jwt.encode(claims, public.hex()),
        "with its claims changed": ".".join([good.split(".")[0], part(claims | {"x": 1}), good.split(".")[2]]),
        "no token at all": "sb_secret_guess",
    }


def part(claims: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("kind", bad_tokens())
def test_a_bad_token_is_refused(api: Api, kind: str) -> None:
    assert api.send(bad_tokens()[kind], "GET", "marian_jobs").status_code == 401
    assert api.send(bad_tokens()[kind], "POST", "rpc/claim_job", {}).status_code == 401


@pytest.mark.parametrize("role", ["postgres", "supabase_admin", "authenticator", "nobody"])
def test_a_good_token_for_another_role_opens_nothing(api: Api, role: str) -> None:
    before = api.rows()
    token = jwt.encode({"role": role, "exp": time() + 60}, JWT_SECRET)
    for method, path in (("GET", "marian_jobs"), ("DELETE", "marian_jobs"), ("POST", "rpc/claim_job")):
        assert not api.send(token, method, path, {} if method == "POST" else None).is_success
    assert api.rows() == before


def test_a_claim_works_within_five_seconds_of_the_migration(server: Server, bare_database: str) -> None:
    """K64: PostgREST learns of the new functions by itself."""
    name = bare_database.rsplit("/", 1)[1].split("?")[0]
    with serving_rest(server, name) as url:
        api = Api(url, bare_database)
        assert api.ask("service", "POST", "rpc/claim_job", {}).status_code == 404
        apply_migrations(bare_database)
        end = monotonic() + 5
        while (response := api.ask("service", "POST", "rpc/claim_job", {})).status_code == 404 and monotonic() < end:
            sleep(0.05)
    assert response.status_code == 200, response.text
