"""The queue over a Supabase project's API, by supabase-py: every move an RPC, with the service role's key.

A call is sent again only where a second time changes nothing, or where it surely was not carried out: see `resend`.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import httpx

from marian_jobs.errors import NotSupported, StoreRefused, StoreUnavailable
from marian_jobs.failure import storable
from marian_jobs.job import Enqueued, Held, Job, NewJob
from marian_jobs.redaction import redact
from marian_jobs.store import MOST_CLAIMED, Alarm, Failure, Floors, JobFilter, Limit, Poll, Stat, TypeLimit
from marian_jobs.stores import answers, rows
from marian_jobs.stores.alarm import SleepAlarm
from marian_jobs.stores.answers import from_duration
from marian_jobs.stores.resend import http_client, may_repeat, patiently, refuse_unsendable, was_not_carried_out
from marian_jobs.stores.rows import rooms
from supabase import AsyncClient, AsyncClientOptions, acreate_client

T = TypeVar("T")

DEADLINE = timedelta(seconds=30)
LARGEST_BATCH = 500  # well below the 1,000 rows at which PostgREST cuts an answer


class SupabaseStore:
    """Keeps jobs in a Supabase project, reached by its URL and its service_role (or `sb_secret_…`) key.

    `deadline` bounds every call. `SupabaseStore` cannot join a transaction and cannot be woken: workers poll.
    """

    def __init__(self, url: str, service_role_key: str, *, deadline: timedelta = DEADLINE) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError("url: expected the project's URL, https://….supabase.co")
        refuse_unsendable("service_role_key", service_role_key)
        if service_role_key.startswith("sb_publishable_"):
            raise ValueError("service_role_key: that is a publishable key; workers need the secret one")
        self._url = url
        self._key = service_role_key
        self._deadline = deadline
        self._http: httpx.AsyncClient | None = None
        self._client: AsyncClient | None = None

    def __repr__(self) -> str:
        return f"SupabaseStore({redact(self._url)!r})"

    async def __aenter__(self) -> "SupabaseStore":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connects and checks that the key may work on the queue; `StoreRefused` says why not."""
        if self._client is None:
            self._http = http_client(self._deadline)
            options = AsyncClientOptions(
                auto_refresh_token=False, persist_session=False, httpx_client=self._http, postgrest_client_retry=False
            )
            try:
                self._client = await acreate_client(self._url, self._key, options)
            except Exception as e:
                await self.close()
                raise StoreRefused(f"supabase-py refused the URL or the key: {type(e).__name__}") from None
        try:
            await self._harmless("marian_jobs_next_due", p_types=[])
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Gives back the connections."""
        if self._http is not None:
            http, self._http, self._client = self._http, None, None
            await http.aclose()

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: object | None = None) -> list[Enqueued]:
        """See `Store.enqueue`; `connection` is refused."""
        if connection is not None:
            raise NotSupported("SupabaseStore cannot join a transaction: use PostgresStore for connection=")
        if not jobs:
            return []
        elements = [json.loads(rows.element(job)) for job in jobs]
        found = await self._harmless("marian_jobs_enqueue_batch", p_jobs=elements)
        return [answers.to_enqueued(row, new) for row, new in zip(found, jobs, strict=True)]

    async def load(self, jobs: Sequence[NewJob]) -> int:
        """See `Store.load`."""
        return sum(answer.created for answer in await self.enqueue(jobs))

    async def claim(
        self,
        limit: int,
        types: Collection[str] | None,
        lease: timedelta,
        room: rows.Room = None,
        floors: Floors | None = None,
    ) -> list[Job]:
        """See `Store.claim`. Not sent again when its reply was lost: what it leased comes back when the lease ends.

        Overlooks nothing: the API has no room for floors, and is slower than what they save.
        """
        if types is None and room is None:
            return _jobs(await self._once("claim_jobs", p_limit=limit, p_lease=from_duration(lease)))
        return _jobs(await self._once("claim_jobs", **_wanted(limit, types, lease, room)))

    async def poll(self, limit: int, types: Collection[str], lease: timedelta, room: rows.Room = None) -> Poll:
        """See `Store.poll`. Like `claim`, not sent again when its reply was lost."""
        return answers.to_poll(await self._once("marian_jobs_poll", **_wanted(limit, types, lease, room)))

    async def complete(self, held: Sequence[Held], *, connection: object | None = None) -> set[Held]:
        """See `Store.complete`; `connection` is refused."""
        if connection is not None:
            raise NotSupported("SupabaseStore cannot join a transaction: use PostgresStore to complete in one")
        accepted = set(held)
        for batch in _batches(held):
            refused = await self._harmless("marian_jobs_settle", **_tokens(batch))
            accepted.difference_update(Held(UUID(row["id"]), row["attempt"]) for row in refused)
        return accepted

    async def fail(self, failures: Sequence[Failure]) -> list[Job]:
        """See `Store.fail`."""
        failed: list[Job] = []
        for batch in _batches(failures):
            failed += _jobs(
                await self._harmless(
                    "fail_jobs",
                    p_ids=[str(f.id) for f in batch],
                    p_attempts=[f.attempt for f in batch],
                    p_errors=[storable(f.error) for f in batch],
                    p_retry_in=[from_duration(f.retry_in) for f in batch],
                    p_dead=[f.dead for f in batch],
                )
            )
        return failed

    async def extend(self, held: Sequence[Held], lease: timedelta) -> set[Held]:
        """See `Store.extend`."""
        ids: list[UUID] = []
        for batch in _batches(held):
            found = await self._harmless("extend_leases", **_tokens(batch), p_lease=from_duration(lease))
            ids += [UUID(id) for id in found]
        return rows.still_held(held, ids)

    async def release(self, held: Sequence[Held], delay: timedelta = timedelta(0)) -> list[Job]:
        """See `Store.release`."""
        released: list[Job] = []
        for batch in _batches(held):
            released += _jobs(await self._harmless("release_jobs", **_tokens(batch), p_delay=from_duration(delay)))
        return released

    async def reclaim(self, limit: int = MOST_CLAIMED) -> list[Job]:
        """See `Store.reclaim`."""
        return _jobs(await self._harmless("reclaim_expired", p_limit=limit))

    async def cancel(self, job_id: UUID) -> Job | None:
        """See `Store.cancel`."""
        return _job(await self._once("cancel_job", p_id=str(job_id)))

    async def retry(self, job_id: UUID, max_attempts: int | None = None) -> Job | None:
        """See `Store.retry`."""
        return _job(await self._once("retry_job", p_id=str(job_id), p_max_attempts=max_attempts))

    async def get(self, job_id: UUID) -> Job | None:
        """See `Store.get`."""
        return _job(
            await self._patiently(lambda db: db.table("marian_jobs").select("*").eq("id", str(job_id)), may_repeat)
        )

    async def find(self, which: JobFilter) -> Sequence[Job]:
        """See `Store.find`."""

        def query(db: AsyncClient) -> Any:
            page = db.table("marian_jobs").select("*")
            for column in ("status", "type", "user_id", "idempotency_key"):
                if (value := getattr(which, column)) is not None:
                    page = page.eq(column, str(value))
            if which.before is not None:
                made, id = which.before[0].isoformat(), which.before[1]
                page = page.or_(f'created_at.lt."{made}",and(created_at.eq."{made}",id.lt.{id})')
            return page.order("created_at", desc=True).order("id", desc=True).limit(min(which.limit, MOST_CLAIMED))

        return _jobs(await self._patiently(query, may_repeat))

    async def pause(self, type: str) -> None:
        """See `Store.pause`."""
        await self._harmless("pause_type", p_type=type)

    async def resume(self, type: str) -> None:
        """See `Store.resume`."""
        await self._harmless("resume_type", p_type=type)

    async def limit(self, type: str, limit: Limit) -> None:
        """See `Store.limit`."""
        await self._harmless(
            "limit_type",
            p_type=type,
            p_max_running=limit.max_running,
            p_rate=limit.rate,
            p_per=from_duration(limit.per),
        )

    async def limits(self) -> Sequence[TypeLimit]:
        """See `Store.limits`."""
        return [answers.to_type_limit(row) for row in await self._harmless("job_limits")]

    async def prune(self, succeeded_older: timedelta | None, dead_older: timedelta | None, limit: int = 10_000) -> int:
        """See `Store.prune`."""
        count: int = await self._harmless(
            "prune_jobs",
            p_succeeded_older=from_duration(succeeded_older),
            p_dead_older=from_duration(dead_older),
            p_limit=limit,
        )
        return count

    async def stats(self) -> Sequence[Stat]:
        """See `Store.stats`."""
        return [answers.to_stat(row) for row in await self._harmless("job_stats")]

    async def ask(self, function: str, **arguments: Any) -> Any:
        """What a function of the queue that only reads answers, as JSON: for `marian doctor`."""
        return await self._harmless(function, **arguments)

    def for_another_loop(self) -> "SupabaseStore":
        """See `Store.for_another_loop`."""
        return SupabaseStore(self._url, self._key, deadline=self._deadline)

    def alarm(self, types: Collection[str]) -> Alarm:
        """See `Store.alarm`: there is no LISTEN over HTTP, only the passing of time."""
        return SleepAlarm()

    async def _once(self, function: str, **arguments: Any) -> Any:
        return await self._patiently(lambda db: db.rpc(function, arguments), was_not_carried_out)

    async def _harmless(self, function: str, **arguments: Any) -> Any:
        return await self._patiently(lambda db: db.rpc(function, arguments), may_repeat)

    async def _patiently(self, query: Callable[[AsyncClient], Any], again: Callable[[BaseException], bool]) -> Any:
        client = self._client
        if client is None:
            raise StoreUnavailable("the store is not open: use it as `async with`, or call open()")
        return await patiently(lambda: query(client), again, self._deadline)


def _wanted(limit: int, types: Collection[str] | None, lease: timedelta, room: rows.Room) -> dict[str, Any]:
    if room is None:
        return {"p_limit": limit, "p_types": None if types is None else list(types), "p_lease": from_duration(lease)}
    named, length, most = rooms(types, room, from_duration(lease))
    return {"p_limit": limit, "p_types": named, "p_lease": length, "p_room": most}


def _tokens(held: Sequence[Held]) -> dict[str, Any]:
    ordered = sorted(held)
    return {"p_ids": [str(token.id) for token in ordered], "p_attempts": [token.attempt for token in ordered]}


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + LARGEST_BATCH] for start in range(0, len(items), LARGEST_BATCH))


def _jobs(found: Sequence[Any]) -> list[Job]:
    return [answers.to_job(row) for row in found]


def _job(found: Sequence[Any]) -> Job | None:
    return answers.to_job(found[0]) if found else None
