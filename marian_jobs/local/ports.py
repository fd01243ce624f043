"""Ports on this machine."""

import socket

from marian_jobs.local.failure import LocalStackError


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def unused(port: int) -> int:
    """The port, or `LocalStackError` where somebody listens on it or there is no such port."""
    if not 1 <= port <= 65535:
        raise LocalStackError(f"port {port}: ports go from 1 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as e:
            raise LocalStackError(f"port {port} is taken ({e.strerror}); choose another") from None
    return port
