"""The proxy does to connections what it says."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from chaos.proxy import Proxy


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """A proxy before a server that says back in capitals what it hears."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            heard.append(data)
            writer.write(data.upper())
        writer.close()

    heard: list[bytes] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = Proxy("test", server.sockets[0].getsockname()[:2])
    proxy.heard = heard  # type: ignore[attr-defined]
    await proxy.start()
    yield proxy
    await proxy.stop()
    server.close()


class Client:
    """One connection through the proxy."""

    @classmethod
    async def to(cls, proxy: Proxy) -> "Client":
        client = cls()
        client.reader, client.writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        return client

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, text: bytes) -> bytes:
        """The answer; nothing where the connection was closed or reset."""
        try:
            self.writer.write(text)
            async with asyncio.timeout(5):
                return await self.reader.read(100)
        except ConnectionError:
            return b""


async def test_it_forwards(proxy: Proxy) -> None:
    assert await (await Client.to(proxy)).ask(b"hello") == b"HELLO"


async def test_a_cut_ends_every_connection_and_no_later_one(proxy: Proxy) -> None:
    client = await Client.to(proxy)
    await client.ask(b"hello")
    proxy.cut()
    assert await client.ask(b"there?") == b""
    assert await (await Client.to(proxy)).ask(b"again") == b"AGAIN"
    assert proxy.survived["connections cut"] == 1


async def test_a_lost_reply_is_one_whose_request_was_carried_out(proxy: Proxy) -> None:
    proxy.lose_replies(1)
    assert await (await Client.to(proxy)).ask(b"do it") == b""
    assert proxy.heard == [b"do it"]  # type: ignore[attr-defined]
    assert await (await Client.to(proxy)).ask(b"again") == b"AGAIN"


async def test_a_half_open_connection_says_nothing_until_it_is_ended(proxy: Proxy) -> None:
    client = await Client.to(proxy)
    await client.ask(b"hello")
    halves = proxy.half_open()
    asking = asyncio.create_task(client.ask(b"there?"))
    assert await (await Client.to(proxy)).ask(b"others pass") == b"OTHERS PASS"
    assert not asking.done()
    proxy.end(halves)
    assert await asking == b""


async def test_a_refused_connection_is_ended_at_once(proxy: Proxy) -> None:
    proxy.refuses = True
    assert await (await Client.to(proxy)).ask(b"hello") == b""
    proxy.refuses = False
    assert await (await Client.to(proxy)).ask(b"hello") == b"HELLO"
