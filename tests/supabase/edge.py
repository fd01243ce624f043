"""A real Deno that runs edge code, and a gateway that swallows answers."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.fix_npm import deno, deno_env

FUNCTIONS = Path(__file__).parent.parent.parent / "supabase" / "functions"
CONFIG = FUNCTIONS / "marian-worker" / "deno.json"
INDEX = FUNCTIONS / "marian-worker" / "index.ts"
PROBE = Path(__file__).parent / "probe.ts"


@dataclass
class Edge:
    """A running function: where it listens, the key that may start it, and what it has logged so far."""

    url: str
    key: str
    lines: list[str] = field(default_factory=list)
    logged: threading.Condition = field(default_factory=threading.Condition)

    def start(self, *, url: str | None = None, prefer: str = "", **options: int) -> httpx.Response:
        """Runs the worker once with these options, against another URL where one is given."""
        headers = {"apikey": self.key, "prefer": prefer, "x-options": str(options).replace("'", '"')}
        return httpx.post(self.url, headers=headers | ({"x-url": url} if url else {}), timeout=30)

    def words(self, first: str) -> list[str]:
        """What followed that word in the log."""
        return [line.removeprefix(first + " ") for line in self.lines if line.startswith(first + " ")]

    def wait_for(self, first: str) -> str:
        """Waits until a line begins with the word."""
        with self.logged:
            assert self.logged.wait_for(lambda: self.words(first), timeout=15), self.lines
        return self.words(first)[0]

    def read(self, log: Any) -> None:
        for line in log:
            with self.logged:
                self.lines.append(line.rstrip("\n"))
                self.logged.notify_all()


@contextmanager
def serving(script: Path, key: str, environment: dict[str, str]) -> Iterator[Edge]:
    """Runs a script of `Deno.serve` until the block ends; it may reach this machine and nothing else."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    edge = Edge(f"http://127.0.0.1:{port}", key)
    inherited = {name: value for name, value in deno_env().items() if not name.startswith(("SUPABASE_", "MARIAN_"))}
    process = subprocess.Popen(
        [deno(), "run", "--quiet", "--allow-env", "--allow-net=127.0.0.1", "--config", CONFIG, script],
        env=inherited | environment | {"DENO_SERVE_ADDRESS": f"tcp:127.0.0.1:{port}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    reader = threading.Thread(target=edge.read, args=[process.stdout], daemon=True)
    reader.start()
    try:
        _wait_until_it_answers(edge, process)
        yield edge
    finally:
        process.kill()
        process.wait()
        reader.join(timeout=5)


def _wait_until_it_answers(edge: Edge, process: "subprocess.Popen[str]") -> None:
    for _ in range(600):  # a first run fetches supabase-js
        assert process.poll() is None, edge.lines
        try:
            httpx.get(edge.url)
            return
        except httpx.TransportError:
            with edge.logged:
                edge.logged.wait(timeout=0.1)
    raise AssertionError(edge.lines)


@contextmanager
def swallowing(url: str, calls: set[str]) -> Iterator[tuple[str, list[str]]]:
    """A gateway before `url` that passes every call on but loses the first answer to each of `calls`.

    Yields its own URL and the names of the functions called, in order.
    """
    called: list[str] = []
    left = set(calls)

    class Gateway(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            passed = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "content-length")}
            answer = httpx.post(url + self.path, content=body, headers=passed | {"accept-encoding": "identity"})
            name = self.path.rsplit("/", 1)[-1]
            called.append(name)
            if name in left:
                left.discard(name)
                self.close_connection = True
                return  # the connection ends without an answer
            self.send_response(answer.status_code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", called
    finally:
        server.shutdown()
        server.server_close()


def deno_says(*arguments: str | Path) -> str:
    """What a Deno command complains of; empty when it has nothing to complain of."""
    done = subprocess.run([deno(), *arguments], capture_output=True, text=True, env=deno_env(), cwd=os.sep)
    return "" if done.returncode == 0 else done.stdout + done.stderr
