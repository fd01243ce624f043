"""One change at a time to the text of an SQL function: a condition dropped or turned, a lock or an order left out.

Texts are cut by tokens and parentheses, not parsed: what comes out may be no SQL, and is then left to its user to drop.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"--[^\n]*|'(?:[^']|'')*'|\$\w*\$|[\w.%]+|:=|=>|<=|>=|<>|!=|::|\|\||[-+*/=<>(),;\[\]]|\s+|.", re.DOTALL
)
_ENDS = frozenset(
    {
        "and",
        "or",
        "order",
        "limit",
        "for",
        "returning",
        "group",
        "then",
        "loop",
        "union",
        "on",
        "join",
        "left",
        "cross",
        "when",
        "having",
        "window",
        "offset",
        "into",
        "set",
        "from",
        "where",
        "else",
        "end",
    }
)
_SWAPS = {
    "<=": "<", "<": "<=", ">=": ">", ">": ">=", "<>": "=", "greatest": "least", "least": "greatest",
    "exists": "not exists", "desc": "", "distinct": "", "'queued'": "'dead'", "'retrying'": "'dead'",
    "'running'": "'dead'", "'succeeded'": "'dead'", "'dead'": "'queued'", "+": "-", "-": "+",
}  # fmt: skip


class Change(NamedTuple):
    """A function's text with one thing changed, and what and where that was."""

    line: int
    what: str
    text: str


def changes(text: str) -> Iterator[Change]:
    """Every change to the body of a function as `pg_get_functiondef` tells it."""
    start = text.index("AS $function$") + len("AS $function$")
    tokens = _TOKEN.findall(text[start:])
    head = text[:start]
    for first, last, instead in _edits(tokens):
        before, old, after = ("".join(part) for part in (tokens[:first], tokens[first:last], tokens[last:]))
        if old.strip() != instead.strip():
            was = " ".join(old.split())
            yield Change(
                before.count("\n"), f"{was} → {instead.strip() or '(nothing)'}", head + before + instead + after
            )


def _edits(tokens: list[str]) -> Iterator[tuple[int, int, str]]:
    words = [token.lower() for token in tokens]
    for i, word in enumerate(words):
        if word in _SWAPS and not (word == "distinct" and _before(words, i) == "is"):
            yield i, i + 1, _SWAPS[word]
        elif word == "=" and not _assigns(words, i):
            yield i, i + 1, "<>"
        elif re.fullmatch(r"\d+", word) and word != "0":
            yield i, i + 1, str(int(word) + 1)
        elif re.fullmatch(r"'\d+ \w+'", word):
            yield i, i + 1, f"'{int(word[1:].split()[0]) + 7} {word.split()[1]}"
        elif word in ("where", "and") and not _of_between(words, i):
            end = _end_of_condition(words, i + 1)
            yield i + 1, end, " true "
        elif word == "if" and _before(words, i) != "end" and (then := _find(words, i, "then")):
            yield i + 1, then, f" not ({''.join(tokens[i + 1 : then]).strip()}) "
        elif word == "is" and _next(words, i) != "not":
            yield i, i + 1, "is not"
        elif word == "not":
            yield i, i + 1, " "
        elif word == "perform":
            yield i, (_find(words, i, ";") or i), "null"
        elif word == "for" and _next(words, i) == "update":
            end = _end_of_condition(words, i + 4)
            yield i, end, " "
            if "skip" in words[i:end]:
                yield i, end, " for update "
        elif word == "order" and _next(words, i) == "by":
            yield i, _end_of_condition(words, i + 3), " "
        elif word == "limit":
            yield i, _end_of_condition(words, i + 1), " "


def _next(words: list[str], i: int) -> str:
    return next((word for word in words[i + 1 :] if word.strip()), "")


def _before(words: list[str], i: int) -> str:
    return next((word for word in reversed(words[:i]) if word.strip()), "")


def _find(words: list[str], i: int, wanted: str) -> int | None:
    return next((k for k in range(i, len(words)) if words[k] == wanted), None)


def _of_between(words: list[str], i: int) -> bool:
    """Whether this `and` belongs to a `between`."""
    for word in reversed(words[:i]):
        if word in ("between",):
            return True
        if word in ("and", "or", "where", "then", ";", "if", "when"):
            return False
    return False


def _assigns(words: list[str], i: int) -> bool:
    """Whether this `=` sets a column rather than compares: the last clause word before it is `set`."""
    depth = 0
    for word in reversed(words[:i]):
        depth += (word == ")") - (word == "(")
        if depth <= 0 and word in ("set", "where", "and", "or", "on", "when", "if", "select", "from"):
            return word == "set"
    return False


def _end_of_condition(words: list[str], i: int) -> int:
    """Behind the condition, list or clause that begins at `i`."""
    depth = between = 0
    for k in range(i, len(words)):
        word = words[k]
        depth += (word == "(") - (word == ")")
        if depth < 0 or word == ";":
            return k
        if depth == 0 and word == "between":
            between += 1
        elif depth == 0 and word in _ENDS and not (word == "from" and "distinct" in words[max(i, k - 3) : k]):
            if word == "and" and between:
                between -= 1
                continue
            return k
    return len(words)
