"""What looks like a credential is left out, and what does not stays."""

import logging
import time

import pytest

from marian_jobs.redaction import Redacting, redact
from marian_jobs.tokens import mint_key

TOKEN = mint_key("service_role", "a-secret-of-at-least-thirty-two-characters")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("at postgresql://u:S3CRET@h:5/d now", "at postgresql://u:…@h:5/d now"),
        ("at postgres://u:S3C@R/ET@h/d?x=1", "at postgres://u:…@h/d?x=1"),
        ("postgresql+psycopg://:S3CRET@h/d", "postgresql+psycopg://:…@h/d"),
        ("GET https://me:S3CRET@host/a@b", "GET https://me:…@host/a@b"),
        ("redis://:S3CRET@h", "redis://:…@h"),
        ("host=h password=S3CRET user=u", "host=h password=… user=u"),
        ("host=h password='S3 CRET' user=u", "host=h password=… user=u"),
        ("PGPASSWORD: none, DB_PASSWORD=S3CRET", "PGPASSWORD: none, DB_PASSWORD=…"),
        ('{"apikey": "S3CRET", "a": 1}', '{"apikey": …, "a": 1}'),
        ("{'access_token': 'S3CRET'}", "{'access_token': …}"),
        ("wss://h/websocket?apikey=S3CRET&vsn=1", "wss://h/websocket?apikey=…&vsn=1"),
        ("authorization: Bearer S3CRET-S3CRET", "authorization: Bearer …"),
        ("Basic UzNDUkVUOlMzQ1JFVA==!", "Basic …!"),
        (f"the key {TOKEN} is old", "the key eyJ… is old"),
        ("sb_secret_S3CRET-2abc", "sb_secret_…"),
        ("Incorrect API key provided: sk-proj-S3CRETS3CRET.", "Incorrect API key provided: sk-…."),
    ],
)
def test_a_credential_is_left_out(text: str, left: str) -> None:
    assert redact(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "Unexpected token: } at line 3",
        "KeyError: 'token'",
        "see https://example.com:8080/a?b=1",
        "me@example.com: 12:30:45 a/b",
        "sb_publishable_abcdefghijk is public",
        "the task sk-1 has no bearer",
        "1 token = 4 characters"[:7],
        "",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("piece", ["postgresql://a:", "a://b:c", "token=", "eyJaaaaaaa.", "bearer ", "x_", "'", "a"])
def test_a_text_made_to_take_long_does_not(piece: str) -> None:
    begun = time.process_time()
    redact(piece * (1_000_000 // len(piece)))
    assert time.process_time() - begun < 2


def test_the_secret_at_either_end_of_a_huge_text_is_left_out() -> None:
    left = redact(f"password=S3CRET {'x' * 1_000_000} password=S3CRET")
    assert "S3CRET" not in left
    assert (left[:10], left[-10:]) == ("password=…", "password=…")


def test_a_librarys_records_pass_with_another_message() -> None:
    record = logging.LogRecord("x", logging.DEBUG, "f", 1, "sent %s", (TOKEN,), None)
    assert Redacting().filter(record) is True
    assert record.getMessage() == "sent eyJ…"
