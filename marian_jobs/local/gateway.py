"""The gateway before PostgREST: what Supabase's does for `/rest/v1`, and the page for users.

An `apikey` is needed, as header or parameter, and must be one of the project's four; it is turned into its role's token
where the request bears no other. A bearer's token passes on. Browsers may call from anywhere.
"""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from marian_jobs.local.failure import LocalStackError
from marian_jobs.local.keys import Keys

WEB = Path(__file__).parent.parent / "web"
METHODS = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"]
# Of one hop only (RFC 9110, 7.6.1), or set anew.
_NOT_FORWARDED = {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "apikey", "authorization",
                  "te", "upgrade", "accept-encoding"}  # fmt: skip
_NOT_RETURNED = {"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"}


class Gateway:
    """Serves `/rest/v1` and the page on a port of 127.0.0.1, from a thread, until stopped."""

    def __init__(self, rest_url: str, keys: Keys, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        config = uvicorn.Config(
            app(rest_url, keys, self.url), host="127.0.0.1", port=port, log_level="warning", lifespan="on"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="marian-jobs-gateway", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise LocalStackError(f"the gateway could not listen on {self.url}; choose another port")
            self._thread.join(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)


def app(rest_url: str, keys: Keys, own_url: str) -> Starlette:
    """The gateway as an ASGI application."""

    @asynccontextmanager
    async def upstream(app: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(base_url=rest_url, timeout=60) as app.state.rest:
            yield

    async def forward(request: Request) -> Response:
        token = _token(request, keys)
        if token is None:
            return JSONResponse({"message": "Invalid API key", "hint": "Double check your API key."}, 401)
        return await _forwarded(request, token)

    async def config(_: Request) -> Response:
        return JSONResponse({"url": own_url, "anonKey": keys.anon, "realtime": False})

    async def key_set(_: Request) -> Response:
        return JSONResponse({"keys": []})  # tokens here are signed with the secret

    return Starlette(
        lifespan=upstream,
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=["*"],
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=["content-range", "content-location", "preference-applied"],
            )
        ],
        routes=[
            Route("/rest/v1/{path:path}", forward, methods=METHODS),
            Route("/auth/v1/.well-known/jwks.json", key_set),
            Route("/config.json", config),
            Mount("/", StaticFiles(directory=WEB, html=True)),
        ],
    )


def _token(request: Request, keys: Keys) -> str | None:
    """The token to hand on: the bearer's own, or the one that the API key stands for; None without a known key."""
    key = request.headers.get("apikey") or request.query_params.get("apikey") or ""
    by_key = keys.token_of(key)
    if by_key is None:
        return None
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not bearer or bearer == key:
        return by_key
    return keys.token_of(bearer) or bearer


async def _forwarded(request: Request, token: str) -> Response:
    client: httpx.AsyncClient = request.app.state.rest
    headers = {k: v for k, v in request.headers.items() if k not in _NOT_FORWARDED}
    headers |= {"authorization": f"Bearer {token}", "accept-encoding": "identity"}
    asked: list[tuple[str, str | int | float | bool | None]] = [
        (name, value) for name, value in request.query_params.multi_items() if name != "apikey"
    ]
    upstream = client.build_request(
        request.method, f"/{request.path_params['path']}", params=asked, content=await request.body(), headers=headers
    )
    try:
        answer = await client.send(upstream, stream=True)
    except httpx.TimeoutException:
        return JSONResponse({"message": "PostgREST did not answer in time"}, 504)
    except httpx.TransportError:
        return JSONResponse({"message": "PostgREST is not there"}, 502)
    kept = {k: v for k, v in answer.headers.items() if k not in _NOT_RETURNED}
    return StreamingResponse(_body(answer), answer.status_code, kept)


async def _body(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for part in answer.aiter_raw():
            yield part
    finally:
        await answer.aclose()
