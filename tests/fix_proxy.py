"""A TCP proxy that a test can make cut connections, or answer in the server's place, when a certain request comes."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest


class Proxy:
    """Forwards to `target`; `cut_reply_to(b"...")` drops the connection instead of the answer to a matching request."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._cut: bytes | None = None
        self._instead = b""
        self._replies: list[bytes] = []
        self._connections: set[asyncio.StreamWriter] = set()
        self.requests: list[bytes] = []
        self.cuts = 0
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        for writer in list(self._connections):
            writer.transport.abort()
        if self._server is not None:
            self._server.close()

    def cut_reply_to(self, request: bytes) -> None:
        """Once: the next answer after a request that holds these bytes is not passed on; its effect has happened."""
        self._cut, self._instead = request, b""

    def reply_instead(self, *replies: bytes) -> None:
        """The next requests get these replies, one each, and never reach the server; then all is as before."""
        self._replies = list(replies)

    def replace_reply_to(self, request: bytes, reply: bytes) -> None:
        """As `cut_reply_to`, with another reply in the answer's place."""
        self._cut, self._instead = request, reply

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(*self._target)
        self._connections |= {writer, upstream}
        marked = asyncio.Event()

        async def forward() -> None:
            while data := await reader.read(65536):
                self.requests.append(data)
                if self._replies:
                    await _whole_request(reader, data)
                    await _say(writer, self._replies.pop(0))
                    return
                if self._cut is not None and self._cut in data:
                    self._cut = None
                    marked.set()
                upstream.write(data)
                await upstream.drain()

        async def back() -> None:
            while data := await upstream_reader.read(65536):
                if marked.is_set():
                    self.cuts += 1
                    await _say(writer, self._instead)
                    return
                writer.write(data)
                await writer.drain()

        tasks = [asyncio.create_task(forward()), asyncio.create_task(back())]
        with contextlib.suppress(OSError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for end in (writer, upstream):
            if not end.is_closing():
                end.transport.abort()
            self._connections.discard(end)


async def _whole_request(reader: asyncio.StreamReader, first: bytes) -> None:
    head, _, body = first.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    while length and len(body) < int(length[1]):
        body += await reader.read(65536)


async def _say(writer: asyncio.StreamWriter, reply: bytes) -> None:
    if reply:
        writer.write(reply)
        writer.close()


@pytest.fixture
async def proxied(database: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the test's database, and the DSN through it."""
    import psycopg

    parts = psycopg.conninfo.conninfo_to_dict(database)
    proxy = Proxy(str(parts["host"]), int(str(parts["port"])))
    await proxy.start()
    parts |= {"host": "127.0.0.1", "port": str(proxy.port)}
    yield proxy, psycopg.conninfo.make_conninfo("", **{name: str(value) for name, value in parts.items()})
    await proxy.stop()
