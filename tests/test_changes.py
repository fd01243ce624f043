"""Realtime as a bell: against a small server that speaks its protocol, and against none."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve

from marian_jobs.changes import Changes

MINUTE = timedelta(minutes=1)
SHORT = timedelta(milliseconds=50)


class Realtime:
    """Answers joins as Realtime does, keeps what it is sent, and tells of changes when the test says so."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.sent: list[dict[str, Any]] = []
        self.connections: list[ServerConnection] = []
        self.url = ""

    async def serve(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        async for text in connection:
            message = json.loads(text)
            self.sent.append(message)
            if message["event"] == "phx_join":
                bindings = message["payload"]["config"]["postgres_changes"]
                joined = {"postgres_changes": [binding | {"id": 7} for binding in bindings]}
                answer = {"status": "error", "response": {}} if self.refuses else {"status": "ok", "response": joined}
                await self._say(connection, message["topic"], "phx_reply", answer, message["ref"])

    async def tell_of_a_change(self) -> None:
        data = {"schema": "public", "table": "marian_jobs", "commit_timestamp": "", "type": "UPDATE", "errors": None}
        payload = {"data": data | {"columns": [], "record": {}, "old_record": {}}, "ids": [7]}
        await self._say(self.connections[-1], "realtime:marian_jobs", "postgres_changes", payload, None)

    async def _say(self, to: ServerConnection, topic: str, event: str, payload: Any, ref: str | None) -> None:
        await to.send(json.dumps({"topic": topic, "event": event, "payload": payload, "ref": ref}))


async def served(realtime: Realtime) -> Server:
    server = await serve(realtime.serve, "127.0.0.1", 0)
    realtime.url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
    return server


@pytest.fixture
async def realtime() -> AsyncIterator[Realtime]:
    realtime = Realtime()
    async with await served(realtime):
        yield realtime


async def test_a_change_rings_long_before_the_interval_is_over(realtime: Realtime) -> None:
    row = f"id=eq.{uuid4()}"
    changes = Changes(realtime.url, "anon", row_filter=row)
    async with asyncio.timeout(5):
        await changes.wait(MINUTE, "token")  # at once: what changed before the subscription was not rung for
        waiting = asyncio.ensure_future(changes.wait(MINUTE, "token"))
        await asyncio.sleep(0)
        await realtime.tell_of_a_change()
        await waiting
        await changes.close()
    (join,) = [message["payload"] for message in realtime.sent if message["event"] == "phx_join"]
    assert join["access_token"] == "token"
    assert [binding["filter"] for binding in join["config"]["postgres_changes"]] == [row]


async def test_a_renewed_token_is_handed_on(realtime: Realtime) -> None:
    changes = Changes(realtime.url, "anon")
    async with asyncio.timeout(5):
        await changes.wait(MINUTE, "old")
        waiting = asyncio.ensure_future(changes.wait(MINUTE, "new"))
        while not [m for m in realtime.sent if m["event"] == "access_token"]:
            await asyncio.sleep(0.01)
        await realtime.tell_of_a_change()
        await waiting
        await changes.close()
    assert realtime.sent[-1]["payload"] == {"access_token": "new"}


async def test_a_connection_that_ends_is_looked_behind_at_once(realtime: Realtime) -> None:
    changes = Changes(realtime.url, "anon")
    async with asyncio.timeout(5):
        await changes.wait(MINUTE, "token")
        waiting = asyncio.ensure_future(changes.wait(MINUTE, "token"))
        await asyncio.sleep(0)
        await realtime.connections[-1].close()
        await waiting
        await changes.wait(SHORT, "token")  # from now on at intervals
        await changes.close()


@pytest.mark.parametrize("there", [False, True], ids=["no server", "a server that refuses"])
async def test_without_realtime_the_interval_rings_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture, there: bool
) -> None:
    refusing = Realtime(refuses=True)
    async with await served(refusing), asyncio.timeout(5):
        changes = Changes(refusing.url if there else "http://127.0.0.1:1", "anon")
        with caplog.at_level(logging.WARNING, logger="marian_jobs"):
            for _ in range(3):
                await changes.wait(SHORT, "S3CRET")
        await changes.close()
    assert len([r for r in caplog.records if r.name == "marian_jobs.changes"]) == 1
    assert "S3CRET" not in caplog.text
