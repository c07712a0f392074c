"""A proxy before an HTTP server, with failures that no real server gives on demand."""

import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

_SECONDS: Final = 60.0


class Effect(Enum):
    """What happens to a request."""

    LOST_BEFORE = "the connection ends before the effect"
    LOST_AFTER = "the connection ends after the effect"
    ANSWERED_BEFORE = "an answer with another status before the effect"
    ANSWERED_AFTER = "an answer with another status after the effect"
    REPEATED = "the request reaches the server twice, and the second answer comes back"
    HELD = "an answer with another status, and the request reaches the server when it is released"
    REDIRECTED = "a redirection to the server, with another status, and no effect"


_WITHOUT_EFFECT: Final = (Effect.LOST_BEFORE, Effect.ANSWERED_BEFORE, Effect.HELD, Effect.REDIRECTED)


@dataclass(frozen=True, slots=True)
class Answered:
    """An effect of the next POST, with the status of its answer."""

    effect: Effect
    status: int = 500


class Proxy:
    """A proxy on the loopback interface; `strike` says what happens to the next POST."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self.target = target
        self._address = (str(parts.hostname), int(parts.port or 0))
        self._next: Answered | None = None
        self._held: list[tuple[str, str, dict[str, str], bytes]] = []
        self.posts = 0
        """Requests that have reached the server."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def strike(self, effect: Effect, status: int = 500) -> None:
        self._next = Answered(effect, status)

    def hold(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        """Keep a request that was answered."""
        self._held.append((method, path, headers, body))

    def release(self) -> int:
        """Let the oldest request that was held reach the server; return the status of the answer."""
        return self.forward(*self._held.pop(0))[0]

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        self.posts += method == "POST"
        connection = http.client.HTTPConnection(*self._address, timeout=_SECONDS)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type") or "", answer.read()
        finally:
            connection.close()

    def refusal(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes] | None:
        """Return the status and the body of an answer before the server's; None: the request passes."""
        return None

    def taken(self, method: str) -> Answered | None:
        """Return the effect on a request, once."""
        if method != "POST":
            return None
        found, self._next = self._next, None
        return found

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(_Handler):
            def serve(self) -> None:
                _serve(self, proxy)

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    def serve(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.serve()

    def do_POST(self) -> None:
        self.serve()

    def do_HEAD(self) -> None:
        self.serve()

    def do_DELETE(self) -> None:
        self.serve()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def _serve(handler: _Handler, proxy: Proxy) -> None:
    body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    skipped = ("host", "connection", "accept-encoding", "content-length")
    handler.close_connection = True
    headers = {name: value for name, value in handler.headers.items() if name.lower() not in skipped}
    refused = proxy.refusal(handler.command, handler.path, headers, body)
    if refused is not None:
        _send(handler, refused[0], "application/json", refused[1])
        return
    struck = proxy.taken(handler.command)
    effect = struck.effect if struck is not None else None
    status, kind, answer = 0, "application/json", b""
    if effect is Effect.HELD:
        proxy.hold(handler.command, handler.path, headers, body)
    if effect not in _WITHOUT_EFFECT:
        status, kind, answer = proxy.forward(handler.command, handler.path, headers, body)
    if effect is Effect.REPEATED:
        status, kind, answer = proxy.forward(handler.command, handler.path, headers, body)
    if effect in (Effect.LOST_BEFORE, Effect.LOST_AFTER):
        handler.connection.close()
        return
    if struck is not None and effect in (
        Effect.ANSWERED_BEFORE,
        Effect.ANSWERED_AFTER,
        Effect.HELD,
        Effect.REDIRECTED,
    ):
        status = struck.status
        error = {"message": "injected", "type": "Injected", "code": status}
        answer = json.dumps({"error": error}).encode()
    _send(handler, status, kind, answer, f"{proxy.target}{handler.path}")


def _send(handler: BaseHTTPRequestHandler, status: int, kind: str, answer: bytes, where: str = "") -> None:
    handler.send_response(status)
    if 300 < status < 400 and where:
        handler.send_header("Location", where)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(answer)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(answer)
