"""Secrets taken out of a text by their shape, before it leaves the process: a job's `error`, a log, the terminal.

Exceptions of other libraries quote what they were given: a connection string, a header, a key. A job's `error` is read
by the job's user and kept for months, so what looks like a credential is left out of it, at the price of a harmless
word now and then. What has no shape (a password alone in a sentence) nobody can recognise.
"""

import logging
import re
from typing import Final

HIDDEN: Final = "…"
_MOST: Final = 65_536  # characters looked at from either end of a longer text

_NAMES = r"password|passwd|pwd|secret|access_token|refresh_token|token|api_?key|jwt_secret|client_secret"
_NAMED = rf"""(?i)\b((?:\w{{1,40}}[_-])?(?:{_NAMES})['"]?\s?(?:=|:\s?(?=['"]))\s?)"""
_SHAPES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    # postgresql://user:password@host; a password may hold a slash or an @ that should have been encoded
    (re.compile(r"(postgres(?:ql)?(?:\+\w{1,20})?://[^\s:/@]{0,128}):[^\s'\"<>]{0,512}@"), rf"\1:{HIDDEN}@"),
    (re.compile(r"(\b\w{2,20}://[^\s:/@]{0,128}):[^\s/'\"<>]{1,512}@"), rf"\1:{HIDDEN}@"),
    # password=…, "apikey": "…"
    (re.compile(_NAMED + r"""('[^']*'|"[^"]*"|[^\s&,;)}]+)"""), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\beyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)?"), f"eyJ{HIDDEN}"),  # a JWT
    (re.compile(r"\b(sb_secret_|sbp_|sk-|ghp_|xox[abp]-)[\w-]{8,}"), rf"\1{HIDDEN}"),
)  # fmt: skip

# Most texts hold none of these, and are told apart in a microsecond: every line of a log passes here.
_HINTS: Final = ("://", "pass", "pwd", "secret", "token", "key", "bearer", "basic", "eyj", "sb", "sk-", "ghp_", "xox")


def redact(text: str) -> str:
    """The text without what looks like a credential; the middle of one beyond 128 Ki characters is left out too."""
    if len(text) > 2 * _MOST:
        text = f"{text[:_MOST]}{HIDDEN}{text[-_MOST:]}"
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return text


class Redacting(logging.Filter):
    """Takes credentials out of the records of a library that logs what it sends."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Never drops a record; its message may be another."""
        record.msg, record.args = redact(record.getMessage()), None
        return True
