"""A TCP proxy that a test can make cut connections: at once, or when an answer to a certain request comes back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest


class Proxy:
    """Forwards to `target`; `cut_reply_to(b"...")` drops the connection instead of the answer to a matching request."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._cut: bytes | None = None
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
        self._cut = request

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(*self._target)
        self._connections |= {writer, upstream}
        marked = asyncio.Event()

        async def forward() -> None:
            while data := await reader.read(65536):
                self.requests.append(data)
                if self._cut is not None and self._cut in data:
                    self._cut = None
                    marked.set()
                upstream.write(data)
                await upstream.drain()

        async def back() -> None:
            while data := await upstream_reader.read(65536):
                if marked.is_set():
                    self.cuts += 1
                    return
                writer.write(data)
                await writer.drain()

        tasks = [asyncio.create_task(forward()), asyncio.create_task(back())]
        with contextlib.suppress(OSError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for end in (writer, upstream):
            end.transport.abort()
            self._connections.discard(end)


@pytest.fixture
async def proxied(database: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the test's database, and the DSN through it."""
    import psycopg

    parts = psycopg.conninfo.conninfo_to_dict(database)
    proxy = Proxy(str(parts["host"]), int(str(parts["port"])))
    await proxy.start()
    parts["port"] = str(proxy.port)
    yield proxy, psycopg.conninfo.make_conninfo("", **{name: str(value) for name, value in parts.items()})
    await proxy.stop()
