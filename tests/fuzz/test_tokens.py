"""Access tokens with every kind of tampering: refused as tokens, by no other error, and nothing of them is shown."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marian_jobs.tokens import Claims, KeySetVerifier, SecretVerifier, TokenRefused, mint
from tests.fuzz.hostile import fuzzing, json_scalars
from tests.test_tokens import EC, ISSUER, KEYS, RSA, SECRET, claims, public_pem, signed

SECRETS = SecretVerifier(SECRET, issuer=ISSUER)
KEY_SET = KeySetVerifier(issuer=ISSUER, keys=KEYS)
LATER = int(time.time()) + 365 * 86400
GOOD = {
    "HS256": mint(claims(exp=LATER), SECRET),
    "RS256": signed(RSA, "RS256", "r1", exp=LATER + 1),
    "ES256": signed(EC, "ES256", "e1", exp=LATER + 2),
}
algorithms = pytest.mark.parametrize("algorithm", GOOD)
ALGORITHMS = [
    "none",
    "None",
    "NONE",
    "",
    "HS256",
    "hs256",
    "HS384",
    "HS512",
    "RS256",
    "RS512",
    "ES256",
    "ES512",
    "PS256",
    "dir",
]
KIDS = ["r1", "e1", "", "../../dev/null", "r1\0", "' or 1=1", "https://attacker.example/jwks", "x" * 10_000]


async def read(algorithm: str, token: Any) -> Claims:
    return SECRETS.verify(token) if algorithm == "HS256" else await KEY_SET.verify(token)


def refuses(algorithm: str, token: Any) -> None:
    """Refused as a token, and without showing it."""
    with pytest.raises(TokenRefused) as refusal:
        asyncio.run(read(algorithm, token))
    if isinstance(token, str) and len(token) > 20:
        assert token not in str(refusal.value)


def encoded(part: bytes | str | Any) -> str:
    raw = part if isinstance(part, bytes) else part.encode() if isinstance(part, str) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def by_hmac(header: Any, body: Any, key: str = SECRET) -> str:
    """A token whose HMAC signature is right, whatever its parts are."""
    text = f"{encoded(header)}.{encoded(body)}"
    return f"{text}.{encoded(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest())}"


@algorithms
async def test_what_is_tampered_with_here_is_good_before(algorithm: str) -> None:
    assert (await read(algorithm, GOOD[algorithm])).role == "authenticated"


@algorithms
def test_a_token_with_a_bit_turned_is_refused(algorithm: str) -> None:
    parts = [base64.urlsafe_b64decode(part + "==") for part in GOOD[algorithm].split(".")]

    @fuzzing(60)
    @given(st.integers(0, 2), st.integers(0, 10_000))
    def turn(which: int, bit: int) -> None:
        turned = bytearray(parts[which])
        turned[bit // 8 % len(turned)] ^= 1 << bit % 8
        refuses(algorithm, ".".join(encoded(bytes(turned) if n == which else part) for n, part in enumerate(parts)))

    turn()


@algorithms
def test_a_token_cut_lengthened_or_put_together_anew_is_refused(algorithm: str) -> None:
    good = GOOD[algorithm]
    head, body, signature = good.split(".")
    other = GOOD["RS256" if algorithm == "HS256" else "HS256"].split(".")
    forged = [
        good[:-5], good[5:], good + ".", "." + good, f"{good}.{good}", f"{head}.{body}", f"{head}.{body}.",
        f"{head}..{signature}", f".{body}.{signature}", f"{other[0]}.{body}.{signature}",
        f"{head}.{other[1]}.{signature}",
        f"{head}.{body}.{other[2]}", f"{body}.{head}.{signature}", good.encode() + b"\xff", f"{good} x", "é" + good,
        good.replace(".", "\0."), head + "." * 1_000_000, "x" * 5_000_000, [good], {"token": good}, 1.5, True, b"",
    ]  # fmt: skip
    for token in forged:
        refuses(algorithm, token)


@algorithms
@pytest.mark.parametrize("named", ALGORITHMS)
def test_a_token_that_names_another_algorithm_is_refused(algorithm: str, named: str) -> None:
    _, body, signature = GOOD[algorithm].split(".")
    refuses(algorithm, f"{encoded({'alg': named, 'kid': 'r1'})}.{body}.")
    if named != algorithm:
        refuses(algorithm, f"{encoded({'alg': named, 'kid': 'r1'})}.{body}.{signature}")
        refuses(
            algorithm,
            by_hmac({"alg": named, "kid": "r1"}, claims(), SECRET if algorithm == "HS256" else public_pem(RSA)),
        )


@pytest.mark.parametrize("kid", [*KIDS, None, 1, [], ["r1"], {"r1": 1}, True])
def test_a_kid_is_a_name_and_nothing_else(kid: Any) -> None:
    key, algorithm = (EC, "ES256") if kid == "e1" else (RSA, "RS256")
    head, body, signature = signed(key, algorithm, "r1", exp=LATER).split(".")
    for alg in ("RS256", "ES256"):
        refuses("RS256", f"{encoded({'alg': alg, 'kid': kid, 'x': head})}.{body}.{signature}")


@pytest.mark.parametrize("extra", [
    {"jwk": KEYS["keys"][0]}, {"jku": "http://127.0.0.1:1/"}, {"x5u": "http://127.0.0.1:1/"}, {"x5c": ["AAAA"]},
    {"crit": ["exp"]}, {"b64": False, "crit": ["b64"]}, {"zip": "DEF"},
])  # fmt: skip
async def test_a_header_brings_no_key_of_its_own(extra: dict[str, Any]) -> None:
    refused = by_hmac({"alg": "HS256", **extra}, claims(), "a-secret-of-the-attackers-own-choosing!!")
    with pytest.raises(TokenRefused):
        SECRETS.verify(refused)


@fuzzing(80)
@given(
    st.dictionaries(
        st.sampled_from(["sub", "aud", "iss", "exp", "nbf", "iat", "role", "email"]),
        json_scalars | st.sampled_from([LATER, 2**63, -(2**63), 1e308, str(LATER), [ISSUER], ["authenticated", 1]]),
        min_size=1,
    )
)
def test_claims_of_any_kind_are_read_or_refused(changes: dict[str, Any]) -> None:
    """Signed with the right key: an account's claims in the end, or a refusal."""
    try:
        found = SECRETS.verify(by_hmac({"alg": "HS256"}, {**claims(exp=LATER), **changes}))
    except TokenRefused:
        return
    assert isinstance(found.role, str)
    assert found.email is None or isinstance(found.email, str)
    assert found.expires.timestamp() > time.time() - 60


@pytest.mark.parametrize("body", [
    "", "nonsense", "[]", "null", "1", '"text"', "{", "{}", "[" * 50_000, '{"a":' * 50_000, "\U0001f986", b"\xff\xfe",
    '{"exp": NaN, "sub": 1}', '{"exp": 1e999}', "1" * 5000,
])  # fmt: skip
@pytest.mark.parametrize("place", ["header", "claims"])
def test_json_that_is_none_is_refused(body: Any, place: str) -> None:
    header, said = ({"alg": "HS256"}, body) if place == "claims" else (body, claims())
    refuses("HS256", by_hmac(header, said))
    refuses("RS256", by_hmac(header, said))


def test_of_members_that_come_twice_the_last_counts_in_the_check_and_in_what_is_read() -> None:
    once = json.dumps(claims(exp=LATER))
    twice = once[:-1] + ', "exp": 1}'
    refuses("HS256", by_hmac({"alg": "HS256"}, twice))
    refuses("HS256", by_hmac('{"alg": "HS256", "alg": "none"}', once))
    read = SECRETS.verify(by_hmac({"alg": "HS256"}, once[:-1] + ', "role": "anon"}'))
    assert (read.role, read.raw["role"]) == ("anon", "anon")
