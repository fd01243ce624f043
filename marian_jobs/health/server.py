"""An ASGI application served from a thread of its own, so that whatever blocks the program's loop does not block it."""

import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from marian_jobs.health.address import url_of


class Server:
    """Serves on a listening socket from `start` to `stop`."""

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
        self.url = url_of(listening)
        self._listening = listening
        config = uvicorn.Config(
            app,
            log_config=None,  # the log is the program's
            log_level="warning",
            access_log=False,
            lifespan="off",
            loop="asyncio",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="marian-jobs-health", daemon=True)

    def start(self) -> None:
        """Starts the thread; who connects before it serves is kept waiting by the kernel."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, within two seconds or so."""
        self._server.should_exit = True
        self._thread.join(timeout=3)
        self._listening.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._listening])
