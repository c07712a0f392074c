"""Readiness probe of a Kafka address, without a client library."""

import socket
import struct
from typing import Final

_METADATA: Final = 3
_VERSION: Final = 2
_LARGEST_ANSWER: Final = 1 << 20


def cluster_id(host: str, port: int, timeout: float = 1.0) -> str | None:
    """Return the id of the cluster that serves at an address; None while no unfenced broker serves.

    `timeout` is in seconds and applies to each network operation.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(_request())
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 0 < size <= _LARGEST_ANSWER:
                return None
            return _parse(_receive(connection, size))
    except (OSError, EOFError):
        return None


def _request() -> bytes:
    """Encode a metadata request (version 2) for no topics."""
    body = struct.pack(">hhih", _METADATA, _VERSION, 1, -1) + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError("connection closed within an answer")
        data += piece
    return data


def _parse(answer: bytes) -> str | None:
    (brokers,) = struct.unpack_from(">i", answer, 4)
    at = 8
    for _ in range(brokers):
        _, at = _string(answer, at + 4)
        _, at = _string(answer, at + 4)
    identity, _ = _string(answer, at)
    # A broker that is still fenced responds with an empty list of brokers.
    return identity if brokers > 0 else None


def _string(answer: bytes, at: int) -> tuple[str | None, int]:
    (length,) = struct.unpack_from(">h", answer, at)
    start = at + 2
    if length < 0:
        return None, start
    return answer[start : start + length].decode(), start + length
