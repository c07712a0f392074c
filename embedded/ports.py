"""Free loopback ports for servers that must restart on the same port."""

import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"

# Below the ephemeral ranges of Linux and macOS: an outgoing connection cannot take a stopped server's port.
_LOWEST: Final = 15_000
_HIGHEST: Final = 31_999


def free_port() -> int:
    """Return a free loopback port. Another process may still take it before the caller binds it.

    Raises OSError if none of 200 random ports is free.
    """
    for _ in range(200):
        port = random.randint(_LOWEST, _HIGHEST)  # noqa: S311
        if port_is_free(port):
            return port
    raise OSError(f"none of 200 ports tried between {_LOWEST} and {_HIGHEST} is free on {LOOPBACK}")


def port_is_free(port: int) -> bool:
    """Return True if a server could bind the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
