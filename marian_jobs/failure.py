"""A failure as text that can always be stored and that gives nothing away.

The full traceback goes to the log. What the row keeps is the exception's type and message, and where it was raised:
no local variables, no source lines, no credential that can be told by its shape, no NUL, no lone surrogate, at most
8192 characters with head and tail kept.
"""

import traceback

from marian_jobs.redaction import redact

LONGEST = 8192
_HEAD, _TAIL, _GAP = 4096, 4089, "\n[...]\n"
_UNSTORABLE = dict.fromkeys([0, *range(0xD800, 0xE000)], "�")


def storable(text: str) -> str:
    """The text with what Postgres cannot store replaced, and bounded."""
    clean = text.translate(_UNSTORABLE)
    return clean if len(clean) <= LONGEST else clean[:_HEAD] + _GAP + clean[-_TAIL:]


def presentable(text: str) -> str:
    """What a handler says of its failure, as storable text without credentials."""
    return storable(redact(text))


def describe(error: BaseException) -> str:
    """Type and message of an exception and the place it was raised at, as `presentable` text."""
    return presentable(f"{_headline(error)}{_place(error)}")


def _headline(error: BaseException) -> str:
    name = type(error).__name__
    try:
        message = str(error)
    except Exception as broken:  # an exception whose __str__ raises must not take the worker with it
        message = f"(its message could not be read: {type(broken).__name__})"
    return f"{name}: {message}" if message else name


def _place(error: BaseException) -> str:
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return ""
    frame, line = frames[-1]
    module = frame.f_globals.get("__name__", "?")
    return f"\n  at {module}.{frame.f_code.co_name}, line {line}"
