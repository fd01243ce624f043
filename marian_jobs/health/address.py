"""Where to listen: `PORT`, `HOST:PORT` or `unix:PATH`; bound before anything is served, so that a failure is told."""

import os
import re
import socket
from contextlib import suppress
from ipaddress import ip_address

from marian_jobs.errors import MarianError

UNIX = "unix:"

_ADDRESS = re.compile(r"(?:(?P<host>[\w.-]+):|\[(?P<v6>[0-9a-fA-F:.]+)\]:)?(?P<port>[0-9]{1,5})")


def checked(address: str) -> str:
    """The address; `ValueError` for what is none."""
    if not address.startswith(UNIX):
        split(address)
    elif address == UNIX:
        raise ValueError("health: unix: needs a path, e.g. unix:/run/marian.sock")
    return address


def bind(address: str) -> socket.socket:
    """A listening socket; `ValueError` for what is no address, `MarianError` for one that cannot be had."""
    if checked(address).startswith(UNIX):
        return _bind_path(address.removeprefix(UNIX))
    host, port = split(address)
    try:
        if host:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, port), family=family)
        if socket.has_dualstack_ipv6():
            with suppress(OSError):  # the kernel may have IPv6 and the machine not
                return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as e:
        raise MarianError(f"health: cannot listen on {address}: {e.strerror or e}") from e


def split(address: str) -> tuple[str, int]:
    """Host (empty: every interface) and port; `ValueError` for what is no address."""
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(f"health: {address!r} is no address; write 9090, 127.0.0.1:9090 or [::1]:9090")
    return found["v6"] or found["host"] or "", int(found["port"])


def url_of(listening: socket.socket) -> str:
    """How to reach it from this machine."""
    name = listening.getsockname()
    if isinstance(name, str):
        return f"{UNIX}{name}"
    host = "127.0.0.1" if ip_address(name[0]).is_unspecified else name[0]
    return f"http://[{host}]:{name[1]}" if ":" in host else f"http://{host}:{name[1]}"


def _bind_path(path: str) -> socket.socket:
    with suppress(FileNotFoundError):
        os.unlink(path)  # a process that was killed leaves its own
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(path)
    except OSError as e:
        listening.close()
        raise MarianError(f"health: cannot listen on unix:{path}: {e.strerror or e}") from e
    listening.listen()
    return listening
