"""Where the run takes place: a server, its API, and proxies before both; all of it real."""

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from chaos.evidence import install
from chaos.proxy import Proxy
from marian_jobs.local.gateway import Gateway
from marian_jobs.local.keys import Keys
from marian_jobs.local.ports import free_port
from marian_jobs.local.postgres import LocalPostgres
from marian_jobs.local.postgrest import PostgREST
from marian_jobs.migrations import migrate


@dataclass
class Site:
    """The server and the API; programs reach them by `dsn` and `url`, through proxies."""

    postgres: LocalPostgres
    rest: PostgREST
    keys: Keys
    proxies: dict[str, Proxy]  # "database", "api", and "rest", which is between the gateway and PostgREST
    url: str
    survived: Counter[str] = field(default_factory=Counter)
    _restarting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def dsn(self) -> str:
        """The database through its proxy."""
        parts = conninfo_to_dict(self.postgres.dsn())
        return make_conninfo("", **{**parts, "port": self.proxies["database"].port})

    async def restart(self, *, immediately: bool, pause: float) -> None:
        """Stops the server, fast or at once as a crash does, and starts it again; one restart at a time."""
        async with self._restarting:
            await asyncio.to_thread(self.postgres.restart, "immediate" if immediately else "fast", pause=pause)

    async def restart_rest(self, pause: float) -> None:
        """Kills PostgREST and starts it again; the gateway finds it at its new port."""
        async with self._restarting:
            if self.rest.pid is not None:
                os.kill(self.rest.pid, signal.SIGKILL)
            await asyncio.to_thread(self.rest.stop)
            await asyncio.sleep(pause)
            await asyncio.to_thread(self.rest.start)
            self.proxies["rest"].target = _place(self.rest.url)

    async def terminate(self, choice: int) -> None:
        """Terminates half of all sessions, or every one."""
        async with self._restarting:
            row = await asyncio.to_thread(self._terminated, choice)
        self.survived["sessions terminated"] += row

    def _terminated(self, choice: int) -> int:
        query = (
            "select count(pg_terminate_backend(pid)) from pg_stat_activity "
            "where backend_type = 'client backend' and pid <> pg_backend_pid() and (%s = 0 or pid %% 2 = %s)"
        )
        with psycopg.connect(self.postgres.socket_dsn(role="supabase_admin")) as connection:
            row = connection.execute(query, (choice % 3, choice % 2)).fetchone()
        return int(row[0]) if row else 0

    def connections(self) -> list[str]:
        """The client connections there are, besides the one that asks."""
        query = (
            "select format('connection of %s: %s', application_name, left(query, 60)) from pg_stat_activity "
            "where backend_type = 'client backend' and pid <> pg_backend_pid()"
        )
        with psycopg.connect(self.postgres.socket_dsn(role="supabase_admin")) as connection:
            return [str(text) for (text,) in connection.execute(query)]


@asynccontextmanager
async def built() -> AsyncIterator[Site]:
    """A fresh site, migrated and with its witness, until the block ends."""
    postgres = LocalPostgres(settings={"shared_buffers": "128MB", "log_min_messages": "fatal"})
    rest: PostgREST | None = None
    proxies: dict[str, Proxy] = {}
    try:
        await asyncio.to_thread(postgres.start)
        await asyncio.to_thread(migrate, postgres.dsn())
        await asyncio.to_thread(install, postgres.dsn())
        keys = Keys.kept_in(postgres.home)
        rest = PostgREST(postgres.socket_dsn(role="authenticator"), keys.jwt_secret, postgres.home)
        await asyncio.to_thread(rest.start)
        proxies["database"] = await _proxy("database", ("127.0.0.1", postgres.port))
        proxies["rest"] = await _proxy("rest", _place(rest.url))
        with Gateway(f"http://127.0.0.1:{proxies['rest'].port}", keys, free_port()) as gateway:
            proxies["api"] = await _proxy("api", _place(gateway.url))
            yield Site(postgres, rest, keys, proxies, f"http://127.0.0.1:{proxies['api'].port}")
    finally:
        for proxy in proxies.values():
            await proxy.stop()
        with contextlib.suppress(Exception):
            if rest is not None:
                await asyncio.to_thread(rest.stop)
        await asyncio.to_thread(postgres.stop)


async def _proxy(name: str, target: tuple[str, int]) -> Proxy:
    proxy = Proxy(name, target)
    await proxy.start()
    return proxy


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port
