"""What a signed-in user sees of its jobs: read through the project's API with the public key and the user's token.

Row-level security decides what comes back; nothing here ever holds the service key, and it refuses to.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
from jose import JWTError, jwt
from postgrest import AsyncPostgrestClient

from marian_jobs.errors import StoreUnavailable
from marian_jobs.job import FINISHED, Job, Status
from marian_jobs.stores import answers
from marian_jobs.stores.answers import Refusal, raise_refusal

AccessToken = str | Callable[[], Awaitable[str]]
Cursor = tuple[datetime, UUID]


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first; `next` continues behind them (None: there are no more)."""

    jobs: Sequence[Job]
    next: Cursor | None


class UserJobs:
    """The jobs of the user whom an access token names; `access_token` may be a coroutine function that renews it.

    Refuses a secret key with `ValueError`: this is for code that acts for a user.
    """

    def __init__(
        self, url: str, anon_key: str, access_token: AccessToken, *, deadline: timedelta = timedelta(seconds=15)
    ) -> None:
        _refuse_secret("anon_key", anon_key)
        if isinstance(access_token, str):
            _refuse_secret("access_token", access_token)
        self._token = access_token
        hooks: dict[str, list[Any]] = {"request": [self._sign], "response": [raise_refusal]}
        self._http = httpx.AsyncClient(timeout=deadline.total_seconds(), event_hooks=hooks)
        # supabase-py's own client for the REST API: the whole client would share one token among all its users.
        self._api = AsyncPostgrestClient(
            f"{url.rstrip('/')}/rest/v1", headers={"apikey": anon_key}, http_client=self._http
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
        query = self._api.table("marian_jobs").select("*")
        if status is not None:
            query = query.eq("status", Status(status).value)
        if type is not None:
            query = query.eq("type", type)
        if before is not None:
            made, id = before[0].isoformat(), before[1]
            query = query.or_(f'created_at.lt."{made}",and(created_at.eq."{made}",id.lt.{id})')
        found = await self._read(query.order("created_at", desc=True).order("id", desc=True).limit(limit + 1))
        jobs = [answers.to_job(row) for row in found[:limit]]
        return Page(jobs, (jobs[-1].created_at, jobs[-1].id) if len(found) > limit else None)

    async def get(self, job_id: UUID | str) -> Job | None:
        """The job, or None when there is none or it is not the user's."""
        found = await self._read(self._api.table("marian_jobs").select("*").eq("id", str(UUID(str(job_id)))))
        return answers.to_job(found[0]) if found else None

    async def watch(self, job_id: UUID | str, *, every: timedelta = timedelta(seconds=1)) -> AsyncIterator[Job]:
        """The job at once and then at each change, until it is finished, pruned or not the user's any more."""
        last: Job | None = None
        while (job := await self.get(job_id)) is not None:
            if job != last:
                yield job
            if job.status in FINISHED:
                return
            last = job
            await asyncio.sleep(every.total_seconds())

    async def _read(self, query: Any) -> Any:
        try:
            return (await query.execute()).data
        except Refusal as e:
            raise e.explained() from None
        except httpx.HTTPError as e:
            # Without its cause, which holds the request and in it the token.
            raise StoreUnavailable(f"the API could not be reached: {type(e).__name__}") from None

    async def _sign(self, request: httpx.Request) -> None:
        token = self._token if isinstance(self._token, str) else await self._token()
        _refuse_secret("access_token", token)
        request.headers["Authorization"] = f"Bearer {token}"


def _refuse_secret(name: str, key: str) -> None:
    if key.startswith("sb_secret_") or _role(key) == "service_role":
        raise ValueError(f"{name}: that is the service key, which must never act for a user")


def _role(key: str) -> Any:
    try:
        return jwt.get_unverified_claims(key).get("role")
    except (JWTError, AttributeError):
        return None
