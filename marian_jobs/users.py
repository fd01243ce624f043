"""What a signed-in user sees of its jobs: read through the project's API with the public key and the user's token.

Row-level security decides what comes back; nothing here ever holds the service key, and it refuses to.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
from jose import JWTError, jwt
from postgrest import AsyncPostgrestClient

from marian_jobs.changes import Changes
from marian_jobs.job import FINISHED, Job, Status
from marian_jobs.stores import answers
from marian_jobs.stores.resend import http_client, may_repeat, patiently, refuse_unsendable

AccessToken = str | Callable[[], Awaitable[str]]
Cursor = tuple[datetime, UUID]
LARGEST_PAGE = 500


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first; `next` continues behind them (None: there are no more)."""

    jobs: Sequence[Job]
    next: Cursor | None


class UserJobs:
    """The jobs of the user whom an access token names; `access_token` may be a coroutine function that renews it.

    Refuses a secret key with `ValueError`: this is for code that acts for a user. `realtime` has the project's
    Realtime tell of changes to who watches; without it, or where it is not to be had, watching is looking at intervals.
    """

    def __init__(
        self,
        url: str,
        anon_key: str,
        access_token: AccessToken,
        *,
        deadline: timedelta = timedelta(seconds=15),
        realtime: bool = False,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError("url: expected the project's URL, https://….supabase.co")
        _refuse_secret("anon_key", anon_key)
        if isinstance(access_token, str):
            _refuse_secret("access_token", access_token)
        self._url = url
        self._key = anon_key
        self._access_token = access_token
        self._deadline = deadline
        self._realtime = realtime
        self._http = http_client(deadline, self._sign)
        # supabase-py's own client for the REST API: the whole client would share one token among all its users.
        self._api = AsyncPostgrestClient(
            f"{url.rstrip('/')}/rest/v1", headers={"apikey": anon_key}, http_client=self._http, retry_enabled=False
        )

    def __repr__(self) -> str:
        return "UserJobs(…)"

    async def __aenter__(self) -> "UserJobs":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Gives back the connections."""
        await self._http.aclose()

    async def list(
        self, *, status: Status | None = None, type: str | None = None, limit: int = 50, before: Cursor | None = None
    ) -> Page:
        """A page of the user's jobs, newest first; hand its `next` in as `before` for the one behind it."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise ValueError(f"limit: expected 1 to {LARGEST_PAGE}")

        def query() -> Any:
            page = self._api.table("marian_jobs").select("*")
            if status is not None:
                page = page.eq("status", Status(status).value)
            if type is not None:
                page = page.eq("type", type)
            if before is not None:
                made, id = before[0].isoformat(), before[1]
                page = page.or_(f'created_at.lt."{made}",and(created_at.eq."{made}",id.lt.{id})')
            return page.order("created_at", desc=True).order("id", desc=True).limit(limit + 1)

        found = await patiently(query, may_repeat, self._deadline)
        jobs = [answers.to_job(row) for row in found[:limit]]
        return Page(jobs, (jobs[-1].created_at, jobs[-1].id) if len(found) > limit else None)

    async def get(self, job_id: UUID | str) -> Job | None:
        """The job, or None when there is none or it is not the user's."""
        id = str(UUID(str(job_id)))
        found = await patiently(
            lambda: self._api.table("marian_jobs").select("*").eq("id", id), may_repeat, self._deadline
        )
        return answers.to_job(found[0]) if found else None

    async def watch(self, job_id: UUID | str, *, every: timedelta = timedelta(seconds=1)) -> AsyncGenerator[Job, None]:
        """The job at once and then at each change, until it is finished, pruned or not the user's any more.

        States that pass within one look are not seen. An error of the API ends the watch.
        """
        last: Job | None = None
        async with self._told_of(f"id=eq.{job_id}", every) as until_changed:
            while (job := await self.get(job_id)) is not None:
                if job != last:
                    yield job
                if job.status in FINISHED:
                    return
                last = job
                await until_changed()

    async def watch_newest(
        self, *, type: str | None = None, limit: int = 50, every: timedelta = timedelta(seconds=1)
    ) -> AsyncGenerator[Job, None]:
        """The user's newest jobs at once, oldest of them first, then each that is new or has changed, without end.

        What lies behind the `limit` newest is not looked at.
        """
        seen: dict[UUID, Job] = {}
        async with self._told_of(None, every) as until_changed:
            while True:
                page = await self.list(type=type, limit=limit)
                for job in reversed(page.jobs):
                    if seen.get(job.id) != job:
                        yield job
                seen = {job.id: job for job in page.jobs}
                await until_changed()

    @asynccontextmanager
    async def _told_of(self, row_filter: str | None, every: timedelta) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        if not self._realtime:
            yield lambda: asyncio.sleep(every.total_seconds())
            return
        changes = Changes(self._url, self._key, row_filter=row_filter)

        async def until_changed() -> None:
            await changes.wait(every, await self._token())

        try:
            yield until_changed
        finally:
            await changes.close()

    async def _token(self) -> str:
        if isinstance(self._access_token, str):
            return self._access_token
        token = await self._access_token()
        _refuse_secret("access_token", token)
        return token

    async def _sign(self, request: httpx.Request) -> None:
        request.headers["Authorization"] = f"Bearer {await self._token()}"


def _refuse_secret(name: str, key: str) -> None:
    refuse_unsendable(name, key)
    if key.startswith("sb_secret_") or _role(key) == "service_role":
        raise ValueError(f"{name}: that is the service key, which must never act for a user")


def _role(key: str) -> Any:
    try:
        return jwt.get_unverified_claims(key).get("role")
    except (JWTError, AttributeError):
        return None
