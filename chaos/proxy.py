"""A TCP proxy that does to connections what networks do: cuts, loses replies, delays, half-opens, refuses."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field


@dataclass(eq=False)
class _Link:
    """A connection through the proxy, both its ends."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    loses_reply: bool = False
    is_half_open: bool = False
    pumps: list["asyncio.Task[None]"] = field(default_factory=list)

    def abort(self) -> None:
        for end in (self.client, self.server):
            end.transport.abort()
        for pump in self.pumps:
            pump.cancel()


class Proxy:
    """Forwards from a port of 127.0.0.1 to `target`, which may be set anew; `survived` counts what was done to whom."""

    def __init__(self, name: str, target: tuple[str, int]) -> None:
        self.name = name
        self.target = target
        self.port = 0
        self.delay = 0.0
        self.refuses = False
        self.survived: Counter[str] = Counter()
        self._replies_to_lose = 0
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Ends all connections and listens no more."""
        if self._server is not None:
            self._server.close()
        self._end(list(self._links))

    def cut(self) -> None:
        """Resets every connection there is."""
        self.survived["connections cut"] += len(self._links)
        self._end(list(self._links))

    def lose_replies(self, count: int) -> None:
        """The next `count` requests are carried out and their connections reset instead of an answer; 0 ends it."""
        self._replies_to_lose = count

    def half_open(self) -> list[_Link]:
        """From now on nothing passes through the present connections, and neither end is told; `end` resets them."""
        halves = [link for link in self._links if not link.is_half_open]
        for link in halves:
            link.is_half_open = True
        self.survived["connections half open"] += len(halves)
        return halves

    def end(self, links: list[_Link]) -> None:
        """Resets these connections."""
        self._end(links)

    def _end(self, links: list[_Link]) -> None:
        for link in links:
            link.abort()
            self._links.discard(link)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            self.survived["connections refused"] += 1
            writer.transport.abort()
            return
        try:
            upstream_reader, upstream = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, upstream)
        self._links.add(link)
        link.pumps = [
            asyncio.create_task(self._forward(link, reader)),
            asyncio.create_task(self._back(link, upstream_reader)),
        ]
        await asyncio.wait(link.pumps, return_when=asyncio.FIRST_COMPLETED)
        self._end([link])
        await asyncio.gather(*link.pumps, return_exceptions=True)

    async def _forward(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while data := await self._passed(link, reader):
            if self._replies_to_lose > 0 and not link.loses_reply:
                self._replies_to_lose -= 1
                link.loses_reply = True
            link.server.write(data)
            await link.server.drain()

    async def _back(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while data := await self._passed(link, reader):
            if link.loses_reply:
                self.survived["replies lost"] += 1
                return
            link.client.write(data)
            await link.client.drain()

    async def _passed(self, link: _Link, reader: asyncio.StreamReader) -> bytes:
        """The next bytes, once they may pass; nothing at the connection's end."""
        try:
            data = await reader.read(65536)
        except OSError:
            return b""
        while link.is_half_open:
            await asyncio.sleep(3600)  # whoever half-opened it ends it
        if self.delay and data:
            self.survived["packets delayed"] += 1
            await asyncio.sleep(self.delay)
        return data
