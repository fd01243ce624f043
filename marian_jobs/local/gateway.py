"""The gateway before PostgREST: what Supabase's does for `/rest/v1`, and the page for users.

An `apikey` is needed, as header or parameter, and must be one of the project's four; it is turned into its role's token
where the request bears no other. A bearer's token passes on. Browsers may call from anywhere.
"""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlencode

import httpcore
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from marian_jobs.local.failure import LocalStackError
from marian_jobs.local.keys import Keys

WEB = Path(__file__).parent.parent / "web"
METHODS = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"]
# Of one hop only (RFC 9110, 7.6.1), or set anew.
_NOT_FORWARDED = {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "apikey", "authorization",
                  "te", "upgrade", "accept-encoding"}  # fmt: skip
_TIMEOUT: Final = dict.fromkeys(("connect", "read", "write", "pool"), 60.0)
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
        app.state.url = httpcore.URL(rest_url)
        async with httpcore.AsyncConnectionPool(max_connections=100, keepalive_expiry=5) as app.state.rest:
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
    rest: httpcore.AsyncConnectionPool = request.app.state.rest
    headers = [(k, v) for k, v in request.headers.raw if k.decode("latin-1") not in _NOT_FORWARDED]
    headers += [(b"authorization", b"Bearer " + token.encode()), (b"accept-encoding", b"identity")]
    content = await request.body()
    if content:
        headers.append((b"content-length", b"%d" % len(content)))
    try:
        answer = await rest.handle_async_request(
            httpcore.Request(
                request.method,
                httpcore.URL(
                    scheme=request.app.state.url.scheme,
                    host=request.app.state.url.host,
                    port=request.app.state.url.port,
                    target=_target(request),
                ),
                headers=[(b"host", request.app.state.url.host), *headers],
                content=content,
                extensions={"timeout": _TIMEOUT},
            )
        )
    except httpcore.TimeoutException:
        return JSONResponse({"message": "PostgREST did not answer in time"}, 504)
    except (httpcore.NetworkError, httpcore.ProtocolError):
        return JSONResponse({"message": "PostgREST is not there"}, 502)
    return _Passed(answer)


def _target(request: Request) -> bytes:
    """Path and query as they came, but for the prefix and the key."""
    path: bytes = request.scope["raw_path"].removeprefix(b"/rest/v1")
    query: bytes = request.scope["query_string"]
    if b"apikey=" in query:
        asked = [(name, value) for name, value in request.query_params.multi_items() if name != "apikey"]
        query = urlencode(asked).encode()
    return path + b"?" + query if query else path


class _Passed(Response):
    """An answer passed on as it comes in. Starlette's own streaming starts two tasks for each."""

    def __init__(self, answer: httpcore.Response) -> None:
        self.status_code = answer.status
        self.background = None
        self.raw_headers = [
            (k.lower(), v) for k, v in answer.headers if k.decode("latin-1").lower() not in _NOT_RETURNED
        ]
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for part in self._answer.aiter_stream():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await self._answer.aclose()
