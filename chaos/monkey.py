"""Does what the plan says, to whom it says, and counts it."""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import psycopg

from chaos.fleet import Fleet, Place
from chaos.plan import Event
from chaos.proxy import Proxy
from chaos.site import Site

LOST_AT_ONCE = 3
DELAY = 0.1


class Monkey:
    """Performs events; `deleted` are the owners it has deleted, `survived` counts what it did."""

    def __init__(self, site: Site, fleet: Fleet, owners: Sequence[UUID]) -> None:
        self._site = site
        self._fleet = fleet
        self._owners = list(owners)
        self.survived: Counter[str] = Counter()
        self._acts: dict[str, Callable[[Event], Awaitable[bool]]] = {
            "kill a worker": self._kill_worker,
            "stop a worker": self._stop_worker,
            "freeze a worker for less than a lease": self._freeze,
            "freeze a worker for more than a lease": self._freeze,
            "kill a producer": self._kill_producer,
            "restart the server, fast": self._restart,
            "restart the server, immediate": self._restart,
            "kill PostgREST": self._kill_rest,
            "terminate sessions": self._terminate,
            "cut connections": self._cut,
            "lose replies": self._lose_replies,
            "delay": self._delay,
            "half-open connections": self._half_open,
            "refuse connections": self._refuse,
            "jump a worker's clock": self._jump,
            "delete an owner": self._delete_owner,
        }

    async def perform(self, events: Sequence[Event]) -> None:
        """All of them at their times; returns when the last one is over."""
        begun = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for event in events:
                await asyncio.sleep(max(0.0, begun + event.at - asyncio.get_running_loop().time()))
                group.create_task(self._perform(event))

    async def _perform(self, event: Event) -> None:
        if await self._acts[event.kind](event):
            self.survived[event.kind] += 1

    def _place(self, kind: str, event: Event) -> Place:
        places = [place for place in self._fleet.places if place.name.startswith(kind)]
        return places[event.choice % len(places)]

    def _proxy(self, event: Event) -> Proxy:
        proxies = list(self._site.proxies.values())
        return proxies[event.choice % len(proxies)]

    async def _kill_worker(self, event: Event) -> bool:
        return self._place("worker", event).send(signal.SIGKILL, "kill")

    async def _kill_producer(self, event: Event) -> bool:
        return self._place("producer", event).send(signal.SIGKILL, "kill")

    async def _stop_worker(self, event: Event) -> bool:
        return self._place("worker", event).send(signal.SIGTERM, "stop")

    async def _jump(self, event: Event) -> bool:
        place = self._place("worker", event)
        if "stop" in place.asked:
            return False  # at its very end Python lets go of its handlers, and the signal would kill it
        return place.send(signal.SIGUSR1, "jump")

    async def _freeze(self, event: Event) -> bool:
        place = self._place("worker", event)
        process = place.process
        if not place.send(signal.SIGSTOP, "freeze") or process is None:
            return False
        await asyncio.sleep(event.lasts)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        return True

    async def _restart(self, event: Event) -> bool:
        await self._site.restart(immediately=event.kind.endswith("immediate"), pause=event.lasts)
        return True

    async def _kill_rest(self, event: Event) -> bool:
        await self._site.restart_rest(event.lasts)
        return True

    async def _terminate(self, event: Event) -> bool:
        await self._site.terminate(event.choice)
        return True

    async def _cut(self, event: Event) -> bool:
        self._proxy(event).cut()
        return True

    async def _lose_replies(self, event: Event) -> bool:
        proxy = self._proxy(event)
        proxy.lose_replies(LOST_AT_ONCE)
        await asyncio.sleep(event.lasts)
        proxy.lose_replies(0)
        return True

    async def _delay(self, event: Event) -> bool:
        proxy = self._proxy(event)
        proxy.delay = DELAY
        await asyncio.sleep(event.lasts)
        proxy.delay = 0.0
        return True

    async def _half_open(self, event: Event) -> bool:
        proxy = self._proxy(event)
        halves = proxy.half_open()
        await asyncio.sleep(event.lasts)
        proxy.end(halves)
        return True

    async def _refuse(self, event: Event) -> bool:
        proxy = self._proxy(event)
        proxy.refuses = True
        await asyncio.sleep(event.lasts)
        proxy.refuses = False
        return True

    async def _delete_owner(self, event: Event) -> bool:
        if len(self._owners) <= 1:
            return False
        owner = self._owners.pop(event.choice % len(self._owners))
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(self._site.postgres.dsn()) as connection:
                    await connection.execute("delete from auth.users where id = %s", (owner,))
                return True
            except psycopg.OperationalError:
                await asyncio.sleep(0.2)
