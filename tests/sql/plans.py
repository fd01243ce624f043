"""Reads the plans of the statements inside a function, as executed: auto_explain, sent to the client."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

READING = {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Bitmap Index Scan", "Tid Scan"}


@dataclass(frozen=True)
class Node:
    """A plan node as it ran: what it read, by which index, and what it passed on."""

    kind: str
    relation: str | None
    index: str | None
    rows: float
    read: float


class PlanReader:
    """Executes statements as the superuser and keeps the plans of all that ran inside them."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._messages: list[str] = []
        connection.add_notice_handler(lambda notice: self._messages.append(notice.message_primary or ""))
        for setting in (
            "load 'auto_explain'",
            "set auto_explain.log_min_duration = 0",
            "set auto_explain.log_nested_statements = on",
            "set auto_explain.log_analyze = on",
            "set auto_explain.log_format = json",
            "set client_min_messages = log",
        ):
            connection.execute(setting)

    def run(self, text: str, *parameters: object) -> tuple[list[Any], list[Node]]:
        """The statement's rows, and the nodes of every plan inside the functions it called."""
        self._messages.clear()
        rows = self._connection.execute(text, parameters).fetchall()
        return rows, [node for message in self._messages for node in _nodes(message)]


def _nodes(message: str) -> Iterator[Node]:
    start = message.find("{")
    if "plan:" in message and start >= 0:
        yield from _walk(json.loads(message[start:])["Plan"])


def _walk(plan: dict[str, Any]) -> Iterator[Node]:
    loops = plan.get("Actual Loops", 1)
    rows = plan.get("Actual Rows", 0) * loops
    removed = sum(plan.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck", "Join Filter"))
    yield Node(plan["Node Type"], plan.get("Relation Name"), plan.get("Index Name"), rows, rows + removed * loops)
    for inner in plan.get("Plans", ()):
        yield from _walk(inner)


def scans(nodes: list[Node]) -> list[Node]:
    """The nodes that read the queue's table or one of its indexes."""
    return [node for node in nodes if node.kind in READING and node.relation in ("marian_jobs", None)]
